package schedplugin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

// stateKey is where the framework keeps the cycle.
const stateKey fwk.StateKey = Name

// attempt is one attempt to schedule a pod.
type attempt struct {
	*engine.Attempt
	plugin  *plugin
	profile string
	engine  *engine.Engine
	pod     *corev1.Pod // trimmed
	view    *snapshot.View
	started time.Time
	// scores has the scores of the nodes that fit, by name, after PreScore.
	scores   map[string]int64
	recorded atomic.Bool // whether the verdicts of Filter are recorded
}

// cycle is an attempt in a state of the framework. The framework may assume other pods on a node than run there.
type cycle struct {
	*attempt
	// supposed is true for a copy of the state: with pods that are nominated to a node, or without pods that preemption would evict.
	supposed bool
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData { return &cycle{c.attempt, true} }

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
func (p *plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.finishLatest()
	p.endShown()
	a, err := p.begin(ctx, pod)
	if err != nil {
		p.recordError(pod, err)
		return nil, fwk.AsStatus(err)
	}
	if a == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.nodes.learn(a.view, infos)
	p.setLatest(a)
	state.Write(stateKey, &cycle{attempt: a})
	if !a.Filters() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod implements fwk.PreFilterExtensions. The NodeInfo in the call of Filter has the pod.
func (p *plugin) AddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// RemovePod implements fwk.PreFilterExtensions. The NodeInfo in the call of Filter does not have the pod. A policy counts the pod's
// share of a pool as free, because the View has the pod on the node and the evaluated node does not.
func (p *plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	c.fails() // the framework looks for pods to evict
	return nil
}

// Filter implements fwk.FilterPlugin.
func (p *plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := p.nodes.of(c.engine, c.view, info)
	evaluate := c.Filter
	if c.supposed {
		evaluate = c.evaluateSupposed
	}
	verdict, err := evaluate(node)
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

// PostFilter implements fwk.PostFilterPlugin. It records that no node fits, and evicts no pods.
func (p *plugin) PostFilter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if c, err := cycleOf(state); err == nil {
		c.fails()
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// PreScore implements fwk.PreScorePlugin. It computes the scores of all nodes that fit.
func (p *plugin) PreScore(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.NewStatus(fwk.Skip) // no policy concerns the pod
	}
	c.succeeds(len(infos))
	if !c.Scores() {
		return fwk.NewStatus(fwk.Skip)
	}
	nodes := make([]*snapshot.Node, len(infos))
	for i, info := range infos {
		nodes[i] = p.nodes.of(c.engine, c.view, info)
	}
	if err := p.score(ctx, c.attempt, nodes); err != nil {
		return fwk.AsStatus(err)
	}
	return nil
}

// score sets the scores of the attempt.
func (p *plugin) score(ctx context.Context, a *attempt, nodes []*snapshot.Node) error {
	started := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := a.Attempt.Score(ctx, nodes, &p.result)
	p.recordScores(a, started, err)
	if err != nil {
		return err
	}
	engine.ScaleScores(p.result.Totals, p.result.Record.MaxTotal, fwk.MaxScore)
	if a.scores = p.scores; a.scores == nil {
		a.scores = make(map[string]int64, len(nodes))
		p.scores = a.scores
	}
	clear(a.scores)
	for i, n := range nodes {
		a.scores[n.Name] = p.result.Totals[i]
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
