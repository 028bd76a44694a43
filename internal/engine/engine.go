package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// NodeUnknown is the reason for nodes that the request names and the view does not have, usually
// because they were created a moment ago. It is resolvable: the next attempt may find them.
var NodeUnknown = &policy.Reason{Code: "NodeUnknown", Text: "node is not known to Outboard yet"}

// UnknownNodeError is NodeUnknown as the error of a call about one node.
func UnknownNodeError(name string) error {
	return fmt.Errorf("node %q is not known to Outboard yet", name)
}

// PodTooLarge is the reason for every node if the pod, which is on no node yet, takes more than
// snapshot.MaxPod bytes. No policy is called.
var PodTooLarge = &policy.Reason{
	Code: "PodTooLarge", Text: "the pod takes more than 64 KiB of memory, the limit for one pod", Unit: "bytes",
}

// outboard is the first member of each Engine: Outboard, whose verdicts are those of no policy. It
// prepares nothing.
const outboard = 0

// WeightedPolicy is one policy of a profile.
type WeightedPolicy struct {
	// Name identifies the policy in records, errors and metrics. It is unique in
	// its Engine.
	Name   string
	Policy policy.Policy
	// Weight multiplies the policy's scores, 0..100. With 0 the policy only filters, and the engine
	// does not compute its scores.
	Weight        int64
	FailurePolicy policy.FailurePolicy
}

// Options configure an Engine. Package config checks that names are unique, and numbers are within
// their limits.
type Options struct {
	Policies []WeightedPolicy // so few that their totals are far from the limits of an int32
	// Shortlist limits the nodes that Filter keeps to the best ones, at most this many; 0 keeps all
	// that fit.
	Shortlist int
	// Bypass lets all nodes pass, with equal scores, and evicts what kube-scheduler proposes: no
	// policy is asked, except for the allocations of a pod that is bound.
	Bypass bool
	// Clock measures the time of policies for Record.Policies; nil measures nothing. Decisions do
	// not depend on it.
	Clock func() time.Time
}

// Engine runs the policies of one profile. It is safe for concurrent use. What it keeps from one
// Cycle to the next saves work and changes no decision.
type Engine struct {
	members   []WeightedPolicy
	shortlist int
	bypass    bool
	clock     func() time.Time
	maxTotal  int64
	reserves  bool // a policy allocates something
	// readsDevices is whether a policy reads what Dynamic Resource Allocation allocates.
	readsDevices bool

	caches    nodeCaches
	zones     atomic.Pointer[zones]       // of the latest View of Best
	holders   holders                     // empty unless a policy allocates something
	nominated atomic.Pointer[nominations] // of the latest View that has any
}

// New returns an Engine, or an error if a policy or its name is missing.
func New(o Options) (*Engine, error) {
	e := &Engine{
		members:   append([]WeightedPolicy{outboard: {Name: "Outboard"}}, o.Policies...),
		shortlist: o.Shortlist, bypass: o.Bypass, clock: o.Clock,
	}
	if o.Bypass {
		e.shortlist = 0
	}
	for _, m := range o.Policies {
		if m.Name == "" || m.Policy == nil {
			return nil, fmt.Errorf("policy %q: must have a name and a policy", m.Name)
		}
		_, reserves := m.Policy.(policy.Reserver)
		e.maxTotal, e.reserves = e.maxTotal+m.Weight*policy.MaxScore, e.reserves || reserves
		if reader, ok := m.Policy.(policy.InputReader); ok {
			e.readsDevices = e.readsDevices || !o.Bypass && reader.Inputs().Devices
		}
	}
	return e, nil
}

// ReadsDevices reports whether a policy reads what Dynamic Resource Allocation allocates: see
// [policy.Inputs].
func (e *Engine) ReadsDevices() bool { return e.readsDevices }

// Policies returns a copy of the policies, for an Engine that differs in some of them; none with
// Bypass.
func (e *Engine) Policies() []WeightedPolicy {
	if e.bypass {
		return nil
	}
	return slices.Clone(e.members[1:])
}

// Precompute calls every [policy.Precomputer] of the profile. It changes no decision. The error
// joins a *PolicyError for each policy that panics.
func (e *Engine) Precompute(view *snapshot.View) error {
	var errs []error
	for _, m := range e.members {
		if p, ok := m.Policy.(policy.Precomputer); ok {
			errs = append(errs, guard(m.Name, func() error { p.Precompute(view); return nil }))
		}
	}
	return errors.Join(errs...)
}

// MaxTotal is the largest total that a node can have for any pod: 100 × the sum of the weights, and
// 0 if no policy has a weight. The largest total for one pod may be less: see Record.MaxTotal in
// [Result].
func (e *Engine) MaxTotal() int64 { return e.maxTotal }
