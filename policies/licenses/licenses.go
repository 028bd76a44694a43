// Package licenses is the policy Licenses: seats of software licenses, floating or of
// nodes. README.md in this folder is its documentation.
package licenses

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/allocations"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// ledgerPrefix and a feature's name are the resource of the feature's ledgers.
const ledgerPrefix = "licenses/"

type licenses struct {
	annotation string
	whenStale  policy.UnknownAction
	inputs     policy.Inputs
	features   []*feature // in order of name
	boundPods  *snapshot.Fact[[]holder]
}

// feature is a Feature with its derived data.
type feature struct {
	Feature
	totalKey, usedKey string                    // in the signal of its server
	nodeSeats         *snapshot.Fact[nodeSeats] // nil: nodes have no own seats
}

func newLicenses(config Config) *licenses {
	p := &licenses{annotation: config.RequestAnnotation, whenStale: config.WhenStale, inputs: config.Inputs()}
	for _, c := range config.Features {
		f := &feature{Feature: c}
		if c.Server != nil {
			name := cmp.Or(c.Server.Feature, c.Name)
			f.totalKey, f.usedKey = name+"/total", name+"/used"
		}
		if c.SeatsPerNode != nil {
			f.nodeSeats = snapshot.NewFact(func(n *snapshot.Node) nodeSeats { return p.nodeSeatsOf(f, n, n.Ledger(f.ledger())) })
		}
		p.features = append(p.features, f)
	}
	p.boundPods = snapshot.NewFact(p.boundPodsOf)
	slices.SortFunc(p.features, func(a, b *feature) int { return strings.Compare(a.Name, b.Name) })
	return p
}

func (f *feature) ledger() string { return ledgerPrefix + f.Name }

// pool is the ledger of the floating seats.
func (f *feature) pool() snapshot.LedgerKey { return snapshot.LedgerKey{Resource: f.ledger()} }

// on reports whether the node has the feature.
func (f *feature) on(n *snapshot.Node) bool {
	return f.NodeLabel == nil || f.NodeLabel.In(n.Object.Labels)
}

func (p *licenses) Inputs() policy.Inputs { return p.inputs }

func (c *Config) Inputs() policy.Inputs {
	inputs := policy.Inputs{FilterOnly: true, AnyPod: true} // by the annotation
	for i, f := range c.Features {
		if f.Server != nil {
			inputs.Signals = append(inputs.Signals, policy.Signal{
				Field: fmt.Sprintf("features[%d].server.signal", i), Name: f.Server.Signal, About: policy.AboutKeys,
			})
		}
		if f.Resource != "" {
			inputs.Resources = append(inputs.Resources, corev1.ResourceName(f.Resource))
			if f.floating() {
				inputs.Unreported = append(inputs.Unreported, corev1.ResourceName(f.Resource))
			}
		}
	}
	return inputs
}

func (p *licenses) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	needs, err := p.request(pod)
	if err = cmp.Or(err, fields.Misspelled(pod, p.annotation)); err != nil || len(needs) == 0 {
		return nil, err
	}
	c := &cycle{policy: p, pod: pod.UID, view: view}
	for _, n := range needs {
		e := viewNeed{need: n}
		if n.feature.floating() {
			e.floating = p.floatingSeats(n.feature, view, view.Ledger(n.feature.pool()), pod)
			if !e.floating.has(pod.UID) {
				e.verdict = e.floating.evaluate(n, pod.Namespace)
			}
			if e.verdict.Reason == noFreeSeat {
				e.onNodes = map[string]int64{}
				for _, h := range e.floating.holders {
					e.onNodes[h.node] = snapshot.AddAmounts(e.onNodes[h.node], h.Amount)
				}
			}
		}
		c.needs = append(c.needs, e)
	}
	if text, ok := c.sign(); ok {
		return &signed{c, text}, nil
	}
	return c, nil
}

type signed struct {
	*cycle
	signature string
}

func (s *signed) Signature() string { return s.signature }

// sign returns a signature: what the pod needs, and the verdicts about floating seats, which are
// the same for all nodes. ok is false if too few of these are free: then it matters which pods hold
// them where. The rest is the node's, with its ledger, except for which pod asks: that matters only
// where the pod has seats already.
func (c *cycle) sign() (signature string, ok bool) {
	var text []byte
	for i := range c.needs {
		e := &c.needs[i]
		if e.verdict.Reason == noFreeSeat {
			return "", false
		}
		text = append(binary.AppendUvarint(text, uint64(len(e.feature.Name))), e.feature.Name...)
		text = binary.AppendVarint(text, e.seats)
		if e.verdict.Reason != nil {
			text = append(text, e.verdict.Reason.Code...)
		}
		text = append(text, '.')
		text = binary.AppendVarint(binary.AppendVarint(text, e.verdict.Have), e.verdict.Want)
	}
	return string(text), true
}

// cycle is the policy prepared for one pod that needs seats.
type cycle struct {
	policy *licenses
	pod    types.UID
	view   *snapshot.View
	needs  []viewNeed
}

// viewNeed is a need with the floating seats for it in the View of a Cycle.
type viewNeed struct {
	need
	floating *floatingSeats // nil unless the feature is floating
	verdict  policy.Verdict // about the floating seats, on any node
	// onNodes are the allocated seats by node; nil if enough seats are free.
	onNodes map[string]int64
}

func (c *cycle) Filter(n *snapshot.Node) policy.Verdict {
	var first policy.Verdict
	for i := range c.needs {
		e := &c.needs[i]
		for _, v := range [...]policy.Verdict{e.onNode(n, c.pod), c.floating(e, n)} {
			if v.Unresolvable {
				return v
			}
			if first.Fits() {
				first = v
			}
		}
	}
	return first
}

// onNode returns the verdict on whether the node has the feature, and its own seats.
func (e *viewNeed) onNode(n *snapshot.Node, pod types.UID) policy.Verdict {
	switch {
	case !e.feature.on(n):
		return policy.Verdict{Reason: notInstalled, Unresolvable: true}
	case e.feature.nodeSeats == nil:
		return policy.Verdict{}
	}
	l := e.feature.nodeSeats.Of(n)
	if l.has(pod) {
		return policy.Verdict{}
	}
	return l.evaluate(e.seats)
}

// floating returns the verdict on the floating seats for the pod on the node. The node may be
// without pods that preemption would evict: their seats count as free.
func (c *cycle) floating(e *viewNeed, n *snapshot.Node) policy.Verdict {
	v := e.verdict
	if v.Reason != noFreeSeat {
		return v
	}
	here, freed := e.onNodes[n.Name], int64(0)
	if here > 0 {
		freed = c.freed(e, n)
	}
	if have := e.floating.free() + freed; have >= e.seats {
		return policy.Verdict{}
	} else if v.Have = max(0, have); have+here-freed < e.seats {
		v.Unresolvable = true // the seats belong to pods on other nodes, or to others
	}
	return v
}

// freed returns how many seats belong to pods that the View has on the node, and n does not. Only
// this method looks the node up in the View: a pod whose allocation n does not have may have been
// removed from it, or may not be on it yet.
func (c *cycle) freed(e *viewNeed, n *snapshot.Node) int64 {
	was := c.view.Node(n.Name)
	if was == nil || was == n {
		return 0
	}
	return e.floating.sum(func(h *holder) bool {
		return h.node == n.Name && was.Has(h.UID) && !n.Has(h.UID)
	})
}

func (p *licenses) Ledgers(pod *corev1.Pod, node *snapshot.Node) ([]snapshot.LedgerKey, error) {
	needs, err := p.request(pod)
	if err != nil {
		return nil, err
	}
	var keys []snapshot.LedgerKey
	for _, n := range needs {
		if n.feature.SeatsPerNode != nil {
			keys = append(keys, snapshot.LedgerKey{Resource: n.feature.ledger(), Node: node.Name})
		}
		if n.feature.floating() {
			keys = append(keys, n.feature.pool())
		}
	}
	return keys, nil
}

func (p *licenses) Reserve(ask policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	needs, err := p.request(ask.Pod)
	i := slices.IndexFunc(needs, func(n need) bool { return n.feature.ledger() == ask.Ledger.Resource })
	if err != nil || i < 0 {
		return policy.Allocation{}, policy.Verdict{Reason: notInstalled, Unresolvable: true} // Ledgers names no such ledger
	}
	need := needs[i]
	if ask.Ledger.Node == "" {
		s := p.floatingSeats(need.feature, ask.View, ask.Ledger, ask.Pod)
		c, verdict := allocation(ask.Ledger, s.free(), need.seats, s.evaluate(need, ask.Pod.Namespace))
		c.NotBefore = s.reported.At // the server's count so far does not include these seats
		return c, verdict
	}
	others, ledger := allocations.Others(ask)
	l := p.nodeSeatsOf(need.feature, others, ledger)
	// The seats of pods without an allocation are not in the ledger, so they are not in its
	// capacity either.
	return allocation(ask.Ledger, l.free(), need.seats, l.evaluate(need.seats))
}

// allocation returns an allocation of seats if the verdict permits it: then enough are free. The
// capacity is the sum of the allocations and the free seats.
func allocation(l *snapshot.Ledger, free, seats int64, verdict policy.Verdict) (policy.Allocation, policy.Verdict) {
	if !verdict.Fits() {
		return policy.Allocation{}, verdict
	}
	const unit = "seats"
	return policy.Allocation{
		Units:   []policy.Capacity{{Unit: unit, Capacity: l.Unit(unit).Used() + free}},
		Amounts: []policy.Amount{{Unit: unit, Amount: seats}},
	}, verdict
}

// Units implements policy.UnitLister: each feature with floating seats is a pool.
func (p *licenses) Units(view *snapshot.View) policy.UnitList {
	list := policy.UnitList{Resource: corev1.ResourceName(strings.TrimSuffix(ledgerPrefix, "/")), Title: "Licenses"}
	for _, f := range p.features {
		if !f.floating() {
			continue
		}
		s := p.floatingSeats(f, view, view.Ledger(f.pool()), new(corev1.Pod))
		list.Nodes = append(list.Nodes, policy.NodeUnits{Node: f.Name, Group: "Licenses", Units: []policy.Unit{{
			Name: f.Name, Capacity: s.capacity(), Used: s.held, Unhealthy: s.unknown,
		}}})
	}
	return list
}
