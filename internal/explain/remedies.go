package explain

import (
	"fmt"
	"strings"
)

// remedies writes with which changes the pod would fit.
func (d *Document) remedies(b *strings.Builder) {
	if d.Fits == nil || d.Fits.Fit > 0 && len(d.Remedies) == 0 || d.Change == d.failure() {
		return
	}
	if len(d.Now) > 1 {
		b.WriteString("\nBy all profiles together:\n")
	}
	if d.Fits.Fit > 0 {
		b.WriteString("  kube-scheduler cannot allocate its ResourceClaims on any node.\n")
	}
	if len(d.Remedies) == 0 {
		b.WriteString("  It would not fit with any single change that Outboard has tried.\n")
		return
	}
	b.WriteString("  It would fit\n")
	for i := range d.Remedies {
		fmt.Fprintf(b, "      %s\n", &d.Remedies[i])
	}
}

// change returns the smallest change with which the pod would fit, or why there is none; "" if no
// profile was asked.
func (d *Document) change(by string) string {
	failure := d.failure()
	switch {
	case d.Fits == nil:
		return ""
	case len(d.Hints) > 0 && d.Fits.Fit == 0:
		return d.Hints[0]
	case len(d.Remedies) > 0:
		return d.Remedies[0].String()
	case failure != "":
		return failure
	case d.Fits.Fit > 0:
		return fmt.Sprintf("on %d of %d nodes now, by %s", d.Fits.Fit, d.Fits.Nodes, by)
	}
	return "not by a single change"
}

// failure is the first error of a profile.
func (d *Document) failure() string {
	for i := range d.Now {
		if d.Now[i].Error != "" {
			return d.Now[i].Error
		}
	}
	return ""
}

// text writes how the node of the pod compares with the others now.
func (p *Placed) text(b *strings.Builder) {
	fmt.Fprintf(b, "\nIf it were placed now, by profile %s: %s\n", p.Profile, p.sentence())
	for _, f := range p.Flips {
		fmt.Fprintf(b, "  %s\n", &f)
	}
}

// sentence is the comparison, as what follows a colon.
func (p *Placed) sentence() string {
	switch {
	case !p.Fits:
		return fmt.Sprintf("it would not fit on %s.", p.Node)
	case p.Best != "":
		return fmt.Sprintf("%s would score %d, more than %s with %d.", p.Best, p.BestTotal, p.Node, p.Total)
	case p.Next != "":
		return fmt.Sprintf("no node would score more than %s with %d; the next is %s with %d.", p.Node, p.Total, p.Next, p.NextTotal)
	}
	return fmt.Sprintf("it would fit on %s alone.", p.Node)
}
