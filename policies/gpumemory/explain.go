package gpumemory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

const (
	maxListed     = 16 // GPUs of a node
	maxListedPods = 3  // of a GPU
)

// Explain implements policy.Explainer.
func (c *cycle) Explain(n *snapshot.Node) []string { return c.wouldGet(n, placement.FirstFree) }

// Explain implements policy.Explainer.
func (r *ranking) Explain(n *snapshot.Node) []string {
	said, _ := r.explain(n)
	return said
}

// explain returns the notes of the strategy, unless the pod already has its GPUs on the node.
func (r *ranking) explain(n *snapshot.Node) (said []string, gpu int) {
	if n != nil && r.policy.usage.Of(n).holders.Has(r.pod) {
		return nil, placement.FirstFree
	}
	return r.Ranking.Explain(n)
}

// Explain implements policy.Explainer.
func (c *rankedCycle) Explain(n *snapshot.Node) []string {
	rated, gpu := c.explain(n)
	if n != nil && !c.Filter(n).Fits() {
		rated = nil // the node is not compared
	}
	return append(c.wouldGet(n, gpu), rated...)
}

// wouldGet describes which GPUs of the node the pod would get, given the preferred one, or what is
// free of them if it fits on none.
func (c *fitting) wouldGet(n *snapshot.Node, preferred int) []string {
	if n == nil || c.request.refused != nil {
		return nil
	}
	b := c.policy.usage.Of(n)
	verdict := c.policy.evaluate(c.request, n, b)
	switch {
	case b.holders.Has(c.pod):
		return []string{"the pod: already has its GPUs"}
	case b.problem != nil || verdict.Reason == wrongModel:
		return nil
	case verdict.Fits():
		return []string{"the pod: would get " + c.policy.listed(b, c.policy.choose(c.request, b, preferred))}
	}
	return []string{"the node: " + c.policy.held(n)}
}

// held describes what is free of each GPU of the node, and which pods hold the rest.
func (p *gpuMemory) held(n *snapshot.Node) string {
	gpus := p.report.Of(n).GPUs
	var text []string
	for i := range gpus {
		if len(text) == maxListed {
			text = append(text, fmt.Sprintf("and %d more", len(gpus)-maxListed))
			break
		}
		d := &gpus[i]
		if !d.Healthy {
			text = append(text, fmt.Sprintf("GPU %d (unhealthy)", d.Index))
			continue
		}
		text = append(text, fmt.Sprintf("GPU %d (free: %d of %d %s%s)", d.Index, d.Free(), d.Capacity, p.config.Unit, largest(d.Pods)))
	}
	return strings.Join(text, ", ")
}

// largest names the pods that hold most of a GPU.
func largest(pods []GPUPod) string {
	sorted := slices.SortedStableFunc(slices.Values(pods), func(a, b GPUPod) int { return cmp.Compare(b.Amount, a.Amount) })
	var text strings.Builder
	for i, pod := range sorted {
		if i == maxListedPods {
			fmt.Fprintf(&text, ", and %d more pods", len(sorted)-maxListedPods)
			break
		}
		text.WriteString([]string{"; ", ", "}[min(i, 1)])
		if pod.Name == "" {
			fmt.Fprintf(&text, "pod %s: %d", pod.UID, pod.Amount)
		} else {
			fmt.Fprintf(&text, "%s/%s: %d", pod.Namespace, pod.Name, pod.Amount)
		}
		if until := pod.TerminatingUntil; until != nil {
			text.WriteString(", terminating until " + until.UTC().Format(time.RFC3339))
		}
	}
	return text.String()
}

// listed describes what is free of the GPUs with these indices.
func (p *gpuMemory) listed(b *usage, indexes []int) string {
	var text []string
	for _, i := range indexes {
		if len(text) == maxListed {
			text = append(text, fmt.Sprintf("and %d more", len(indexes)-maxListed))
			break
		}
		c := b.gpus[i]
		if !c.healthy {
			text = append(text, fmt.Sprintf("GPU %d (unhealthy)", i))
			continue
		}
		text = append(text, fmt.Sprintf("GPU %d (free: %d of %d %s)", i, c.free(), c.capacity, p.config.Unit))
	}
	return strings.Join(text, ", ")
}
