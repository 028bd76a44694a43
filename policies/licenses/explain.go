package licenses

import (
	"fmt"
	"strings"
	"time"

	"outboard.dev/outboard/snapshot"
)

// maxNamed is how many pods are named.
const maxNamed = 20

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
				e.feature.Name, plural(e.seats), l.total, l.used, named(n.Ledger(e.feature.ledger()))))
		}
	}
	return said
}

func (e *evaluatedNeed) explainFloating() string {
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
	fmt.Fprintf(&text, "; %d claimed by pods%s", used(s.claims), named(s.claims))
	if s.unclaimed != nil {
		fmt.Fprintf(&text, "; %d used by pods without a claim%s", used(s.unclaimed), named(s.unclaimed))
	}
	if s.nominated > 0 {
		fmt.Fprintf(&text, "; %d kept for nominated pods", s.nominated)
	}
	return text.String()
}

// named lists the pods that have claims.
func named(l *snapshot.Ledger) string {
	if l == nil || len(l.Pods) == 0 {
		return ""
	}
	var text strings.Builder
	for i := range l.Pods {
		separator := ", "
		switch i {
		case 0:
			separator = ": "
		case maxNamed:
			fmt.Fprintf(&text, " and %d more", len(l.Pods)-i)
			return text.String()
		}
		p := &l.Pods[i]
		fmt.Fprintf(&text, "%s%s/%s", separator, p.Namespace, p.Name)
		if n := held(l, p.UID); n != 1 {
			fmt.Fprintf(&text, " (%d)", n)
		}
	}
	return text.String()
}

func plural(seats int64) string {
	if seats == 1 {
		return "1 seat"
	}
	return fmt.Sprintf("%d seats", seats)
}
