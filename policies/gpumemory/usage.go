package gpumemory

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxCards bounds the cards of a node, of which each is a unit of its ledger.
	maxCards = snapshot.MaxLedgerUnits
	// maxCapacity bounds the memory of a card, so that no sum over the cards of a
	// node overflows, nor a hundred times that.
	maxCapacity = 1 << 50
	// everyCard stands for the index of a card that is not known.
	everyCard = -1
)

// hardware is what a node says about its cards.
type hardware struct {
	problem    *policy.Reason // why it has none that can be used
	capacities []int64        // by index
}

// hardwareOf reads the node. sizesFrom may be "".
func hardwareOf(node *corev1.Node, sizesFrom string) hardware {
	memory, count := capacity(node, memoryResource), capacity(node, countResource)
	if memory <= 0 {
		return hardware{problem: notSharing}
	}
	text, told := node.Annotations[sizesFrom]
	if !told {
		text, told = node.Labels[sizesFrom]
	}
	if told && sizesFrom != "" {
		sizes := parseSizes(text)
		if sizes == nil || count > 0 && count != int64(len(sizes)) {
			return hardware{problem: invalidCards}
		}
		return hardware{capacities: sizes}
	}
	if count < 1 || count > maxCards || memory/count > maxCapacity {
		return hardware{problem: invalidCards}
	}
	sizes := make([]int64, count)
	for i := range sizes {
		sizes[i] = memory / count
	}
	return hardware{capacities: sizes}
}

func capacity(node *corev1.Node, name corev1.ResourceName) int64 {
	q := node.Status.Capacity[name]
	return q.Value()
}

var separators = strings.NewReplacer("-", ",", "_", ",")

// parseSizes returns nil when the text is no list of sizes.
func parseSizes(text string) []int64 {
	parts := strings.Split(separators.Replace(text), ",")
	if len(parts) > maxCards {
		return nil
	}
	sizes := make([]int64, len(parts))
	for i, part := range parts {
		size, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || size < 0 || size > maxCapacity {
			return nil
		}
		sizes[i] = size
	}
	return sizes
}

// card is one GPU of a node.
type card struct {
	capacity int64 // 0..maxCapacity
	used     int64 // may exceed capacity: hardware shrinks
	healthy  bool
}

// free is what can still be given away, healthy or not.
func (c card) free() int64 { return max(0, c.capacity-c.used) }

// usage is what is known of the cards of a node, and who has what of them.
type usage struct {
	problem *policy.Reason // why no card can be used
	cards   []card         // by index
	// holders are the pods that have something, and holderBits the bits of all of them.
	holders    []types.UID
	holderBits uint64
	// unserved are the cards of pods to which the device plugin has not given
	// theirs yet, as bits, by what such a pod asks for in all.
	unserved map[int64]uint64
	// used and capacity are those of all healthy cards, none more than full.
	used, capacity int64
	// mostFree and largest are those of one healthy card.
	mostFree, largest int64
}

// usageOf counts with the given ledger, which may be nil, instead of the node's own.
func usageOf(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) usage {
	b := usage{problem: hw.problem, cards: make([]card, len(hw.capacities))}
	ill := unhealthy(n)
	for i := range b.cards {
		b.cards[i] = card{capacity: hw.capacities[i], healthy: ill&(1<<i) == 0}
	}
	for _, h := range holdings(n, ledger, hw) {
		b.enter(h)
	}
	for _, c := range b.cards {
		if c.healthy {
			b.used += min(c.used, c.capacity)
			b.capacity += c.capacity
			b.mostFree, b.largest = max(b.mostFree, c.free()), max(b.largest, c.capacity)
		}
	}
	return b
}

func (b *usage) enter(h holding) {
	b.holders = append(b.holders, h.pod.UID)
	b.holderBits |= bitOf(h.pod.UID)
	for i := range b.cards {
		if h.card == i || h.card == everyCard {
			b.cards[i].used = snapshot.AddAmounts(b.cards[i].used, h.amount)
		}
	}
	if h.unserved && h.card >= 0 && h.card < len(b.cards) {
		if b.unserved == nil {
			b.unserved = map[int64]uint64{}
		}
		b.unserved[h.total] |= 1 << h.card
	}
}

// asker is a pod that may hold something already. The bit tells most nodes on which it
// does not apart without a look at those that do.
type asker struct {
	uid types.UID // "" holds nothing
	bit uint64
}

func askerOf(pod *corev1.Pod) asker { return asker{pod.UID, bitOf(pod.UID)} }

// bitOf is the bit of a UID: one of 64.
func bitOf(uid types.UID) uint64 {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(uid) {
		hash = (hash ^ uint32(uid[i])) * 16777619
	}
	return 1 << (hash >> 26)
}

// holds says whether the pod has something of the node already.
func (b *usage) holds(pod asker) bool {
	return b.holderBits&pod.bit != 0 && pod.uid != "" && slices.Contains(b.holders, pod.uid)
}

// holding is what one pod has of one card.
type holding struct {
	pod      Holder
	card     int // may be one that the node does not have (any more), or everyCard
	amount   int64
	total    int64 // what the pod asks for in all
	unserved bool  // the device plugin has not given it to the pod yet
}

// claimant is a pod with claims in the ledger.
type claimant struct {
	entry *snapshot.LedgerPod // nil: the ledger does not say more about it
	pod   *corev1.Pod         // nil: not on the node yet
	total int64
}

// holdings lists who has what. A pod that is in the ledger has what the ledger says,
// and any other on the node what its annotations say.
func holdings(n *snapshot.Node, ledger *snapshot.Ledger, hw *hardware) []holding {
	if ledger == nil {
		ledger = &snapshot.Ledger{}
	}
	claimants := map[types.UID]*claimant{}
	for _, unit := range ledger.Units {
		for _, claim := range unit.Claims {
			if claimants[claim.Pod] == nil {
				claimants[claim.Pod] = &claimant{}
			}
			claimants[claim.Pod].total = snapshot.AddAmounts(claimants[claim.Pod].total, claim.Amount)
		}
	}
	for i := range ledger.Pods {
		if c := claimants[ledger.Pods[i].UID]; c != nil {
			c.entry = &ledger.Pods[i]
		}
	}
	var all []holding
	for _, pod := range n.Pods {
		if c := claimants[pod.UID]; c != nil {
			c.pod = pod
		} else {
			all = annotated(all, pod, hw)
		}
	}
	for _, unit := range ledger.Units {
		index, err := strconv.Atoi(unit.Name)
		if err != nil || index < 0 {
			index = everyCard
		}
		for _, claim := range unit.Claims {
			c := claimants[claim.Pod]
			all = append(all, holding{pod: c.holder(claim.Pod), card: index, amount: claim.Amount, total: c.total, unserved: c.unserved()})
		}
	}
	return all
}

func (c *claimant) holder(uid types.UID) Holder {
	switch {
	case c.pod != nil:
		return Holder{c.pod.Namespace, c.pod.Name, uid}
	case c.entry != nil:
		return Holder{c.entry.Namespace, c.entry.Name, uid}
	}
	return Holder{UID: uid}
}

func (c *claimant) unserved() bool {
	if c.pod == nil {
		return true
	}
	// A pod just bound may be known by its claim before its annotations are.
	if _, ok := c.pod.Annotations[assignedKey]; !ok && c.entry != nil {
		return pending(c.pod) && c.entry.Annotations[assignedKey] == notAssigned
	}
	return unserved(c.pod)
}
