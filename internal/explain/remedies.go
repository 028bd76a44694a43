package explain

import (
	"cmp"
	"fmt"
	"strings"
)

// remedies writes with which changes the pod would fit.
func (p *Profile) remedies(b *strings.Builder) {
	if p.Error != "" || p.Fit > 0 && len(p.Remedies) == 0 || p.Nodes+p.excluded() == 0 {
		return
	}
	if p.Fit > 0 {
		b.WriteString("  kube-scheduler cannot allocate its ResourceClaims on any node.\n")
	}
	if len(p.Remedies) == 0 {
		b.WriteString("  It would not fit with any single change that Outboard has tried.\n")
		return
	}
	b.WriteString("  It would fit\n")
	for i := range p.Remedies {
		fmt.Fprintf(b, "      %s\n", &p.Remedies[i])
	}
}

// change returns the smallest change with which the pod would fit, or why there is none; "" if no profile was asked.
func (d *Document) change() (text string) {
	for i := range d.Now {
		p := &d.Now[i]
		switch {
		case p.Unmanaged:
		case p.Fit > 0 && len(p.Remedies) == 0:
			return "now"
		case len(p.Remedies) > 0:
			text = cmp.Or(text, p.Remedies[0].String())
		}
	}
	for i := range d.Now {
		text = cmp.Or(text, d.Now[i].Error)
	}
	if text == "" && len(d.Now) > 0 {
		return "not by a single change"
	}
	return text
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
