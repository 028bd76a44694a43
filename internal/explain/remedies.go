package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/remedy"
)

// searches lets one search for remedies run at a time: each may take as long as many calls of kube-scheduler.
type searches chan struct{}

// add adds to the document what would make the waiting pod fit, or how its node compares with others. The error is that of ctx.
func (one searches) add(ctx context.Context, s Source, doc *Document, engines map[string]*engine.Engine, pod *corev1.Pod, only string) error {
	select {
	case one <- struct{}{}:
		defer func() { <-one }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := remedy.Cluster{View: s.View(pod.UID), Ignored: s.ignored()}
	for i := range doc.Now {
		p := &doc.Now[i]
		if p.Unmanaged || p.Error != "" || p.Fit > 0 {
			continue
		}
		var err error
		c.Engine = engines[p.Profile]
		if p.Remedies, err = remedy.Find(ctx, c, pod); err != nil {
			p.Error = "searching for changes with which the pod would fit: " + err.Error()
		}
	}
	if doc.Node == "" {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(engines)) {
		if only != "" && only != path || s.Manages != nil && !s.Manages(path, pod) {
			continue
		}
		c.Engine = engines[path]
		// A pod about which a policy fails now has no rating.
		if placement, err := remedy.Place(ctx, c, pod); err == nil && placement != nil {
			doc.Placed = append(doc.Placed, Placed{path, *placement})
		}
	}
	return nil
}

// remedies writes with which changes the pod would fit.
func (p *Profile) remedies(b *strings.Builder) {
	if p.Error != "" || p.Fit > 0 || p.Nodes+p.excluded() == 0 {
		return
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
	default:
		fmt.Fprintf(b, "no node would score more than %s with %d.\n", p.Node, p.Total)
	}
	for _, f := range p.Flips {
		fmt.Fprintf(b, "  %s\n", &f)
	}
}
