package gpumemory

import (
	"fmt"
	"strings"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/snapshot"
)

// maxListed is how many GPUs of a node are listed.
const maxListed = 16

func (c *cycle) Explain(n *snapshot.Node) []string { return c.wouldGet(n, placement.FirstFree) }

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

func (c *rankingCycle) Explain(n *snapshot.Node) []string {
	rated, gpu := c.explain(n)
	if n != nil && !c.Filter(n).Fits() {
		rated = nil // the node is not compared
	}
	return append(c.wouldGet(n, gpu), rated...)
}

// wouldGet describes which GPUs of the node the pod would get, given the preferred one, or what is
// free of them if it fits on none.
func (c *cycle) wouldGet(n *snapshot.Node, preferred int) []string {
	if n == nil || c.request.refused != nil {
		return nil
	}
	u := c.policy.usage.Of(n)
	verdict := c.policy.evaluate(c.request, n, u)
	config := &c.policy.config
	switch {
	case u.holders.Has(c.pod):
		return []string{"the pod: already has its GPUs"}
	case u.problem != nil && u.reported != "":
		return []string{"the node: " + u.reported}
	case u.problem != nil:
		return nil
	case verdict.Reason == wrongModel || verdict.Reason == mixedModels:
		return []string{
			fmt.Sprintf("the node: has %q (label %s)", n.Object.Labels[config.ModelLabel], config.ModelLabel),
			fmt.Sprintf("the pod: allows %.200q (annotation %s)", strings.Join(c.request.models, ","), config.ModelAnnotation),
		}
	case verdict.Fits():
		var would []GPU
		for _, i := range c.policy.choose(c.request, u, preferred) {
			would = append(would, u.gpus[i])
		}
		return []string{"the pod: would get " + config.describe(would)}
	}
	return []string{"the node: " + config.describe(c.policy.gpusOf(n))}
}

// describe says what is free of each GPU, and which of their Pods hold the rest.
func (c *Config) describe(gpus []GPU) string {
	texts := make([]string, len(gpus))
	for i := range gpus {
		d, holders := &gpus[i], ""
		var held []allocations.Held
		for _, pod := range d.Pods {
			held = append(held, allocations.Held{Holder: pod.Holder, Amount: pod.Amount})
		}
		if len(held) > 0 {
			holders = "; held by " + allocations.List(held)
		}
		texts[i] = fmt.Sprintf("GPU %d (free: %d of %d %s%s)", d.Index, d.Free(), d.Capacity, c.Unit, holders)
		if !d.Healthy {
			texts[i] = fmt.Sprintf("GPU %d (unhealthy)", d.Index)
		}
	}
	return policy.Join(texts, maxListed)
}
