package search

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// digest identifies a World among those of a search.
type digest [16]byte

// part is a part of a World as bytes. It has all values that steps can see, by reflection, so that no field is missed. What steps only
// compare has a mark instead of its value.
type part struct {
	bytes []byte
	marks []mark
}

// mark is a value that steps only compare with others of its class.
type mark struct {
	at    int // where its number goes
	class class
	value int64
}

type class byte

const (
	version       class = iota // steps compare whether two are the same: the number of the value is its place among those so far
	token                      // the same
	pointer                    // the same
	generation                 // steps compare which one is larger: the number of the value is its rank
	timestamp                  // the same
	requestNumber              // the same, within a replica; 0 stays 0
	classes
)

// digest returns the digest of the World, which is the same for two Worlds if the same can happen from then on, with other names for
// versions, tokens, and, unless the scope says otherwise, replicas. The order of replicas is the one with the smallest bytes.
func (w *World) digest() digest {
	v := *w
	v.versions, v.tokens, v.replicas = 0, 0, nil // the counters are only for new names
	scratch := scratches.Get().(*[]part)
	defer scratches.Put(scratch)
	for len(*scratch) < 1+len(w.replicas) {
		*scratch = append(*scratch, part{})
	}
	parts := (*scratch)[:1+len(w.replicas)] // a scope with more replicas may have used it
	for i := range parts {
		parts[i].bytes, parts[i].marks = parts[i].bytes[:0], parts[i].marks[:0]
	}
	parts[0].value(reflect.ValueOf(&v).Elem(), planOf(reflect.TypeFor[World]()))
	for i := range w.replicas {
		p := &parts[1+i]
		p.value(reflect.ValueOf(&w.replicas[i]).Elem(), planOf(reflect.TypeFor[replica]()))
		for _, by := range w.rejected {
			p.bool(by == i+1)
		}
		p.bool(w.replicas[i].confirm != nil && w.replicas[i].cluster.confirms())
		p.append(&w.replicas[i].look(w.scope).part)
	}
	smallest := numbered(parts)
	if !w.scope.Asymmetric {
		slices.SortStableFunc(parts[1:], func(a, b part) int { return bytes.Compare(a.bytes, b.bytes) })
		smallest = nil
		orders(parts[1:], func() {
			if all := numbered(parts); smallest == nil || bytes.Compare(all, smallest) < 0 {
				smallest = all
			}
		})
	}
	sum := sha256.Sum256(smallest)
	return digest(sum[:16])
}

// orders calls the function with the parts in each order in which their bytes ascend: those that differ only in marks change places.
func orders(parts []part, f func()) {
	if len(parts) < 2 {
		f()
		return
	}
	for i := range parts {
		if !bytes.Equal(parts[i].bytes, parts[0].bytes) {
			break
		}
		parts[0], parts[i] = parts[i], parts[0]
		orders(parts[1:], f)
		parts[0], parts[i] = parts[i], parts[0]
	}
}

// scratches holds parts whose memory can be used again.
var scratches = sync.Pool{New: func() any { return new([]part) }}

// numbered returns the bytes of all parts, with numbers for the marked values.
func numbered(parts []part) []byte {
	var values [classes][]int64
	size := 0
	for _, p := range parts {
		size += len(p.bytes)
		for _, m := range p.marks {
			if m.class != requestNumber && !slices.Contains(values[m.class], m.value) {
				values[m.class] = append(values[m.class], m.value)
			}
		}
	}
	slices.Sort(values[generation])
	slices.Sort(values[timestamp])
	all := make([]byte, 0, size+len(parts))
	for _, p := range parts {
		values[requestNumber] = p.requestNumbers(values[requestNumber][:0])
		start := len(all)
		all = append(append(all, p.bytes...), 255)
		for _, m := range p.marks {
			all[start+m.at] = byte(slices.Index(values[m.class], m.value))
		}
	}
	return all
}

// requestNumbers appends 0, and those of the part, in ascending order, to nothing.
func (p *part) requestNumbers(values []int64) []int64 {
	values = append(values, 0)
	for _, m := range p.marks {
		if m.class == requestNumber && !slices.Contains(values, m.value) {
			values = append(values, m.value)
		}
	}
	slices.Sort(values)
	return values
}

func (p *part) mark(c class, value int64) {
	p.marks = append(p.marks, mark{len(p.bytes), c, value})
	p.bytes = append(p.bytes, 0)
}

func (p *part) int(n int64) { p.bytes = append(p.bytes, byte(n), byte(n>>8)) }

func (p *part) view(v *snapshot.View) {
	p.bytes = binary.LittleEndian.AppendUint64(p.bytes, viewNumber(v))
}

func (p *part) string(s string) { p.bytes = append(append(p.bytes, byte(len(s))), s...) }

func (p *part) bool(b bool) {
	if b {
		p.bytes = append(p.bytes, 1)
	} else {
		p.bytes = append(p.bytes, 0)
	}
}

// numberIn marks a version or token, which is a number.
func (p *part) numberIn(c class, s string) {
	n := int64(0)
	for i := 0; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		n = 10*n + int64(s[i]-'0')
	}
	p.mark(c, n)
}

// plan is how to write the values of a type.
type plan struct {
	write  func(p *part, v reflect.Value) // nil: as its kind says
	fields []field
	elem   *plan
	skip   bool
}

type field struct {
	index int
	plan  *plan
}

var plans = struct {
	sync.Mutex
	byType map[reflect.Type]*plan
}{byType: map[reflect.Type]*plan{}}

// planOf returns the plan for the type, which two goroutines may create at the same time.
func planOf(t reflect.Type) *plan {
	plans.Lock()
	defer plans.Unlock()
	return newPlan(t)
}

func newPlan(t reflect.Type) *plan {
	if known := plans.byType[t]; known != nil {
		return known
	}
	p := &plan{write: writers[t]}
	plans.byType[t] = p
	switch {
	case p.write != nil:
	case skipped[t], t.Kind() == reflect.Func, t.Kind() == reflect.Chan, t.Kind() == reflect.Interface:
		p.skip = true // policies, and what allocations of them choose: the token of the allocation has the view
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := field{i, newPlan(t.Field(i).Type)}
			switch t.Field(i).Name {
			case "Token", "token":
				f.plan = &plan{write: func(p *part, v reflect.Value) { p.numberIn(token, v.String()) }}
			case "number", "Begun", "overtaken":
				f.plan = &plan{write: func(p *part, v reflect.Value) { p.mark(requestNumber, v.Int()) }}
			case "ResourceVersion":
				f.plan = &plan{write: func(p *part, v reflect.Value) { p.numberIn(version, v.String()) }}
			}
			if skippedFields[t.String()+"."+t.Field(i).Name] {
				continue
			}
			if !f.plan.skip {
				p.fields = append(p.fields, f)
			}
		}
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		p.elem = newPlan(t.Elem())
	}
	return p
}

var skipped = map[reflect.Type]bool{
	reflect.TypeFor[*Scope](): true, reflect.TypeFor[*engine.Engine](): true, reflect.TypeFor[*snapshot.Node](): true,
}

// skippedFields are derived from others, or steps do not see them.
var skippedFields = map[string]bool{
	"search.World.rejected":  true, // the replicas have it
	"search.replica.cluster": true, "search.replica.owned": true, "search.replica.changes": true, "search.replica.shown": true, "search.replica.freed": true,

	"cluster.State.lookups": true, "cluster.State.mu": true, "cluster.State.published": true, "cluster.State.unboundVersion": true,
	"snapshot.Builder.budgets": true, "snapshot.Builder.dirtyBudgets": true, "snapshot.Builder.signals": true, "snapshot.Builder.freeRows": true,
	"snapshot.Builder.rows": true, "snapshot.Builder.devices": true, "snapshot.Builder.journal": true, "snapshot.nodeState.configMaps": true,
	"snapshot.nodeState.facts": true, "snapshot.nodeState.row": true, "snapshot.Builder.current": true,
}

// cluster writes the state of the cluster, and its View.
func (p *part) cluster(c *offline) {
	state := reflect.ValueOf(c.State).Elem()
	p.value(state, planOf(state.Type()))
}

// append appends another part.
func (p *part) append(other *part) {
	for _, m := range other.marks {
		m.at += len(p.bytes)
		p.marks = append(p.marks, m)
	}
	p.bytes = append(p.bytes, other.bytes...)
}

var writers map[reflect.Type]func(p *part, v reflect.Value)

func init() {
	writers = map[reflect.Type]func(p *part, v reflect.Value){
		reflect.TypeFor[*corev1.Pod]():    func(p *part, v reflect.Value) { p.pod((*corev1.Pod)(v.UnsafePointer())) },
		reflect.TypeFor[*corev1.Node]():   func(p *part, v reflect.Value) { p.node((*corev1.Node)(v.UnsafePointer())) },
		reflect.TypeFor[*snapshot.View](): func(p *part, v reflect.Value) { p.view((*snapshot.View)(v.UnsafePointer())) },
		reflect.TypeFor[*ledger.Object](): func(p *part, v reflect.Value) { p.ledger((*ledger.Object)(v.UnsafePointer())) },
		reflect.TypeFor[time.Time](): func(p *part, v reflect.Value) {
			p.mark(timestamp, (*time.Time)(unsafe.Pointer(v.UnsafeAddr())).UnixMicro())
		},
		reflect.TypeFor[error](): func(p *part, v reflect.Value) { p.err(*(*error)(unsafe.Pointer(v.UnsafeAddr()))) },
		reflect.TypeFor[map[string]string](): func(p *part, v reflect.Value) {
			p.annotations(*(*map[string]string)(unsafe.Pointer(v.UnsafeAddr())))
		},
		reflect.TypeFor[ledger.Operation](): func(p *part, v reflect.Value) {
			p.bool(v.FieldByName("choose").IsNil())
			p.bool(v.FieldByName("shared").Bool())
			held := (*snapshot.LedgerPod)(unsafe.Pointer(v.FieldByName("pod").UnsafeAddr()))
			id, view, _ := strings.Cut(held.Token, ".")
			p.string(string(held.UID))
			p.string(held.Node)
			p.numberIn(token, id)
			p.string(view)
		},
	}
}

func (p *part) value(v reflect.Value, by *plan) {
	switch {
	case by.skip:
	case by.write != nil:
		by.write(p, v)
	default:
		p.kind(v, by)
	}
}

func (p *part) kind(v reflect.Value, by *plan) {
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range by.fields {
			p.value(v.Field(f.index), f.plan)
		}
	case reflect.Pointer:
		if v.IsNil() {
			p.bool(false)
			return
		}
		p.bool(true)
		if v.Type() == reflect.TypeFor[*ledger.Submission]() {
			p.mark(pointer, int64(uintptr(v.UnsafePointer()))) // whoever waits for the operation has the same
		}
		p.value(v.Elem(), by.elem)
	case reflect.Slice:
		p.bytes = append(p.bytes, byte(v.Len()))
		for i := range v.Len() {
			p.value(v.Index(i), by.elem)
		}
	case reflect.Map:
		p.entries(reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem(), by)
	case reflect.String:
		p.string(v.String())
	case reflect.Int, reflect.Int64:
		p.int(v.Int())
	case reflect.Bool:
		p.bool(v.Bool())
	default:
		panic("search: cannot write a " + v.Type().String())
	}
}

func (p *part) annotations(of map[string]string) {
	if p.bool(of[annotation] != ""); of[annotation] != "" {
		p.string(of[annotation])
	}
	p.bool(of[asksForSeat] != "")
	p.bool(of[cluster.ReleaseAnnotation] != "")
	p.string(of[changes])
}

// entries writes a map, in order of the keys.
func (p *part) entries(m reflect.Value, by *plan) {
	p.bytes = append(p.bytes, byte(m.Len()))
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(keyOf(a), keyOf(b)) })
	for _, key := range keys {
		p.string(keyOf(key))
		value := reflect.New(m.Type().Elem()).Elem()
		value.Set(m.MapIndex(key))
		p.value(value, by.elem)
	}
}

func keyOf(key reflect.Value) string {
	if key.Kind() == reflect.Struct { // a namespaced name
		key = key.FieldByName("Name")
	}
	return key.String()
}

func (p *part) node(node *corev1.Node) {
	if p.bool(node != nil); node != nil {
		p.string(node.Annotations[units])
	}
}

func (p *part) pod(pod *corev1.Pod) {
	if pod == nil {
		p.bool(false)
		return
	}
	p.bool(true)
	p.string(string(pod.UID))
	p.numberIn(version, pod.ResourceVersion)
	p.string(pod.Spec.NodeName)
	p.string(pod.Status.NominatedNodeName)
	p.bool(pod.DeletionTimestamp != nil)
	p.bool(snapshot.Ended(pod))
	p.annotations(pod.Annotations)
}

func (p *part) ledger(o *ledger.Object) {
	if o == nil {
		p.bool(false)
		return
	}
	p.bool(true)
	p.numberIn(version, o.ResourceVersion)
	p.mark(generation, o.Generation)
	p.value(reflect.ValueOf(&o.Spec).Elem(), planOf(reflect.TypeFor[snapshot.Ledger]()))
}

// err writes what steps can know of an error.
func (p *part) err(err error) {
	if err == nil {
		p.bool(false)
		return
	}
	p.bytes = append(p.bytes, 1+reasonOf(err))
	for _, is := range []error{binder.ErrOutcomeUnknown, binder.ErrPodChanged, ledger.ErrNotServed} {
		p.bool(errors.Is(err, is))
	}
	var unusable *engine.UnusableAllocationError
	if errors.As(err, &unusable) {
		p.value(reflect.ValueOf(unusable).Elem(), planOf(reflect.TypeFor[engine.UnusableAllocationError]()))
	}
}
