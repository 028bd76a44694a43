package licenses

import (
	"fmt"
	"strings"
	"time"

	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string {
	var said []string
	for i := range c.needs {
		e := &c.needs[i]
		switch {
		case n == nil && e.feature.floating():
			said = append(said, e.explainFloating())
		case n != nil && e.feature.nodeSeats != nil && e.feature.on(n):
			l := e.feature.nodeSeats.Of(n)
			said = append(said, fmt.Sprintf("%s: requests %s of %d on the node; %d used%s",
				e.feature.Name, plural(e.seats), l.total, l.used, listed(n.Ledger(e.feature.ledger()))))
		}
	}
	return said
}

func (e *viewNeed) explainFloating() string {
	s := &e.floating
	var text strings.Builder
	fmt.Fprintf(&text, "%s: requests %s of %d", e.feature.Name, plural(e.seats), s.total)
	if e.feature.Server != nil {
		switch {
		case s.reported.Current():
			fmt.Fprintf(&text, "; %d used by others as of %s", s.others, s.reported.At.UTC().Format(time.RFC3339))
		case s.counted:
			fmt.Fprintf(&text, "; %d used by others (%s)", s.others, s.reported.Missing(e.feature.signal, e.feature.usedKey))
		default:
			fmt.Fprintf(&text, "; unknown how many are used by others (%s)", s.reported.Missing(e.feature.signal, e.feature.usedKey))
		}
	}
	if s.reserved > 0 {
		fmt.Fprintf(&text, "; %d reserved", s.reserved)
	}
	fmt.Fprintf(&text, "; %d claimed by pods%s", used(s.claims), listed(s.claims))
	if s.unclaimed != nil {
		fmt.Fprintf(&text, "; %d used by pods without a claim%s", used(s.unclaimed), listed(s.unclaimed))
	}
	if s.nominated > 0 {
		fmt.Fprintf(&text, "; %d kept for nominated pods", s.nominated)
	}
	return text.String()
}

// listed lists the pods that have claims in the ledger, which may be nil.
func listed(l *snapshot.Ledger) string {
	if l == nil || len(l.Pods) == 0 {
		return ""
	}
	all := make([]claims.Held, len(l.Pods))
	for i := range l.Pods {
		p := &l.Pods[i]
		all[i] = claims.Held{Holder: claims.Holder{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Amount: held(l, p.UID)}
	}
	return ": " + claims.List(all)
}

func plural(seats int64) string {
	if seats == 1 {
		return "1 seat"
	}
	return fmt.Sprintf("%d seats", seats)
}
