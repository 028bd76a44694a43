package firstfit

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"weak"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"outboard.dev/outboard/snapshot"
)

// Kind is a hash of what the allocator reads of a node for a request: the devices in their order,
// what is allocated of each, and those of their attributes that the request may read. It leaves
// out what differs between any two nodes: names, and attributes such as serial numbers.
//
// Invariant: on nodes of one kind, the allocator gives the request devices at the same places, and
// as much of each.
type Kind [sha256.Size]byte

// Kind returns the kind of the node for the request.
func (p *Predictor) Kind(r *Request, n *snapshot.Node) Kind {
	state := *p.states.Of(n)
	kind := state.fixed
	for i := range state.attributes {
		if a := &state.attributes[i]; r.readsAll || slices.Contains(r.reads, localName(a.name)) {
			subtle.XORBytes(kind[:], kind[:], a.values[:])
		}
	}
	return kind
}

// Read computes what later calls need of the node.
func (p *Predictor) Read(n *snapshot.Node) { p.states.Of(n) }

// attribute is the name of an attribute, and a hash of its values on all devices.
type attribute struct {
	name   string
	values Kind
}

// sliceKind is what does not change of a ResourceSlice. It is immutable.
type sliceKind struct {
	fixed      Kind        // of what each request reads
	attributes []attribute // those that the allocator reads only if a request names them
}

// sliceKinds are those of the slices in memory. It is safe for concurrent use.
type sliceKinds struct {
	mu    sync.Mutex
	known map[weak.Pointer[resourcev1.ResourceSlice]]*sliceKind
	most  int // when there are so many, those of former slices are removed
}

// setKind sets what [Predictor.Kind] reads.
func (s *nodeState) setKind(pools []snapshot.DevicePool, known *sliceKinds) {
	var fixed []byte
	attributes := map[string][]byte{}
	for i := range pools {
		first := map[string]int{} // the allocator rejects pools with a name that several devices have
		fixed = fmt.Appendf(fixed, "%q %d;", pools[i].Driver, len(pools[i].Slices))
		for at, published := range pools[i].Slices {
			of := known.of(published)
			fixed = append(fixed, of.fixed[:]...)
			for _, a := range of.attributes {
				attributes[a.name] = append(fmt.Appendf(attributes[a.name], "%d %d;", i, at), a.values[:]...)
			}
			for j := range published.Spec.Devices {
				name := published.Spec.Devices[j].Name
				if _, again := first[name]; !again {
					first[name] = len(first)
				}
				fixed = fmt.Appendf(fixed, "%d ", first[name])
				fixed = s.appendAllocated(fixed, structured.MakeDeviceID(pools[i].Driver, pools[i].Name, name))
			}
		}
	}
	s.fixed = hashOf(fixed)
	for name, values := range attributes {
		s.attributes = append(s.attributes, attribute{name, hashOf(fmt.Appendf(values, "%q", name))})
	}
}

// appendAllocated appends what is allocated of the device.
func (s *nodeState) appendAllocated(to []byte, id structured.DeviceID) []byte {
	if !structured.IsDeviceAllocated(id, &s.allocated) {
		return to
	}
	consumed := s.allocated.AggregatedCapacity[id]
	to = fmt.Appendf(to, "%t %d;", s.allocated.AllocatedDevices.Has(id), len(consumed))
	for _, name := range slices.Sorted(maps.Keys(consumed)) {
		to = fmt.Appendf(to, "%q %s;", name, consumed[name])
	}
	return to
}

// of returns the kind of the slice, which it computes once.
func (ks *sliceKinds) of(s *resourcev1.ResourceSlice) *sliceKind {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	key := weak.Make(s)
	if known := ks.known[key]; known != nil {
		return known
	}
	if len(ks.known) >= ks.most {
		maps.DeleteFunc(ks.known, func(key weak.Pointer[resourcev1.ResourceSlice], _ *sliceKind) bool {
			return key.Value() == nil
		})
		ks.most = 2*len(ks.known) + 1024
	}
	k := newSliceKind(s)
	ks.known[key] = k
	return k
}

// newSliceKind reads a slice. The allocator always parses versions, and rejects values of types that
// it does not know, so only plain attributes are told apart.
func newSliceKind(s *resourcev1.ResourceSlice) *sliceKind {
	spec := s.Spec
	spec.NodeName, spec.Pool.Name, spec.Pool.Generation = nil, "", 0
	spec.Devices = slices.Clone(spec.Devices)
	attributes := map[string][]byte{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		all := d.Attributes
		d.Name, d.Attributes = "", map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		for name, a := range all {
			if isPlain(&a) {
				attributes[string(name)] = fmt.Appendf(attributes[string(name)], "%d %q;", i, marshal(&a))
			} else {
				d.Attributes[name] = a
			}
		}
	}
	k := &sliceKind{fixed: hashOf(marshal(&spec))}
	for name, values := range attributes {
		k.attributes = append(k.attributes, attribute{name, hashOf(values)})
	}
	return k
}

// isPlain reports whether the attribute has a value that is always valid, and no other.
func isPlain(a *resourcev1.DeviceAttribute) bool {
	return (a.StringValue != nil || a.IntValue != nil || a.BoolValue != nil) && a.VersionValue == nil &&
		a.IntValues == nil && a.BoolValues == nil && a.StringValues == nil && a.VersionValues == nil
}

// attributeRead matches what a selector usually reads of a device. In other expressions, attributes
// may be computed or enumerated.
var attributeRead = regexp.MustCompile(`\bdevice\.(?:driver\b|allowMultipleAllocations\b|capacity\b|` +
	`attributes\["[^"\\]*"\](?:\.(\w+)|\["([^"\\]*)"\])\s*([(/]?))`)

// readsOf returns the local names of the attributes that a selector reads; all is true if it may read
// any.
func readsOf(expression string) (names []string, all bool) {
	for _, found := range attributeRead.FindAllStringSubmatch(expression, -1) {
		if name := found[1] + found[2]; name != "" {
			names = append(names, name)
		}
		all = all || found[3] != "" // a function of the attributes
	}
	return names, all || strings.Contains(attributeRead.ReplaceAllLiteralString(expression, ""), "device")
}

// localName returns the name of an attribute without its domain.
func localName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func hashOf(data []byte) Kind { return sha256.Sum256(data) }

// marshal returns the message, which the API server has stored: it has no invalid text.
func marshal(m interface{ Marshal() ([]byte, error) }) []byte {
	data, _ := m.Marshal()
	return data
}
