// Package utilization is the policy Utilization: what nodes really use. README.md in this
// folder is its documentation.
package utilization

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// maxFraction bounds fractions of a node, so that a signal of nonsense is a large number and
// nothing worse.
const maxFraction = 1e6

// rounding absorbs what arithmetic adds to a fraction: 0.3+0.1 is not more than 0.4.
const rounding = 1e-9

// utilization is the policy.
type utilization struct {
	config    Config
	capacity  *snapshot.ObjectFact[amounts]
	boundPods *snapshot.Fact[boundPods]
}

func newUtilization(config Config) *utilization {
	p := &utilization{
		config: config,
		capacity: snapshot.NewObjectFact(func(n *corev1.Node) amounts {
			return amounts{cpu: amount(n.Status.Allocatable, cpu), memory: amount(n.Status.Allocatable, memory)}
		}),
	}
	p.boundPods = snapshot.NewFact(boundPodsOf)
	return p
}

func (p *utilization) Inputs() policy.Inputs { return p.config.Inputs() }

func (c *Config) Inputs() policy.Inputs {
	var signals []policy.Signal
	for k, use := range c.uses() {
		if use == nil {
			continue
		}
		signals = append(signals, policy.Signal{Field: string(names[k]) + ".signal", Name: use.Signal, About: policy.AboutNodes})
	}
	return policy.Inputs{Signals: signals, ScoreOnly: !c.filters()}
}

// filters reports whether the policy can reject a node.
func (c *Config) filters() bool {
	for _, use := range c.uses() {
		if use != nil && use.Max != nil {
			return true
		}
	}
	return c.WhenStale == policy.Reject
}

// uses returns the Use of each kind, or nil.
func (c *Config) uses() [kinds]*Use {
	return [kinds]*Use{cpu: c.CPU, memory: c.Memory}
}

func (p *utilization) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c := &cycle{policy: p, pod: pod, needs: request(pod)}
	for k, use := range p.config.uses() {
		if use != nil {
			c.readings = append(c.readings, reading{kind: kind(k), Use: use, use: view.Signal(use.Signal)})
		}
	}
	if p.config.filters() {
		return filtering{c}, nil
	}
	return c, nil
}

// filtering is a cycle that can reject nodes.
type filtering struct{ *cycle }

// cycle is the policy prepared for one pod.
type cycle struct {
	policy   *utilization
	pod      *corev1.Pod
	needs    amounts // what the pod will use
	readings []reading
}

// reading is how to read what nodes use of a resource.
type reading struct {
	kind
	*Use
	use *snapshot.Signal
}

// load is what is known about a resource of a node, in fractions of what it has.
type load struct {
	capacity      float64 // in cores or bytes
	measured      float64
	at            time.Time
	unmeasured    int     // pods that are not, or in part, in the measurement
	unmeasuredUse float64 // what they will use in addition to the measurement
	pod           float64 // what the pod to place will use
}

// total is what is used when the pod runs, too.
func (l *load) total() float64 { return l.measured + l.unmeasuredUse + l.pod }

// score is how good the node is for the pod, 0..100. The resource with the lower score counts.
func (l *load) score() float64 { return 100 * (1 - min(l.total(), 1)) }

// load returns what is known; ok is false unless the signal about the resource is
// current and the node has some of it.
func (c *cycle) load(r *reading, n *snapshot.Node) (l load, ok bool) {
	use, capacity := r.use.Of(n), c.policy.capacity.Of(n)[r.kind]
	if !use.Current() || capacity <= 0 {
		return load{}, false
	}
	l = load{capacity: capacity, at: use.At, measured: r.fraction(use.Number, capacity)}
	bound := c.policy.boundPods.Of(n)
	uses, pods := bound.unmeasured(r.kind, use.At.Add(-c.policy.config.MetricDelay.Duration), r.Window.Duration)
	l.unmeasured, l.unmeasuredUse = pods, min(uses/capacity, maxFraction)
	if !c.isOn(n) {
		l.pod = min(c.needs[r.kind]/capacity, maxFraction)
	}
	return l, true
}

// isOn reports whether the pod is on the node, where it counts already. Only explanations of a pod
// that is on its node need this.
func (c *cycle) isOn(n *snapshot.Node) bool {
	if c.pod.Spec.NodeName == "" {
		return false
	}
	at, found := slices.BinarySearchFunc(n.Pods, c.pod, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found && n.Pods[at].UID == c.pod.UID
}

// fraction is a signal's number as a fraction of the capacity, 0..maxFraction.
func (r *reading) fraction(number, capacity float64) float64 {
	switch r.Unit {
	case Percent:
		number /= 100
	case Absolute:
		number /= capacity
	}
	return max(0, min(number, maxFraction))
}

// Signature implements policy.Signature: what the pod will use, and the values of the signals. The
// rest is the node's. Which pod asks matters only on the node where the pod is.
func (c *cycle) Signature() string {
	var text []byte
	for _, n := range c.needs {
		text = binary.AppendUvarint(text, math.Float64bits(n))
	}
	for i := range c.readings {
		text = binary.AppendUvarint(text, c.readings[i].use.Version())
	}
	return string(text)
}

func (c filtering) Filter(n *snapshot.Node) policy.Verdict {
	for i := range c.readings {
		r := &c.readings[i]
		l, ok := c.load(r, n)
		if !ok {
			if c.policy.config.WhenStale == policy.Reject {
				return policy.Verdict{Reason: signalStale, Unresolvable: true}
			}
			continue
		}
		if v := c.evaluate(r, l); !v.Fits() {
			return v
		}
	}
	return policy.Verdict{}
}

// evaluate returns the verdict on whether the load is within bounds. Removing pods changes the
// measurement too late for this pod: only evicting pods that are not measured yet helps.
func (c *cycle) evaluate(r *reading, l load) policy.Verdict {
	if r.Max == nil {
		return policy.Verdict{}
	}
	limit := float64(*r.Max) / 100
	if l.total() <= limit+rounding {
		return policy.Verdict{}
	}
	return policy.Verdict{
		Reason: overMax[r.kind], Unresolvable: l.measured+l.pod > limit+rounding,
		Have: int64(math.Floor(100 * (limit - l.measured - l.unmeasuredUse + rounding))), Want: int64(math.Ceil(100 * (l.pod - rounding))),
	}
}

func (c *cycle) Score(n *snapshot.Node) int64 {
	score := float64(policy.MaxScore)
	for i := range c.readings {
		l, ok := c.load(&c.readings[i], n)
		if !ok {
			return policy.NoOpinion
		}
		score = min(score, l.score())
	}
	return int64(math.Round(score))
}
