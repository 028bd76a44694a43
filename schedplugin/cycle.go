package schedplugin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// stateKey is where the framework keeps the cycle.
const stateKey fwk.StateKey = Name

// attempt is one attempt to schedule a pod.
type attempt struct {
	*engine.Cycle
	plugin  *plugin
	profile string
	// shortlist is how many nodes PreFilter names at most; 0: it names none.
	shortlist int
	engine    *engine.Engine
	pod       *corev1.Pod // trimmed
	view      *snapshot.View
	infos     *infoTable
	started   time.Time
	// others are the scores of the nodes that are not in infos; nil before PreScore.
	others   map[string]int64
	recorded atomic.Bool // whether the verdicts of Filter are recorded
	// Between Reserve and Unreserve or PostBind, which one goroutine after the other calls, forget
	// ends that the pod counts on its node. allocations says whether policies allocate resources to
	// it.
	forget      func()
	allocations bool
	// named is the decision by which PreFilter has named nodes; nil: the framework evaluates all
	// nodes.
	named *decision.Record
	// probing is true while PreFilter runs the filters of all plugins: Filter records nothing.
	probing bool
}

// cycle is an attempt in a state of the framework. The framework may assume other pods on a node
// than run there.
type cycle struct {
	*attempt
	// dryRun is true for a copy of the state: its NodeInfo has pods that are nominated to the node,
	// or lacks pods that preemption would evict.
	dryRun bool
}

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

// PreFilter implements fwk.PreFilterPlugin. It prepares the policies, and names the best nodes if
// the profile has a shortlist.
func (p *plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.finishLatest()
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.activate(ctx, waiting)
	a, err := p.begin(ctx, pod)
	if err != nil {
		p.recordError(pod, err)
		return nil, fwk.AsStatus(err)
	}
	if a == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	a.infos = p.tableOf(a.view, infos)
	a.TakeNodeCache()
	c := &cycle{attempt: a}
	state.Write(stateKey, c)
	p.latest.Store(c)
	if a.shortlist > 0 {
		names, outcome := p.nameShortlist(ctx, state, a, pod)
		p.naming.Attempt(a.profile, outcome)
		if outcome == callmetrics.Named {
			return &fwk.PreFilterResult{NodeNames: names}, nil // it is ignored of a plugin that is to be skipped
		}
	}
	if !a.Filters() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod implements fwk.PreFilterExtensions. The NodeInfo in the call of Filter has the pod.
func (p *plugin) AddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// RemovePod implements fwk.PreFilterExtensions. The NodeInfo in the call of Filter does not have
// the pod. A policy counts the pod's share of a pool as free, because the View has the pod on the
// node and the evaluated node does not.
func (p *plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	c.fails() // the framework looks for pods to evict
	return nil
}

// tableOf returns the table of the NodeInfos of the snapshot.
func (p *plugin) tableOf(view *snapshot.View, infos []fwk.NodeInfo) *infoTable {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.infos = p.infos.with(view, infos)
	return p.infos
}

func (p *plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	slot := c.infos.slot(info)
	evaluate := c.FilterNode
	if c.probing {
		evaluate = c.Cycle.Verdict
	} else if c.dryRun {
		evaluate = c.evaluateSupposed
	} else if slot != nil && slot.same && slot.isLatest(c.view) && c.Fits(int(slot.row), slot.version) {
		return nil
	}
	verdict, err := evaluate(nodeOf(c.engine, c.view, slot, info))
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
func (p *plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if c, err := cycleOf(state); err == nil {
		if c.named != nil {
			return nil, p.retryWithAll(ctx, c, pod)
		}
		c.fails()
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// PreScore implements fwk.PreScorePlugin. It computes the scores of all nodes that fit.
func (p *plugin) PreScore(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	c, err := cycleOf(state)
	if err != nil {
		return fwk.NewStatus(fwk.Skip) // no policy applies to the pod
	}
	c.succeeds(len(infos))
	if !c.Scores() {
		return fwk.NewStatus(fwk.Skip)
	}
	differ, err := p.score(ctx, c.attempt, infos)
	switch {
	case err != nil:
		return fwk.AsStatus(err)
	case !differ:
		return fwk.NewStatus(fwk.Skip) // equal scores change nothing
	}
	return nil
}

// score sets the scores of the attempt, and reports whether they differ.
func (p *plugin) score(ctx context.Context, a *attempt, infos []fwk.NodeInfo) (differ bool, err error) {
	started := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	slots, nodes := make([]*infoSlot, len(infos)), make([]*snapshot.Node, len(infos)) // nil: not in the table
	rows := make([]int32, len(infos))                                                 // -1: not the node of the View
	for i, info := range infos {
		slots[i], rows[i] = a.infos.slot(info), -1
		nodes[i] = nodeOf(a.engine, a.view, slots[i], info)
		if slot := slots[i]; slot != nil && slot.same && slot.isLatest(a.view) {
			rows[i] = slot.row
		}
	}
	err = a.Cycle.Score(ctx, nodes, rows, &p.result)
	p.recordScores(a, started, err)
	if err != nil {
		return false, err
	}
	engine.ScaleScores(p.result.Totals, p.result.Record.MaxTotal, fwk.MaxScore)
	a.others = map[string]int64{}
	for i, info := range infos {
		score := p.result.Totals[i]
		differ = differ || score != p.result.Totals[0]
		if slots[i] != nil {
			slots[i].score = int16(score)
		} else {
			a.others[info.Node().Name] = score
		}
	}
	return differ, nil
}

func (p *plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, err := cycleOf(state)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	if c.others == nil {
		return 0, nil // the profile of kube-scheduler does not call PreScore
	}
	if slot := c.infos.slot(info); slot != nil {
		return int64(slot.score), nil
	}
	return c.others[info.Node().Name], nil
}

// ScoreExtensions implements fwk.ScorePlugin. The scores are in the framework's range already.
func (p *plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
