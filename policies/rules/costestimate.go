package rules

import (
	"reflect"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Sizes of what is in objects, for estimates: what is usual, to refuse an expression that
// cannot be afforded, and what is possible, to prove that another cannot exceed the limit.
var (
	usualSizes    = sizes{text: 256, elements: 64, computed: true}
	possibleSizes = sizes{text: 3 << 19, elements: 3 << 18} // an object has 1.5 MiB, and each element at least a byte and a comma
)

// sizes estimate the sizes of what is in objects and, if computed is set, of what
// functions make of it.
type sizes struct {
	text, elements uint64
	computed       bool
}

// EstimateSize implements checker.CostEstimator.
func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if node.Type().IsExactType(apiservercel.QuantityType) {
		return &checker.SizeEstimate{Max: longestQuantity}
	}
	if len(node.Path()) == 0 && !s.computed {
		return nil
	}
	switch node.Type().Kind() {
	case types.StringKind, types.BytesKind:
		return &checker.SizeEstimate{Max: s.text}
	case types.ListKind, types.MapKind:
		return &checker.SizeEstimate{Max: s.elements}
	}
	return nil
}

// EstimateCallCost implements checker.CostEstimator.
func (s sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// partSizes estimate the sizes of what the rest of an expression reads: parts that are about the pod are of one size, all others
// of another.
type partSizes struct {
	ofPod       map[string]bool // the names of the parts that are
	pod, others sizes
}

// EstimateSize implements checker.CostEstimator.
func (s partSizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if path := node.Path(); len(path) > 0 && s.ofPod[path[0]] {
		return s.pod.EstimateSize(node)
	}
	return s.others.EstimateSize(node)
}

// EstimateCallCost implements checker.CostEstimator.
func (s partSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// measured is what a value is found to hold, as far as it was looked at.
type measured struct {
	elements uint64 // of the largest list or map
	// unusual says that there is more than usualSizes. Nothing is looked at after that.
	unusual bool
}

func (m *measured) text(length int) { m.unusual = m.unusual || uint64(length) > usualSizes.text }

func (m *measured) count(elements int) {
	m.elements = max(m.elements, uint64(elements))
	m.unusual = m.unusual || m.elements > usualSizes.elements
}

func (m *measured) value(v ref.Val) {
	switch v := v.(type) {
	case types.String:
		m.text(len(v))
	case types.Bytes:
		m.text(len(v))
	case *object:
		m.native(v.value)
	case *orderedMap:
		m.native(v.native)
	case column:
		m.count(v.Len())
	case *types.Optional:
		if v.HasValue() {
			m.value(v.GetValue())
		}
	case traits.Mapper:
		m.all(v, v, func(key ref.Val) { m.value(key); m.value(v.Get(key)) })
	case traits.Lister:
		m.all(v, v, m.value)
	}
}

func (m *measured) all(sizer traits.Sizer, all traits.Iterable, one func(ref.Val)) {
	n, _ := sizer.Size().(types.Int)
	m.count(int(n))
	for it := all.Iterator(); !m.unusual && it.HasNext() == types.True; {
		one(it.Next())
	}
}

// native is value for what objects are made of.
func (m *measured) native(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		m.text(v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			m.native(v.Elem())
		}
	case reflect.Slice:
		m.count(v.Len())
		for i := 0; !m.unusual && i < v.Len(); i++ {
			m.native(v.Index(i))
		}
	case reflect.Map:
		m.count(v.Len())
		for it := v.MapRange(); !m.unusual && it.Next(); {
			m.native(it.Key())
			m.native(it.Value())
		}
	case reflect.Struct:
		for i := 0; !m.unusual && i < v.NumField(); i++ {
			m.native(v.Field(i))
		}
	}
}
