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
	possibleSizes = sizes{text: 256 << 10, elements: 10_000}
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

// hold says whether nothing in the value is larger.
func (s sizes) hold(v ref.Val) bool {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) <= s.text
	case types.Bytes:
		return uint64(len(v)) <= s.text
	case *object:
		return s.holdNative(v.value)
	case column:
		return uint64(v.Len()) <= s.elements
	case *types.Optional:
		return !v.HasValue() || s.hold(v.GetValue())
	case traits.Mapper:
		return s.holdAll(v, v, func(key ref.Val) bool { return s.hold(key) && s.hold(v.Get(key)) })
	case traits.Lister:
		return s.holdAll(v, v, s.hold)
	}
	return true
}

func (s sizes) holdAll(sizer traits.Sizer, all traits.Iterable, holds func(ref.Val) bool) bool {
	if n, ok := sizer.Size().(types.Int); !ok || uint64(n) > s.elements {
		return false
	}
	for it := all.Iterator(); it.HasNext() == types.True; {
		if !holds(it.Next()) {
			return false
		}
	}
	return true
}

// holdNative is hold for what objects are made of.
func (s sizes) holdNative(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return uint64(v.Len()) <= s.text
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || s.holdNative(v.Elem())
	case reflect.Slice:
		if uint64(v.Len()) > s.elements {
			return false
		}
		for i := range v.Len() {
			if !s.holdNative(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		if uint64(v.Len()) > s.elements {
			return false
		}
		for it := v.MapRange(); it.Next(); {
			if !s.holdNative(it.Key()) || !s.holdNative(it.Value()) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !s.holdNative(v.Field(i)) {
				return false
			}
		}
	}
	return true
}
