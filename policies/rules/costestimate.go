package rules

import (
	"math"
	"reflect"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// Sizes of the contents of objects, for estimates: usual ones, and the largest possible ones.
var (
	usualSizes    = sizes{text: 256, elements: 64}
	possibleSizes = sizes{text: 3 << 19, elements: 3 << 18} // an object has 1.5 MiB, and each element at least a byte and a comma
)

// sizes bound what objects contain: the text of strings in bytes, and the elements of lists and maps.
type sizes struct{ text, elements uint64 }

// EstimateSize implements checker.CostEstimator.
func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if node.Type().IsExactType(apiservercel.QuantityType) {
		return &checker.SizeEstimate{Max: longestQuantity}
	}
	if len(node.Path()) == 0 {
		return nil // a function's result: the library derives its size from the arguments
	}
	return s.ofType(node.Type())
}

func (s sizes) ofType(t *types.Type) *checker.SizeEstimate {
	switch t.Kind() {
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

// computedSizes are sizes that apply to the results of functions, too.
type computedSizes struct{ sizes }

// EstimateSize implements checker.CostEstimator.
func (s computedSizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if estimate := s.sizes.EstimateSize(node); estimate != nil {
		return estimate
	}
	return s.ofType(node.Type())
}

// isUsual reports whether all contents of the value have usual sizes.
func isUsual(v ref.Val) bool {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) <= usualSizes.text
	case types.Bytes:
		return uint64(len(v)) <= usualSizes.text
	case *object:
		return isUsualNative(v.value)
	case *orderedMap:
		return isUsualNative(v.native)
	case keyedSignal:
		return isUsualCount(v.Len())
	case *types.Optional:
		return !v.HasValue() || isUsual(v.GetValue())
	case traits.Mapper:
		return areUsual(v, v, func(key ref.Val) bool { return isUsual(key) && isUsual(v.Get(key)) })
	case traits.Lister:
		return areUsual(v, v, isUsual)
	}
	return true
}

func isUsualCount(elements int) bool { return uint64(elements) <= usualSizes.elements }

func areUsual(sizer traits.Sizer, all traits.Iterable, one func(ref.Val) bool) bool {
	n, _ := sizer.Size().(types.Int)
	usual := isUsualCount(int(n))
	for it := all.Iterator(); usual && it.HasNext() == types.True; {
		usual = one(it.Next())
	}
	return usual
}

// isUsualNative is isUsual for the Go values of objects.
func isUsualNative(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return uint64(v.Len()) <= usualSizes.text
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || isUsualNative(v.Elem())
	case reflect.Slice:
		usual := isUsualCount(v.Len())
		for i := 0; usual && i < v.Len(); i++ {
			usual = isUsualNative(v.Index(i))
		}
		return usual
	case reflect.Map:
		usual := isUsualCount(v.Len())
		for it := v.MapRange(); usual && it.Next(); {
			usual = isUsualNative(it.Key()) && isUsualNative(it.Value())
		}
		return usual
	case reflect.Struct:
		for i := range v.NumField() {
			if !isUsualNative(v.Field(i)) {
				return false
			}
		}
	}
	return true
}

// estimator is Kubernetes' estimator with the costs of regular expressions and of the texts and lists that functions return.
type estimator struct{ library.CostEstimator }

// EstimateCallCost implements checker.CostEstimator.
func (e *estimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	estimate := e.CostEstimator.EstimateCallCost(function, overload, target, args)
	all := args
	if target != nil {
		all = append([]checker.AstNode{*target}, args...)
	}
	switch {
	case isRegexp(function):
		cost := checker.CallEstimate{CostEstimate: checker.CostEstimate{Max: math.MaxUint64}}
		if estimate != nil {
			cost.ResultSize = estimate.ResultSize
		}
		if literal := all[1].Expr(); literal.Kind() == ast.LiteralKind {
			pattern, _ := literal.AsLiteral().(types.String)
			cost.Max = matching(e.size(all[0]), instructions(string(pattern)))
		}
		return &cost
	case zones(function) && len(all) > 1:
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: zoneWork}}
	case overload == "string_index_of_string" || overload == "string_index_of_string_int" || overload == "string_last_index_of_string" || overload == "string_last_index_of_string_int":
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: add(1, times(e.size(all[0]), e.size(all[1])))}}
	case function == "replace" && estimate != nil && estimate.ResultSize != nil:
		estimate.Max = add(estimate.Max, estimate.ResultSize.Max/10+1)
	case function == "join" && estimate != nil && estimate.ResultSize != nil:
		estimate.Max = add(estimate.Max, add(estimate.ResultSize.Max, 2))
	}
	return estimate
}

// zones reports whether a function can read a time zone.
func zones(function string) bool { return literals[function].what == "time zone" }

func (e *estimator) size(node checker.AstNode) uint64 {
	if s := node.ComputedSize(); s != nil {
		return s.Max
	}
	if s := e.EstimateSize(node); s != nil {
		return s.Max
	}
	return math.MaxUint64
}
