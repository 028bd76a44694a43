package gpumemory

import (
	"fmt"
	"strings"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/claims"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many GPUs of a node are listed.
const maxListed = 16

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
func (c *rankingCycle) Explain(n *snapshot.Node) []string {
	rated, gpu := c.explain(n)
	if n != nil && !c.Filter(n).Fits() {
		rated = nil // the node is not compared
	}
	return append(c.wouldGet(n, gpu), rated...)
}

// wouldGet describes which GPUs of the node the pod would get, given the preferred one, or what is
// free of them if it fits on none.
func (c *filter) wouldGet(n *snapshot.Node, preferred int) []string {
	if n == nil || c.request.refused != nil {
		return nil
	}
	b := c.policy.usage.Of(n)
	verdict := c.policy.evaluate(c.request, n, b)
	switch {
	case b.holders.Has(c.pod):
		return []string{"the pod: already has its GPUs"}
	case b.problem != nil:
		if hw := c.policy.hardware.Of(n); hw.reported != "" {
			return []string{"the node: " + hw.reported}
		}
		return nil
	case verdict.Reason == wrongModel || verdict.Reason == mixedModels:
		config := &c.policy.config
		return []string{
			fmt.Sprintf("the node: has %q (label %s)", n.Object.Labels[config.ModelLabel], config.ModelLabel),
			fmt.Sprintf("the pod: allows %.200q (annotation %s)", strings.Join(c.request.models, ","), config.ModelAnnotation),
		}
	case verdict.Fits():
		return []string{"the pod: would get " + c.policy.listed(b, c.policy.choose(c.request, b, preferred))}
	}
	return []string{"the node: " + c.policy.held(n)}
}

// held describes what is free of each GPU of the node, and which pods hold the rest.
func (p *gpuMemory) held(n *snapshot.Node) string {
	gpus := p.report.Of(n).GPUs
	texts := make([]string, len(gpus))
	for i := range gpus {
		d := &gpus[i]
		holders := ""
		if held := d.held(); len(held) > 0 {
			holders = "; held by " + claims.List(held)
		}
		texts[i] = p.describe(d.Index, d.Free(), d.Capacity, d.Healthy, holders)
	}
	return policy.Join(texts, maxListed)
}

// held returns what each pod holds of the GPU.
func (d *GPU) held() []claims.Held {
	held := make([]claims.Held, len(d.Pods))
	for i, pod := range d.Pods {
		held[i] = claims.Held{Holder: pod.Holder, Amount: pod.Amount}
	}
	return held
}

// listed describes what is free of the GPUs with these indices.
func (p *gpuMemory) listed(b *usage, indexes []int) string {
	texts := make([]string, len(indexes))
	for i, index := range indexes {
		c := b.gpus[index]
		texts[i] = p.describe(index, c.free(), c.capacity, c.healthy, "")
	}
	return policy.Join(texts, maxListed)
}

func (p *gpuMemory) describe(index int, free, capacity int64, healthy bool, more string) string {
	if !healthy {
		return fmt.Sprintf("GPU %d (unhealthy)", index)
	}
	return fmt.Sprintf("GPU %d (free: %d of %d %s%s)", index, free, capacity, p.config.Unit, more)
}
