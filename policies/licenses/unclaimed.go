package licenses

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/snapshot"
)

// unclaimedUnit is the unit of the floating seats of pods without a claim. No ledger in the
// API server has it.
const unclaimedUnit = "unclaimed"

// unknownTime is later than every claim.
var unknownTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// viewHolders are the holders of floating seats in a View. It is immutable.
type viewHolders struct {
	view     *snapshot.View
	bound    map[*feature][]boundPod // in order of boundAt
	floating map[*feature]holders
}

// holders are the pods that hold floating seats of a feature.
type holders struct {
	claims *snapshot.Ledger // the ledger in the API server
	// unclaimed are the bound pods without a claim: another scheduler has bound them, or the ledger
	// with their claims was deleted. Nil: none.
	unclaimed *snapshot.Ledger
	all       *snapshot.Ledger // claims and unclaimed
}

// viewHolders returns the holders of the View. It compares the nodes with those of the last View,
// once for each View.
func (p *licenses) viewHolders(view *snapshot.View) *viewHolders {
	last := p.latest.Load()
	if last != nil && last.view == view {
		return last
	}
	next := &viewHolders{view: view, floating: map[*feature]holders{}}
	same := last != nil && p.sameBound(last.view, view)
	if same {
		next.bound = last.bound
	} else {
		next.bound = p.boundIn(view)
	}
	for _, f := range p.features {
		if !f.floating() {
			continue
		}
		l := view.Ledger(snapshot.LedgerKey{Resource: f.ledger()})
		if same && last.floating[f].claims == l {
			next.floating[f] = last.floating[f]
		} else {
			next.floating[f] = f.holders(l, next.bound[f], "")
		}
	}
	p.latest.Store(next)
	return next
}

func (p *licenses) boundIn(view *snapshot.View) map[*feature][]boundPod {
	all := map[*feature][]boundPod{}
	for n := range view.All() {
		for _, pod := range *p.boundPods.Of(n) {
			all[pod.feature] = append(all[pod.feature], pod)
		}
	}
	for _, bound := range all {
		slices.SortStableFunc(bound, func(a, b boundPod) int { return a.boundAt.Compare(b.boundAt) })
	}
	return all
}

// sameBound reports whether the same pods need floating seats in both Views.
func (p *licenses) sameBound(last, next *snapshot.View) bool {
	if last.NodeIndex() != next.NodeIndex() {
		return false
	}
	for is := range next.ChangedSince(last) {
		if !slices.Equal(*p.boundPods.Of(last.At(is.Row())), *p.boundPods.Of(is)) {
			return false
		}
	}
	return true
}

// nominated returns how many seats are needed by nominated pods that are at least as important as the pod asking, and
// hold none: pods were evicted to make room for them. A pod that needs more than there is does not count.
func (p *licenses) nominated(f *feature, asking *corev1.Pod, view *snapshot.View, s *floatingSeats) int64 {
	var sum int64
	for _, n := range view.Nominated() {
		if n.Pod.UID == asking.UID || corev1helpers.PodPriority(n.Pod) < corev1helpers.PodPriority(asking) || s.all.Pod(n.Pod.UID) != nil {
			continue
		}
		needs, err := p.request(n.Pod)
		if err != nil {
			continue
		}
		for _, need := range needs {
			if need.feature == f && need.seats <= s.total-s.reserved {
				sum = snapshot.AddAmounts(sum, need.seats)
			}
		}
	}
	return sum
}

// holders counts each pod once: with its claim if it has one, and otherwise with what it requests,
// up to the limit of its namespace, because every user who creates pods sets their requests. The
// pod own, which requests seats, does not count without a claim.
func (f *feature) holders(claims *snapshot.Ledger, bound []boundPod, own types.UID) holders {
	h := holders{claims: claims, all: claims}
	if len(bound) == 0 {
		return h
	}
	counted := map[types.UID]struct{}{own: {}}
	if claims != nil {
		for i := range claims.Pods {
			counted[claims.Pods[i].UID] = struct{}{}
		}
	}
	unit := snapshot.LedgerUnit{Name: unclaimedUnit}
	var pods []snapshot.LedgerPod
	left := map[string]int64{} // by namespace with a limit
	for _, b := range bound {
		if _, ok := counted[b.uid]; ok {
			continue
		}
		if f.MaxPerNamespace != nil {
			if _, ok := left[b.namespace]; !ok {
				left[b.namespace] = max(0, *f.MaxPerNamespace-claimedIn(claims, b.namespace))
			}
			if b.seats = min(b.seats, left[b.namespace]); b.seats == 0 {
				continue
			}
			left[b.namespace] -= b.seats
		}
		pods = append(pods, snapshot.LedgerPod{UID: b.uid, Namespace: b.namespace, Name: b.name, Node: b.node, At: b.boundAt})
		unit.Claims = append(unit.Claims, snapshot.LedgerClaim{Pod: b.uid, Amount: b.seats})
	}
	if len(pods) == 0 {
		return h
	}
	slices.SortFunc(unit.Claims, func(a, b snapshot.LedgerClaim) int { return cmp.Compare(a.Pod, b.Pod) })
	h.unclaimed = &snapshot.Ledger{Units: []snapshot.LedgerUnit{unit}, Pods: pods}
	all := *h.unclaimed
	if claims != nil {
		all = *claims
		all.Units = append(slices.Clip(claims.Units), unit)
		all.Pods = slices.Concat(claims.Pods, pods)
		slices.SortStableFunc(all.Pods, func(a, b snapshot.LedgerPod) int { return a.At.Compare(b.At) })
	}
	h.all = &all
	return h
}
