package explain

import (
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

// text writes how the node of the pod compares with the others now.
func (p *Placed) text(b *strings.Builder) {
	fmt.Fprintf(b, "\nIf it were placed now, by profile %s: ", p.Profile)
	switch {
	case !p.Fits:
		fmt.Fprintf(b, "it would not fit on %s.\n", p.Node)
	case p.Best != "":
		fmt.Fprintf(b, "%s would score %d, more than %s with %d.\n", p.Best, p.BestTotal, p.Node, p.Total)
	case p.Next != "":
		fmt.Fprintf(b, "no node would score more than %s with %d; the next is %s with %d.\n", p.Node, p.Total, p.Next, p.NextTotal)
	default:
		fmt.Fprintf(b, "it would fit on %s alone.\n", p.Node)
	}
	for _, f := range p.Flips {
		fmt.Fprintf(b, "  %s\n", &f)
	}
}
