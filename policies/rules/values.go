package rules

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"outboard.dev/outboard/snapshot"
)

func (s *schema) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case ref.Val:
		return v
	case string:
		return types.String(v)
	case nil:
		return types.NullValue
	}
	return s.valueOf(reflect.ValueOf(value))
}

// valueOf copies quantities, which change when they are compared or printed, and otherwise as
// little as possible.
func (s *schema) valueOf(v reflect.Value) ref.Val {
	switch x := v.Interface().(type) {
	case resource.Quantity:
		return copied(&x)
	case metav1.Time:
		return types.Timestamp{Time: x.Time}
	case metav1.MicroTime:
		return types.Timestamp{Time: x.Time}
	case intstr.IntOrString:
		if x.Type == intstr.Int {
			return types.Int(x.IntVal)
		}
		return types.String(x.StrVal)
	case map[string]string:
		return &orderedMap{Mapper: types.NewStringStringMap(s, x), native: v}
	case time.Time, time.Duration, []byte:
		return s.Registry.NativeToValue(x)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return types.NullValue
		}
		return s.valueOf(v.Elem())
	case reflect.String:
		return types.String(v.String())
	case reflect.Slice:
		elements := make([]ref.Val, v.Len())
		for i := range elements {
			elements[i] = s.valueOf(v.Index(i))
		}
		return types.NewRefValList(s, elements)
	case reflect.Map:
		m := types.NewDynamicMap(s, v.Interface())
		if v.Type().Key().Kind() != reflect.String {
			return m
		}
		return &orderedMap{Mapper: m, native: v}
	case reflect.Struct:
		if st := s.byGo[v.Type()]; st != nil {
			return &object{schema: s, kind: st, value: v}
		}
	}
	return s.Registry.NativeToValue(v.Interface())
}

func copied(q *resource.Quantity) ref.Val {
	own := q.DeepCopy()
	return apiservercel.Quantity{Quantity: &own}
}

// orderedMap is a map that is iterated in the order of its keys. The cost and the result of a loop
// may depend on the order: with Go's own, which varies, a verdict could differ the second time.
type orderedMap struct {
	traits.Mapper
	native reflect.Value
	keys   atomic.Pointer[[]string] // sorted, from the first loop on
}

func (m *orderedMap) Iterator() traits.Iterator {
	keys := m.keys.Load()
	if keys == nil {
		sorted := make([]string, 0, m.native.Len())
		for it := m.native.MapRange(); it.Next(); {
			sorted = append(sorted, it.Key().String())
		}
		slices.Sort(sorted)
		keys = &sorted
		m.keys.Store(keys)
	}
	return types.NewStringList(types.DefaultTypeAdapter, *keys).Iterator()
}

// object is a struct of Kubernetes' API, as a value with the traits Indexer and FieldTester. It is
// not changed.
type object struct {
	schema *schema
	kind   *structType
	value  reflect.Value
}

// find returns the field, or false if it is absent in JSON.
func (o *object) find(name ref.Val) (reflect.Value, bool, ref.Val) {
	text, ok := name.(types.String)
	if !ok {
		return reflect.Value{}, false, types.MaybeNoSuchOverloadErr(name)
	}
	f, ok := o.kind.fields[string(text)]
	if !ok {
		return reflect.Value{}, false, types.NewErr("no such field: %s", string(text))
	}
	v := o.value.FieldByIndex(f.index)
	switch v.Kind() {
	case reflect.Pointer:
		return v, !v.IsNil(), nil
	case reflect.Struct:
		zeroer, ok := v.Interface().(interface{ IsZero() bool })
		return v, !f.omitZero || (ok && !zeroer.IsZero() || !ok && !v.IsZero()), nil
	case reflect.Slice, reflect.Map:
		return v, !f.omitEmpty || v.Len() > 0, nil
	}
	return v, !f.omitEmpty || !v.IsZero(), nil
}

func (o *object) Get(name ref.Val) ref.Val {
	v, there, problem := o.find(name)
	switch {
	case problem != nil:
		return problem
	case !there:
		return types.NewErr("no such key: %v", name.Value())
	}
	return o.schema.valueOf(v)
}

func (o *object) IsSet(name ref.Val) ref.Val {
	_, there, problem := o.find(name)
	if problem != nil {
		return problem
	}
	return types.Bool(there)
}

func (o *object) Equal(other ref.Val) ref.Val {
	p, ok := other.(*object)
	return types.Bool(ok && o.kind == p.kind && equality.Semantic.DeepEqual(o.Value(), p.Value()))
}

func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	if o.value.Type().AssignableTo(t) {
		return o.Value(), nil
	}
	return nil, fmt.Errorf("%s cannot be converted to %v", o.kind.name, t)
}

func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return o.kind.cel
	}
	return types.NewErr("%s cannot be converted to %s", o.kind.name, t.TypeName())
}

func (o *object) Type() ref.Type { return o.kind.cel }

func (o *object) Value() any { return o.value.Interface() }

// keyedSignal is the map of the current numbers of a signal with keys.
type keyedSignal struct {
	*orderedMap
	signal string
}

// keyedSignal returns the map of the signal. It is made for each pod: 100 keys take about 20 µs.
func (p *rules) keyedSignal(s *snapshot.Signal) keyedSignal {
	values := make(map[string]float64, s.Len())
	for key, v := range s.All() {
		if v.Current() {
			values[key] = v.Number
		}
	}
	return keyedSignal{&orderedMap{
		Mapper: types.NewDynamicMap(p.compiled.schema, values), native: reflect.ValueOf(values),
	}, s.Name()}
}
