package licenses

import (
	"fmt"
	"strings"
	"time"

	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

func (c *cycle) Explain(n *snapshot.Node) []string {
	var said []string
	for i := range c.needs {
		e := &c.needs[i]
		switch {
		case n == nil && e.floating != nil:
			said = append(said, e.explainFloating())
		case n != nil && e.feature.nodeSeats != nil && e.feature.on(n):
			l := e.feature.nodeSeats.Of(n)
			said = append(said, fmt.Sprintf("%s: requests %s of %d on the node; %d used%s",
				e.feature.Name, plural(e.seats), l.total, l.used, listed(l.holders)))
		}
	}
	return said
}

func (e *viewNeed) explainFloating() string {
	s := e.floating
	var text strings.Builder
	fmt.Fprintf(&text, "%s: requests %s of %d", e.feature.Name, plural(e.seats), s.total)
	if e.feature.Server != nil {
		missing := s.reported.Missing(e.feature.Server.Signal, e.feature.usedKey)
		switch {
		case s.reported.Current():
			fmt.Fprintf(&text, "; %d used by others as of %s", s.others, s.reported.At.UTC().Format(time.RFC3339))
		case s.counted:
			fmt.Fprintf(&text, "; %d used by others (%s)", s.others, missing)
		default:
			fmt.Fprintf(&text, "; unknown how many are used by others (%s)", missing)
		}
	}
	if s.reserved > 0 {
		fmt.Fprintf(&text, "; %d reserved", s.reserved)
	}
	var allocated, unallocated []allocations.Held
	for _, h := range s.holders {
		if h.allocated {
			allocated = append(allocated, h.Held)
		} else {
			unallocated = append(unallocated, h.Held)
		}
	}
	seats := s.sum(func(h *holder) bool { return h.allocated })
	fmt.Fprintf(&text, "; %d allocated by pods%s", seats, listed(allocated))
	if len(unallocated) > 0 {
		fmt.Fprintf(&text, "; %d used by pods without an allocation%s", s.held-seats, listed(unallocated))
	}
	if s.nominated > 0 {
		fmt.Fprintf(&text, "; %d kept for nominated pods", s.nominated)
	}
	return text.String()
}

func listed(pods []allocations.Held) string {
	if len(pods) == 0 {
		return ""
	}
	return ": " + allocations.List(pods)
}

func plural(seats int64) string {
	if seats == 1 {
		return "1 seat"
	}
	return fmt.Sprintf("%d seats", seats)
}
