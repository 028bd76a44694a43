// Package audit checks a cluster's allocations for inconsistencies: units with more allocated than
// they have, allocations that no pod needs, and bound pods that lack the annotations of their
// allocations. It does not trust the ledgers alone: code of its own adds up what the annotations of
// bound pods say.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Input is the state of a cluster, as read from the API server. The lists may be of different
// moments: see [Confirm]. Of a reduced pod, which has only some of its annotations, Audit does not
// compare them with those of its allocation.
type Input struct {
	Ledgers []*ledger.Object
	Pods    []*corev1.Pod
	Nodes   []*corev1.Node
	// Now is the time from which the ages of allocations are counted.
	Now time.Time
	// Grace is how long a pod may hold an allocation without being bound.
	Grace time.Duration
	// Units are the GPUs as the policies of the configuration count them; none without a
	// configuration. Only they say what a GPU has now: a node reports no GPUs that are simulated, or
	// of which it declares the sizes.
	Units []policy.UnitList
}

// Kind is the kind of a finding.
type Kind string

const (
	// Overallocated: more of a unit is allocated than it had when its last allocation was made.
	Overallocated Kind = "overallocated"
	// Overcommitted: more of a unit is allocated than it has now, because hardware was replaced or
	// removed.
	Overcommitted Kind = "overcommitted"
	// Leaked: a ledger holds an allocation that no pod needs.
	Leaked Kind = "leaked"
	// Unannotated: a bound pod lacks an annotation of its allocation, or has another value.
	Unannotated Kind = "unannotated"
	// Unallocated: a bound pod has the annotations of an allocation, but no ledger holds an
	// allocation of it. This is a note: another tool bound it, or its ledger was deleted.
	Unallocated Kind = "unallocated"
	// Unaudited: pods hold more of a GPU than its node reports, and no policy says what it has. This
	// is a note.
	Unaudited Kind = "unaudited"
)

// kinds are all kinds, the most severe first.
var kinds = []Kind{Overallocated, Overcommitted, Leaked, Unannotated, Unallocated, Unaudited}

// Kinds returns all kinds, the most severe first.
func Kinds() []Kind { return slices.Clone(kinds) }

// Note reports whether a finding of this kind is not an error.
func (k Kind) Note() bool { return k == Unallocated || k == Unaudited }

// CountedBy is the source of the numbers of an Overallocated or Overcommitted finding.
type CountedBy string

const (
	Allocations CountedBy = "allocations" // allocations in the ledger
	Annotations CountedBy = "annotations" // annotations of bound pods
)

// Finding is one inconsistency. Fields that do not apply are zero.
type Finding struct {
	Kind      Kind      `json:"kind"`
	Resource  string    `json:"resource"`
	Node      string    `json:"node,omitempty"` // "" also for a pool of licenses
	Unit      string    `json:"unit,omitempty"`
	CountedBy CountedBy `json:"countedBy,omitempty"`
	// Used and Capacity are in the resource's unit.
	Used     int64 `json:"used,omitempty"`
	Capacity int64 `json:"capacity,omitempty"`
	// Holders are the pods involved, in order of namespace and name.
	Holders []Holder `json:"holders"`
	// Detail is a further explanation.
	Detail string `json:"detail,omitempty"`
}

// Holder is a pod and the amount it holds. Namespace and Name are "" when only the UID is known.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid"`
	Amount    int64     `json:"amount,omitempty"`
}

// Audit returns all findings, the most severe first. It does not change the input.
func Audit(in Input) []Finding {
	a := &auditor{
		Input:       in,
		pods:        make(map[types.UID]*corev1.Pod, len(in.Pods)),
		counted:     map[string]bool{},
		sizes:       make(map[unitKey]int64, 8*len(in.Nodes)),
		written:     map[unitKey]int64{},
		allocations: map[allocationKey]bool{},
	}
	for _, pod := range in.Pods {
		a.pods[pod.UID] = pod
	}
	a.readSizes()
	for _, o := range in.Ledgers {
		l := &o.Spec
		for _, unit := range l.Units {
			a.written[unitKey{l.Resource, l.Node, unit.Name}] = unit.Capacity
			for _, c := range unit.Allocations {
				a.allocations[allocationKey{l.Resource, l.Node, c.Pod}] = true
			}
			a.auditUnit(l, &unit)
		}
		a.auditOrphans(l)
		for j := range l.Pods {
			a.auditAllocation(l, &l.Pods[j])
		}
	}
	a.auditAnnotations()
	slices.SortStableFunc(a.findings, compare)
	return a.findings
}

// Confirm returns the findings that are certain after two audits of a running cluster, as Audit
// returns them, second being the later one. Pods come and go while one audit lists its objects, so
// an allocation may seem to be leaked; it is if both audits report it. An Overallocated finding
// comes from a single list, and is an error even if it is gone in the second audit.
func Confirm(first, second []Finding) []Finding {
	var confirmed []Finding
	for _, f := range second {
		if f.Kind == Overallocated || contains(first, f) {
			confirmed = append(confirmed, f)
		}
	}
	for _, f := range first {
		if f.Kind == Overallocated && !contains(second, f) {
			confirmed = append(confirmed, f)
		}
	}
	slices.SortStableFunc(confirmed, compare)
	return confirmed
}

// contains reports whether the sorted findings have one about the same thing.
func contains(all []Finding, f Finding) bool {
	_, found := slices.BinarySearchFunc(all, f, compare)
	return found
}

// compare orders findings. Findings that compare as equal are about the same thing, though their
// numbers may differ.
func compare(a, b Finding) int {
	order := cmp.Or(
		cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.CountedBy, b.CountedBy),
	)
	if order != 0 || a.Unit != "" {
		return order
	}
	return slices.CompareFunc(a.Holders, b.Holders, compareHolders)
}

func compareHolders(a, b Holder) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

type auditor struct {
	Input
	pods        map[types.UID]*corev1.Pod
	counted     map[string]bool   // the resources of the policies
	sizes       map[unitKey]int64 // of GPUs: as policies count them, or nodes report them
	written     map[unitKey]int64 // capacities in ledgers
	allocations map[allocationKey]bool
	findings    []Finding
	gpuFindings int // how many of them are about what annotations say of a GPU
}

// allocationKey identifies the allocations of a pod in one ledger.
type allocationKey struct {
	resource, node string
	pod            types.UID
}

// unitKey identifies a unit of a node.
type unitKey struct{ resource, node, unit string }

func (a *auditor) find(f Finding) {
	slices.SortFunc(f.Holders, compareHolders)
	a.findings = append(a.findings, f)
}

// share is what one pod holds of one unit.
type share struct {
	Holder
	// at is when the allocation was made; zero if unknown.
	at time.Time
	// size is the unit's capacity when the allocation was made; 0 if unknown.
	size int64
}

// auditUnit compares the allocations on a unit with its capacity, by the ledger and by the policy.
func (a *auditor) auditUnit(l *snapshot.Ledger, unit *snapshot.LedgerUnit) {
	capacity := unit.Capacity
	if a.counted[l.Resource] && l.Node != "" {
		capacity = min(capacity, a.gpuSize(l.Resource, l.Node, unit.Name))
	}
	used := unit.Used()
	if used <= capacity {
		return
	}
	var shares []share
	for _, c := range unit.Allocations {
		s := share{Holder: Holder{UID: c.Pod, Amount: c.Amount}}
		if p := l.Pod(c.Pod); p != nil {
			s.Namespace, s.Name, s.at = p.Namespace, p.Name, p.At
			_, sizes := gpusIn(p.Annotations)
			if s.size = sizes[unit.Name]; s.size == 0 && p.At.Equal(l.LastAt) {
				s.size = unit.Capacity // the capacity was written together with this allocation
			}
		}
		shares = append(shares, s)
	}
	a.find(Finding{
		Kind: excess(shares), Resource: l.Resource, Node: l.Node, Unit: unit.Name, CountedBy: Allocations,
		Used: used, Capacity: capacity, Holders: holders(shares),
	})
}

// excess returns why the shares exceed the capacity: some were allocated although too little was
// left, or the capacity is smaller than it was. Every allocation that is older than another one
// existed when that was made.
func excess(shares []share) Kind {
	slices.SortStableFunc(shares, func(a, b share) int { return a.at.Compare(b.at) })
	var sum int64
	for _, s := range shares {
		if sum += s.Amount; s.size > 0 && sum > s.size {
			return Overallocated
		}
	}
	return Overcommitted
}

func holders(shares []share) []Holder {
	list := make([]Holder, len(shares))
	for i, s := range shares {
		list[i] = s.Holder
	}
	return list
}

// auditOrphans finds allocations whose pod the ledger does not name. No replica releases these.
func (a *auditor) auditOrphans(l *snapshot.Ledger) {
	amounts := map[types.UID]int64{}
	for _, unit := range l.Units {
		for _, c := range unit.Allocations {
			if l.Pod(c.Pod) == nil {
				amounts[c.Pod] += c.Amount
			}
		}
	}
	for uid, amount := range amounts {
		a.find(Finding{
			Kind: Leaked, Resource: l.Resource, Node: l.Node, Holders: []Holder{{UID: uid, Amount: amount}},
			Detail: "the ledger does not name the pod",
		})
	}
}

// auditAllocation checks whether the pod still needs its allocation, and has the annotations of it.
func (a *auditor) auditAllocation(l *snapshot.Ledger, p *snapshot.LedgerPod) {
	holder := Holder{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	for i := range l.Units {
		holder.Amount += l.Units[i].Amount(p.UID)
	}
	found := func(kind Kind, detail string) {
		a.find(Finding{Kind: kind, Resource: l.Resource, Node: l.Node, Holders: []Holder{holder}, Detail: detail})
	}
	pod := a.pods[p.UID]
	switch {
	case pod == nil:
		found(Leaked, "the pod is deleted")
	case snapshot.Ended(pod):
		found(Leaked, "the pod has ended")
	case pod.Spec.NodeName == "":
		if age := a.Now.Sub(p.At); age > a.Grace {
			found(Leaked, fmt.Sprintf("the pod is not bound and has held the allocation for %v", age.Round(time.Second)))
		}
	case l.Node != "" && pod.Spec.NodeName != l.Node:
		found(Leaked, fmt.Sprintf("the pod is bound to node %s", pod.Spec.NodeName))
	case !snapshot.IsReduced(pod):
		if wrong := differences(pod, p.Annotations); len(wrong) > 0 {
			found(Unannotated, strings.Join(wrong, ", "))
		}
	}
}

// differences returns how the pod's annotations differ from those of its allocation, demanded.
func differences(pod *corev1.Pod, demanded map[string]string) []string {
	var wrong []string
	for key, want := range demanded {
		switch got, ok := pod.Annotations[key]; {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("the pod lacks annotation %s: %s", key, quoted(want)))
		case got != want && !pluginWrites(key):
			wrong = append(wrong, fmt.Sprintf("the pod's annotation %s is %s and should be %s", key, quoted(got), quoted(want)))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// maxQuoted is how many bytes of the value of an annotation a finding has, because whoever writes
// pods could fill the memory with findings.
const maxQuoted = 200

func quoted(value string) string {
	if len(value) > maxQuoted {
		return fmt.Sprintf("%q and %d more bytes", value[:maxQuoted], len(value)-maxQuoted)
	}
	return strconv.Quote(value)
}
