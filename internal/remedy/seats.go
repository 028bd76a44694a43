package remedy

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// seats returns the fewest holders of allocations in one pool without which the pod fits on some
// node.
func (s *search) seats() ([]Remedy, error) {
	var best *Remedy
	evaluated, complete := false, true
	for l := range s.View.Pools() {
		p := pool{search: s, ledger: l, holders: s.holders(l)}
		if len(p.holders) == 0 {
			continue
		}
		evaluated = true
		found, all, err := p.fewest()
		if err != nil {
			return nil, err
		}
		complete = complete && all
		if found != nil && (best == nil || len(found.End) < len(best.End)) {
			best = found
		}
	}
	if evaluated {
		// Policies may keep sums over the nodes of the latest View that they have seen: this one is
		// no changed copy.
		if _, err := s.try(s.Engine, s.pod, s.View); err != nil {
			return nil, err
		}
	}
	if best == nil {
		return nil, nil
	}
	best.Smallest = complete || len(best.End) == 1
	return []Remedy{*best}, nil
}

// holders returns the pods other than the waiting one that have allocations in the pool, those
// first whose end frees the most; of these, the least important first.
func (s *search) holders(l *snapshot.Ledger) []Holder {
	held := map[types.UID]int64{}
	for i := range l.Units {
		for _, c := range l.Units[i].Allocations {
			held[c.Pod] = snapshot.AddAmounts(held[c.Pod], c.Amount)
		}
	}
	var holders []Holder
	for _, p := range slices.Backward(l.Pods) { // the newest allocation first
		if p.UID == s.pod.UID {
			continue
		}
		h := Holder{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Node, Seats: held[p.UID]}
		if pod := podOn(s.View.Node(p.Node), p.UID); pod != nil {
			h = holderOf(pod, p.Node)
			h.Seats = held[p.UID]
		}
		holders = append(holders, h)
	}
	slices.SortStableFunc(holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Seats, a.Seats), a.compare(b)) })
	return holders
}

// compare orders holders from the least to the most important.
func (h *Holder) compare(other Holder) int {
	switch {
	case h.TerminatingUntil != nil && other.TerminatingUntil == nil:
		return -1
	case other.TerminatingUntil != nil && h.TerminatingUntil == nil:
		return 1
	}
	return cmp.Compare(h.Priority, other.Priority)
}

// podOn returns the pod with the UID on the node, which may be nil, or nil.
func podOn(n *snapshot.Node, uid types.UID) *corev1.Pod {
	if n == nil {
		return nil
	}
	if i := slices.IndexFunc(n.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid }); i >= 0 {
		return n.Pods[i]
	}
	return nil
}

// pool is the search for the holders of one pool.
type pool struct {
	*search
	ledger  *snapshot.Ledger
	holders []Holder
}

// fewest takes all holders and spares as many as possible; then it tries all smaller sets, and
// better ones of the same size. complete is false if the budget ended before no smaller set was
// left.
func (p *pool) fewest() (found *Remedy, complete bool, err error) {
	node, complete, err := p.fitsWithout(p.holders)
	if err != nil || node == "" {
		return nil, complete, err
	}
	best, node, err := p.spare(node)
	if err != nil {
		return nil, false, err
	}
	for size := 1; size <= len(best); size++ {
		better, enough, n, err := p.ofSize(size, best)
		if err != nil {
			return nil, false, err
		}
		if better != nil {
			best, node = better, n
		}
		if !enough {
			return p.remedy(best, node), size == len(best), nil
		}
	}
	return p.remedy(best, node), true, nil
}

// ofSize returns the best set of this size without which the pod fits on the node, or nil if none
// is better than the given one. complete is false if the budget ended before.
func (p *pool) ofSize(size int, than []Holder) (best []Holder, complete bool, node string, err error) {
	for set := range subsets(p.holders, size) {
		if !p.spend(1) {
			return best, false, node, nil
		}
		if compareHolders(set, than) >= 0 {
			continue
		}
		n, enough, err := p.fitsWithout(set)
		if err != nil {
			return nil, false, "", err
		}
		if n != "" {
			best, node = slices.Clone(set), n
			than = best
		} else if !enough {
			return best, false, node, nil
		}
	}
	return best, true, node, nil
}

// compareHolders is less than 0 if it is better that the first set ends: it has fewer pods, or
// fewer seats, or their priorities are lower.
func compareHolders(a, b []Holder) int {
	highest := func(set []Holder) int32 {
		return slices.MaxFunc(set, func(a, b Holder) int { return cmp.Compare(a.Priority, b.Priority) }).Priority
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(seatsOf(a), seatsOf(b)), cmp.Compare(highest(a), highest(b)))
}

func (p *pool) remedy(set []Holder, node string) *Remedy {
	return &Remedy{Kind: Seats, Node: node, Pool: p.ledger.Resource, End: set}
}

func seatsOf(set []Holder) int64 {
	var sum int64
	for i := range set {
		sum = snapshot.AddAmounts(sum, set[i].Seats)
	}
	return sum
}

// spare returns holders of which none can be spared, and a node on which the pod fits without them.
// Without all of them, it fits on the given node. It spares those first whose end frees the least,
// several at a time.
func (p *pool) spare(node string) (chosen []Holder, on string, err error) {
	for end := len(p.holders); end > 0; {
		can, cannot := 0, end+1 // a number of holders that can be spared, and one that is too large
		for step := 1; can+1 < cannot; step *= 2 {
			count := min(can+step, (can+cannot)/2)
			n, complete, err := p.fitsWithout(slices.Concat(p.holders[:end-count], chosen))
			switch {
			case err != nil:
				return nil, "", err
			case n != "":
				can, node = count, n
			case !complete:
				return slices.Concat(p.holders[:end-can], chosen), node, nil
			default:
				cannot = count
			}
		}
		if end -= can; end > 0 {
			end--
			chosen = append(chosen, p.holders[end])
		}
	}
	return chosen, node, nil
}

// fitsWithout returns a node on which the pod fits without these holders and their allocations, or
// "". complete is false if the budget ended before.
func (p *pool) fitsWithout(set []Holder) (node string, complete bool, err error) {
	if !p.spend(p.prepare + changedCost*len(set)) {
		return "", false, nil
	}
	gone := make(map[types.UID]bool, len(set))
	byNode := map[string]bool{}
	for i := range set {
		gone[types.UID(set[i].UID)], byNode[set[i].Node] = true, true
	}
	view := p.View.WithPool(p.ledger.Without(func(uid types.UID) bool { return gone[uid] }))
	var changed []*snapshot.Node
	for name := range byNode {
		if n := p.View.Node(name); n != nil {
			changed = append(changed, n.Without(func(pod *corev1.Pod) bool { return gone[pod.UID] }))
		}
	}
	view = view.WithNodes(changed...)
	t, err := p.try(p.Engine, p.pod, view)
	if err != nil {
		return "", false, err
	}
	nodes := make([]*snapshot.Node, len(p.selected))
	for i, n := range p.selected {
		nodes[i] = view.At(n.Row())
	}
	n, complete, err := p.fitsAny(t, nodes)
	if err != nil || n == nil {
		return "", complete, err
	}
	return n.Name, true, nil
}
