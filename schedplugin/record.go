package schedplugin

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// evaluateSupposed evaluates a node with the pods that the framework assumes. Before the attempt
// fails, these include the pods that are nominated to the node: a rejection is recorded, and after
// a pass the framework calls again without them.
func (a *attempt) evaluateSupposed(n *snapshot.Node) (policy.Verdict, error) {
	verdict, err := a.Cycle.Verdict(n)
	if err == nil && !verdict.Fits() && !a.recorded.Load() {
		return a.FilterNode(n)
	}
	return verdict, err
}

// finishLatest ends the latest attempt, and records it if it ended without PreScore or PostFilter:
// the framework gave up before it looked for pods to evict.
func (p *plugin) finishLatest() {
	if last := p.latest.Swap(nil); last != nil {
		last.ReturnNodeCache()
		last.fails()
	}
}

// succeeds records the number of nodes that fit.
func (a *attempt) succeeds(fit int) {
	if a.recorded.Swap(true) {
		return
	}
	a.recordFilter(fit)
	if r := a.plugin.service.Requeuer; r != nil {
		r.Observer(a.profile, a.engine)(engine.Request{Pod: a.pod, View: a.view}, true, nil, nil)
	}
}

// fails records that no node fits, so that the pod is requeued when it fits on a node that a policy
// has rejected.
func (a *attempt) fails() {
	if a.recorded.Swap(true) {
		return
	}
	if a.named != nil { // no policy has rejected the pod
		a.recordFilter(0)
		return
	}
	rejected := a.Rejected()
	record := a.recordFilter(0)
	var why *decision.Rejection
	if len(record.Rejections) > 0 {
		why = &record.Rejections[0]
	}
	if r := a.plugin.service.Requeuer; r != nil {
		r.Observer(a.profile, a.engine)(engine.Request{Pod: a.pod, View: a.view, Nodes: rejected}, false, nil, why)
	}
}

// recordFilter records the decision about all nodes: that of PreFilter if it has named nodes.
func (a *attempt) recordFilter(fit int) *decision.Record {
	r := a.named
	if r == nil {
		r = a.Record(fit)
	}
	a.plugin.add(a.profile, decision.Filter, a.started, r, nil, nil)
	return r
}

// recordScores records the scores in p.result. mu must be held.
func (p *plugin) recordScores(a *attempt, started time.Time, err error) {
	if r := p.result.Record; len(r.Top) > 0 {
		p.result.Scores = p.add(a.profile, decision.Prioritize, started, r, p.result.Scores, err)
	} else {
		p.add(a.profile, decision.Prioritize, started, r, nil, err)
	}
}

// recordError records that the policies could not be prepared.
func (p *plugin) recordError(pod *corev1.Pod, err error) {
	profile, _, failed := p.profile()
	if failed == nil {
		p.add(profile.Path, decision.Filter, time.Now(), &decision.Record{Pod: decision.PodOf(pod)}, nil, err)
	}
}

// add completes the record, keeps it with the scores, which may be nil, and counts it. It returns a
// slice for the scores of the next attempt.
func (p *process) add(profile string, verb decision.Verb, started time.Time, r *decision.Record, scores *decision.Scores, err error) *decision.Scores {
	r.Time, r.Duration, r.Verb, r.Profile = started, time.Since(started), verb, profile
	if err != nil {
		r.Error = err.Error()
	}
	p.metrics.Observe(profile, verb, r.Duration, r, err)
	return p.service.Log.Add(r, scores)
}
