// Package audit looks for what must never be in a cluster where things are handed out: devices and pools of which more
// is given away than there is, claims that nobody needs, and pods that run without what they were given. It trusts
// nobody's books: what bound pods say of themselves is counted again, by code of its own.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/ledger"
	"outboard.dev/outboard/snapshot"
)

// Input is a cluster as the API server has it. What is listed first may be older than what is listed last: see [Confirm].
type Input struct {
	Ledgers []ledger.Object
	Pods    []corev1.Pod
	Nodes   []corev1.Node
	// Now is what the ages of claims are counted from.
	Now time.Time
	// Grace is how long a pod may have a claim and not be bound.
	Grace time.Duration
	// SizesFrom is the annotation or label in which nodes tell the memory of each of their GPUs; "" if all GPUs of a node
	// are equal.
	SizesFrom string
}

// Kind is what is wrong.
type Kind string

// The kinds.
const (
	// Oversold: more of a unit is given away than there was when the last of it was given.
	Oversold Kind = "oversold"
	// Overbooked: more of a unit is given away than there is now, because hardware has shrunk or is gone.
	Overbooked Kind = "overbooked"
	// Leaked: a claim is held that nobody needs.
	Leaked Kind = "leaked"
	// Unannotated: a bound pod does not say, or not rightly, what it was given.
	Unannotated Kind = "unannotated"
	// Unclaimed: a bound pod says what it was given, and no ledger knows. This is a note: another tool has bound it, or its ledger was deleted.
	Unclaimed Kind = "unclaimed"
)

// kinds are all of them, the worst first.
var kinds = []Kind{Oversold, Overbooked, Leaked, Unannotated, Unclaimed}

// Note says that it need not be wrong.
func (k Kind) Note() bool { return k == Unclaimed }

// CountedBy are by what an oversold or over-booked unit was found.
type CountedBy string

// The books.
const (
	Claims      CountedBy = "claims"      // of the ledger
	Annotations CountedBy = "annotations" // of bound pods
)

// Finding is one thing that is wrong. The zero value of a field means that the finding is not about such a thing.
type Finding struct {
	Kind      Kind      `json:"kind"`
	Resource  string    `json:"resource"`
	Node      string    `json:"node,omitempty"` // "" also for a pool
	Unit      string    `json:"unit,omitempty"`
	CountedBy CountedBy `json:"books,omitempty"`
	// Used and Capacity are in the resource's unit.
	Used     int64 `json:"used,omitempty"`
	Capacity int64 `json:"capacity,omitempty"`
	// Holders are the pods it is about, in order of namespace and name.
	Holders []Holder `json:"holders"`
	// Detail is what else there is to say.
	Detail string `json:"detail,omitempty"`
}

// Holder is a pod and what it has. Namespace and Name are "" when nothing but the UID is known.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid"`
	Amount    int64     `json:"amount,omitempty"`
}

// Audit returns all findings, the worst first. The input is not changed.
func Audit(in Input) []Finding {
	a := &auditor{
		Input:  in,
		pods:   make(map[types.UID]*corev1.Pod, len(in.Pods)),
		nodes:  make(map[string]*corev1.Node, len(in.Nodes)),
		claims: map[claimKey]bool{},
	}
	for i := range in.Pods {
		a.pods[in.Pods[i].UID] = &in.Pods[i]
	}
	for i := range in.Nodes {
		a.nodes[in.Nodes[i].Name] = &in.Nodes[i]
	}
	for i := range in.Ledgers {
		l := &in.Ledgers[i].Spec
		for _, unit := range l.Units {
			for _, c := range unit.Claims {
				a.claims[claimKey{l.Resource, l.Node, c.Pod}] = true
			}
			a.auditUnit(l, &unit)
		}
		a.auditOrphans(l)
		for j := range l.Pods {
			a.auditClaim(l, &l.Pods[j])
		}
	}
	a.auditGPUShare()
	slices.SortStableFunc(a.findings, compare)
	return a.findings
}

// Confirm returns what is certain after two looks at a cluster that goes on working, the later one second. Between the
// first and the last list of one look, pods come and go, so that a claim may seem to be nobody's; it is when both looks
// show it. What is oversold is seen in one list, and is wrong even if it does not last.
func Confirm(first, second []Finding) []Finding {
	var confirmed []Finding
	for _, f := range second {
		if f.Kind == Oversold || contains(first, f) {
			confirmed = append(confirmed, f)
		}
	}
	for _, f := range first {
		if f.Kind == Oversold && !contains(second, f) {
			confirmed = append(confirmed, f)
		}
	}
	slices.SortStableFunc(confirmed, compare)
	return confirmed
}

func contains(all []Finding, f Finding) bool {
	return slices.ContainsFunc(all, func(other Finding) bool { return compare(f, other) == 0 })
}

// compare orders findings. Two that are equal are about the same thing, whose numbers may have changed.
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

// auditor is an audit under way.
type auditor struct {
	Input
	pods     map[types.UID]*corev1.Pod
	nodes    map[string]*corev1.Node
	claims   map[claimKey]bool
	findings []Finding
}

// claimKey is a pod with a claim in a ledger.
type claimKey struct {
	resource, node string
	pod            types.UID
}

func (a *auditor) find(f Finding) {
	slices.SortFunc(f.Holders, compareHolders)
	a.findings = append(a.findings, f)
}

// share is what one pod has of one unit.
type share struct {
	Holder
	// at is when it was claimed; zero if that is not known.
	at time.Time
	// size is what there was of the unit when the pod was given its share; 0 if that is not known.
	size int64
}

// auditUnit compares what is claimed of a unit with what there is, as the ledger has it and as the node says.
func (a *auditor) auditUnit(l *snapshot.Ledger, unit *snapshot.LedgerUnit) {
	capacity := unit.Capacity
	if l.Resource == memoryResource && l.Node != "" {
		capacity = min(capacity, a.cardSize(l.Node, unit.Name))
	}
	used := unit.Used()
	if used <= capacity {
		return
	}
	var shares []share
	for _, c := range unit.Claims {
		s := share{Holder: Holder{UID: c.Pod, Amount: c.Amount}}
		if p := l.Pod(c.Pod); p != nil {
			s.Namespace, s.Name, s.at = p.Namespace, p.Name, p.At
			if s.size = cardSizes(p.Annotations)[unit.Name]; s.size == 0 && p.At.Equal(l.LastAt) {
				s.size = unit.Capacity // as it was written together with this claim
			}
		}
		shares = append(shares, s)
	}
	a.find(Finding{
		Kind: excess(shares), Resource: l.Resource, Node: l.Node, Unit: unit.Name, CountedBy: Claims,
		Used: used, Capacity: capacity, Holders: holders(shares),
	})
}

// excess says why the shares are more than there is: some were given away although there was not enough, or there is less
// now than there was. All claims that are older than a given one were there when it was made.
func excess(shares []share) Kind {
	slices.SortStableFunc(shares, func(a, b share) int { return a.at.Compare(b.at) })
	var sum int64
	for _, s := range shares {
		if sum += s.Amount; s.size > 0 && sum > s.size {
			return Oversold
		}
	}
	return Overbooked
}

func holders(shares []share) []Holder {
	list := make([]Holder, len(shares))
	for i, s := range shares {
		list[i] = s.Holder
	}
	return list
}

// auditOrphans looks for claims of which the ledger does not say whose they are. Nobody takes them back.
func (a *auditor) auditOrphans(l *snapshot.Ledger) {
	amounts := map[types.UID]int64{}
	for _, unit := range l.Units {
		for _, c := range unit.Claims {
			if l.Pod(c.Pod) == nil {
				amounts[c.Pod] += c.Amount
			}
		}
	}
	for uid, amount := range amounts {
		a.find(Finding{
			Kind: Leaked, Resource: l.Resource, Node: l.Node, Holders: []Holder{{UID: uid, Amount: amount}},
			Detail: "the ledger does not say what pod that is",
		})
	}
}

// auditClaim looks whether the pod needs its claim, and has what it demands.
func (a *auditor) auditClaim(l *snapshot.Ledger, p *snapshot.LedgerPod) {
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
		found(Leaked, "the pod is gone")
	case ended(pod):
		found(Leaked, "the pod has ended")
	case pod.Spec.NodeName == "":
		if age := a.Now.Sub(p.At); age > a.Grace {
			found(Leaked, fmt.Sprintf("the pod is not bound, and has the claim for %v", age.Round(time.Second)))
		}
	case l.Node != "" && pod.Spec.NodeName != l.Node:
		found(Leaked, fmt.Sprintf("the pod is bound to node %s", pod.Spec.NodeName))
	default:
		if wrong := differences(pod, p.Annotations); len(wrong) > 0 {
			found(Unannotated, strings.Join(wrong, ", "))
		}
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// differences says in which annotations the pod differs from what its claim demands.
func differences(pod *corev1.Pod, demanded map[string]string) []string {
	var wrong []string
	for key, want := range demanded {
		switch got, ok := pod.Annotations[key]; {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("it lacks the annotation %s: %q", key, want))
		case got != want && !pluginWrites(key):
			wrong = append(wrong, fmt.Sprintf("its annotation %s is %q, and should be %q", key, got, want))
		}
	}
	slices.Sort(wrong)
	return wrong
}
