package schedplugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// stateKey is where the framework keeps the cycle.
const stateKey fwk.StateKey = Name

// cycle is one attempt to schedule a pod.
type cycle struct {
	plugin  *plugin
	attempt *engine.Attempt
	view    *snapshot.View
	// scores are those of the nodes that are left, by name, after PreScore.
	scores map[string]int64
	// supposed says that the framework supposes other pods on nodes: those that are nominated, or that preemption leaves.
	supposed bool
	// preempts says that it looks for pods to evict.
	preempts bool
}

// Clone implements fwk.StateData: the framework is about to suppose other pods on a node.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.supposed = true
	return &clone
}

// cycleOf returns the cycle of the pod.
func cycleOf(state fwk.CycleState) (*cycle, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fmt.Errorf("the policies were not prepared: %w", err)
	}
	c, ok := data.(*cycle)
	if !ok {
		return nil, fmt.Errorf("the policies were not prepared: found a %T", data)
	}
	return c, nil
}

// PreFilter implements fwk.PreFilterPlugin. It prepares the policies.
func (p *plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c, err := p.begin(ctx, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if c == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, c)
	if !c.attempt.Filters() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod implements fwk.PreFilterExtensions. The NodeInfo that Filter is given has the pod.
func (p *plugin) AddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// RemovePod implements fwk.PreFilterExtensions. The NodeInfo that Filter is given does not have the pod.
func (p *plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	c.preempts = true
	return nil
}

// Filter implements fwk.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := p.nodes.of(c.view, info)
	judge := c.attempt.Filter
	if c.supposed {
		judge = c.attempt.Judge
	}
	verdict, err := judge(node)
	switch {
	case err != nil:
		return fwk.AsStatus(err)
	case verdict.Fits():
		return nil
	case verdict.Unresolvable:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, verdict.Reason.Text)
	default:
		return fwk.NewStatus(fwk.Unschedulable, verdict.Reason.Text)
	}
}

// PreScore implements fwk.PreScorePlugin. It computes the scores of all nodes that are left.
func (p *plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil || !c.attempt.Scores() {
		return fwk.NewStatus(fwk.Skip) // no policy concerns the pod, or none scores
	}
	nodes := make([]*snapshot.Node, len(infos))
	for i, info := range infos {
		nodes[i] = p.nodes.of(c.view, info)
	}
	var result engine.Result
	if err := c.attempt.Score(ctx, nodes, &result); err != nil {
		return fwk.AsStatus(err)
	}
	engine.ScaleScores(result.Totals, result.Record.MaxTotal, fwk.MaxScore)
	c.scores = make(map[string]int64, len(nodes))
	for i, n := range nodes {
		c.scores[n.Name] = result.Totals[i]
	}
	return nil
}

// Score implements fwk.ScorePlugin.
func (p *plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, err := cycleOf(state)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return c.scores[info.Node().Name], nil
}

// ScoreExtensions implements fwk.ScorePlugin. The scores are in the framework's range already.
func (p *plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
