package engine

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// PreemptRequest is the input of Preempt.
type PreemptRequest struct {
	Request    // its Nodes are not read
	Candidates []Candidate
	// Enough, if not nil, returns true when the response is due: no further candidate is evaluated
	// once one with victims is found, and sets of victims are not made smaller. The engine calls it
	// repeatedly. Once true, it stays true.
	Enough func() bool
}

// Candidate is a node on which kube-scheduler proposes to evict pods.
type Candidate struct {
	// Node is nil if it is unknown.
	Node *snapshot.Node
	// Name is the node's name, even if Node is nil.
	Name string
	// Victims are the pods that kube-scheduler proposes to evict, the most important first. All of
	// them must be evicted, possibly for reasons other than our policies. There are none if the pod
	// fits as far as kube-scheduler knows, and an extender rejects it.
	Victims []types.UID
	// PDBViolations is how many of the victims violate a PodDisruptionBudget.
	PDBViolations int64
	// Dropped is why the caller drops the candidate; "" if it does not. Preempt only records it.
	Dropped string
}

// Preempt decides for each candidate whether the pod passes every policy's Filter after evictions
// there, and returns the candidates to keep.
//
// A candidate that passes without its victims is kept unchanged, also if it has none: another
// extender may need some. Otherwise Preempt adds pods of lower priority to the victims; see the
// package documentation for the rules. It drops a candidate on which evicting all of them is not
// enough. It never removes victims. Pods with a deletionTimestamp count as gone, and are never
// added. Nominated pods count as in [Engine.Filter] once the victims are gone.
//
// Preempt does not change the candidates passed to it. The error is as for [Engine.Filter];
// result.Record is always set, and nothing else of result is.
func (e *Engine) Preempt(ctx context.Context, req PreemptRequest, result *Result) ([]Candidate, error) {
	var kept []Candidate
	c, _ := e.Begin(ctx, req.Pod, req.View) // decide returns the error
	err := c.decide(ctx, nil, nil, result, func() error {
		p := preemption{
			Cycle:  c,
			tries:  min(maxTries, maxTriesInAll/max(len(req.Candidates), 1)),
			enough: func() bool { return req.Enough != nil && req.Enough() },
			ended:  func() error { return context.Cause(ctx) },
		}
		var searches []victimSearch
		err := c.whole(func() (err error) {
			searches, err = p.evaluate(req.Candidates)
			return err
		})
		if err != nil {
			return err
		}
		kept = make([]Candidate, 0, len(searches))
		for _, s := range searches {
			c, noted := s.result()
			result.Record.Preemptions = append(result.Record.Preemptions, noted)
			if noted.Dropped == "" {
				kept = append(kept, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// preemption is what the candidates of one request share.
type preemption struct {
	*Cycle
	tries  int // for each candidate
	enough func() bool
	ended  func() error // why ctx has ended; nil if it has not
	failed error        // of a policy
}

// evaluate finds the pods to evict on each candidate: first a set of victims for each, then smaller
// sets. It starts with the candidates that kube-scheduler prefers, because it may run out of time.
func (p *preemption) evaluate(candidates []Candidate) ([]victimSearch, error) {
	searches, order := make([]victimSearch, len(candidates)), byPreference(candidates)
	found := false
	for _, i := range order {
		s := &searches[i]
		*s = victimSearch{preemption: p, candidate: candidates[i]}
		switch {
		case s.candidate.Dropped != "":
		case found && p.enough():
			s.candidate.Dropped = "was not evaluated in time"
		default:
			s.begin()
		}
		if err := p.stopped(); err != nil {
			return nil, err // the last search may be incomplete
		}
		// kube-scheduler drops a candidate for which no extender names victims.
		found = found || s.candidate.Dropped == "" && len(s.candidate.Victims)+len(s.chosen) > 0
	}
	for _, i := range order {
		if p.enough() {
			break
		}
		searches[i].shrink()
		if err := p.stopped(); err != nil {
			return nil, err
		}
	}
	return searches, nil
}

// stopped returns why the request ends without a result: a policy has failed, or ctx has ended.
func (p *preemption) stopped() error { return cmp.Or(p.failed, p.ended()) }

// fits reports whether the pod fits on the node, which may be a changed copy, as in [Cycle.Filter].
// Once the request is stopped, it does not.
func (p *preemption) fits(n *snapshot.Node) (fits bool) {
	if p.stopped() == nil {
		fits, p.failed = p.passesBeside(n)
	}
	return fits
}
