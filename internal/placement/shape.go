package placement

import (
	"slices"
	"strings"
)

// Whole is a whole GPU, in thousandths.
const Whole = 1000

// MaxGPUs is the maximum number of GPUs of a Node.
const MaxGPUs = 64

// Cost rates a placement: the lower, the better. The unit is a millionth of a GPU unless stated
// otherwise. Costs are whole numbers, so that sums do not depend on their order.
type Cost int64

// milli is a thousandth of a GPU, and OneGPU all of it.
const (
	milli  Cost = 1000
	OneGPU      = Whole * milli
)

// Models is a set of GPU models; the zero value is the set of all models. Equal sets are equal
// values.
type Models struct{ names string }

// NewModels returns the set of the names, none of which may contain a line break. Without names, it
// is the set of all models.
func NewModels(names ...string) Models {
	names = slices.Clone(names)
	slices.Sort(names)
	return Models{strings.Join(slices.Compact(names), "\n")}
}

// Has reports whether the set contains the model.
func (m Models) Has(model string) bool {
	if m.names == "" {
		return true
	}
	for name := range strings.SplitSeq(m.names, "\n") {
		if name == model {
			return true
		}
	}
	return false
}

// Shape is what a pod requests. Pods with equal shapes are interchangeable.
type Shape struct {
	CPU    int64 // thousandths of a core, 0 or more
	Memory int64 // bytes, 0 or more
	GPUs   int   // number of different GPUs, 0..MaxGPUs
	Share  int64 // of each of them, in the unit of GPU; 0: all of it
	Models Models
	// Profile is the name of a profile of partitions, one of which is requested instead of GPUs;
	// "": none.
	Profile string
}

// Shares reports whether other pods may use the rest of the GPU.
func (s Shape) Shares() bool { return s.GPUs == 1 && s.Share > 0 }

// units returns what the shape requests of each GPU of the kind. A value above the size does not
// fit.
func (s Shape) units(k Kind) int64 {
	if s.Share == 0 && s.GPUs > 0 {
		return k.Size
	}
	return s.Share
}

// On returns what the shape requests of each GPU of the kind, in thousandths.
func (s Shape) On(k Kind) float64 { return float64(s.units(k)) / float64(max(1, k.Size)) * Whole }

// Kind identifies nodes with equal GPUs.
type Kind struct {
	Model string
	GPUs  int   // 0..MaxGPUs
	Size  int64 // of the largest GPU, in the unit of GPU
}

// GPU is one GPU of a node, in any unit that is the same for all.
type GPU struct {
	Free int64 // 0..Size; 0 if it must not be used
	Size int64
}

// whole reports whether no pod uses the GPU.
func (g GPU) whole() bool { return g.Free == g.Size && g.Size > 0 }

// Fits reports whether the GPU has free for the shape.
func (g GPU) Fits(s Shape) bool {
	if s.Share == 0 {
		return g.whole()
	}
	return g.Free >= s.Share
}

// Take takes what the shape requests.
func (g *GPU) Take(s Shape) {
	if s.Share == 0 {
		g.Free = 0
	} else {
		g.Free -= s.Share
	}
}

// Node is what is free of one machine.
type Node struct {
	Model                       string
	CPU, Memory                 int64 // free, in the units of Shape; negative counts as nothing
	CPUCapacity, MemoryCapacity int64
	PlainCPU, PlainMemory       int64 // of the capacity, what pods without GPUs use
	GPUs                        []GPU // at most MaxGPUs
	// FirstFit says that a pod gets the first GPUs with free, in the order of GPUs, because another
	// component selects them: kube-scheduler does so for claims of devices. Then only the node can
	// be selected.
	FirstFit bool
	// Parts are its GPUs that are divided into partitions, instead of GPUs; nil: none.
	Parts *Partitioned
}

// Kind returns the kind of the node.
func (n *Node) Kind() Kind {
	k := Kind{Model: n.Model, GPUs: len(n.GPUs)}
	for _, g := range n.GPUs {
		k.Size = max(k.Size, g.Size)
	}
	return k
}

// wholes returns how many of the GPUs no pod uses.
func wholes(gpus []GPU) int {
	count := 0
	for _, g := range gpus {
		if g.whole() {
			count++
		}
	}
	return count
}

// Fits reports whether the node has free for the shape.
func (n *Node) Fits(s Shape) bool {
	if s.CPU > n.CPU || s.Memory > n.Memory {
		return false
	}
	if s.Profile != "" {
		_, fits := n.part(s)
		return fits
	}
	if s.GPUs == 0 {
		return true
	}
	if s.GPUs > len(n.GPUs) || !s.Models.Has(n.Model) {
		return false
	}
	free := 0
	for _, g := range n.GPUs {
		if g.Fits(s) {
			free++
		}
	}
	return free >= s.GPUs
}

// FirstFree means the GPUs with the lowest indices that have free.
const FirstFree = -1

// TakeFirst takes what the shape requests from the first GPUs with free.
func TakeFirst(gpus []GPU, s Shape) {
	left := s.GPUs
	for i := range gpus {
		if left > 0 && gpus[i].Fits(s) {
			gpus[i].Take(s)
			left--
		}
	}
}

// Offer is one way to place a shape on a node.
type Offer struct {
	// Cost is the part of the cost that depends on the node alone.
	Cost Cost
	// GPU is the index of the GPU of which the pod gets a share, or FirstFree.
	GPU   int8
	Terms Terms
}

// Terms determine the rest of an Offer's cost: Offers with equal Terms differ only by their Cost.
type Terms struct {
	kind    int16  // index of the node's kind; see Waste
	whole   int8   // number of unused GPUs of the node
	takes   int8   // how many of these the pod would use
	breaks  uint64 // the groups of slots of which the node has fewer afterwards
	charged uint64 // the groups of slots that count
}

// Offers are the placements of a shape on a node that can be best: at most one on a GPU in use, and
// at most one on unused GPUs, or for a pod without GPUs. A node with FirstFit has at most one.
type Offers struct {
	list  [2]Offer
	count int8
}

// All returns the offers; none if the shape does not fit.
func (o *Offers) All() []Offer { return o.list[:o.count] }

// Add adds an offer, one of at most two.
func (o *Offers) Add(offer Offer) {
	o.list[o.count] = offer
	o.count++
}
