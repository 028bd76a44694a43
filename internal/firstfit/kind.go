package firstfit

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

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
	known := p.kinds.Of(n)
	kind := known.fixed
	for i := range known.attributes {
		if a := &known.attributes[i]; r.readsAll || slices.Contains(r.reads, localName(a.name)) {
			subtle.XORBytes(kind[:], kind[:], a.values[:])
		}
	}
	return kind
}

// ReadKind computes what Kind needs to know of the node.
func (p *Predictor) ReadKind(n *snapshot.Node) { p.kinds.Of(n) }

// kinds are the kinds of a node for all requests.
type kinds struct {
	fixed      Kind // of what the allocator reads for each request
	attributes []attribute
}

// attribute is an attribute that the allocator reads only if the request names it, with a hash of
// its values on all devices.
type attribute struct {
	name   string
	values Kind
}

// kindsOf reads the node. The allocator always parses versions, and rejects values of types that it
// does not know.
func (p *Predictor) kindsOf(n *snapshot.Node) kinds {
	state := *p.states.Of(n)
	var fixed []byte
	plain := map[string][]byte{}
	place := 0
	for _, pool := range n.DevicePools() {
		first := map[string]int{} // the allocator rejects pools with a name that several devices have
		fixed = fmt.Appendf(fixed, "%q %d;", pool.Driver, len(pool.Slices))
		for _, s := range pool.Slices {
			spec := s.Spec
			spec.Devices, spec.NodeName, spec.Pool.Name, spec.Pool.Generation = nil, nil, "", 0
			fixed = fmt.Appendf(fixed, "%q %d;", marshal(&spec), len(s.Spec.Devices))
			for _, d := range s.Spec.Devices {
				if _, again := first[d.Name]; !again {
					first[d.Name] = place
				}
				fixed = fmt.Appendf(fixed, "%d;", first[d.Name])
				fixed = state.appendAllocated(fixed, pool.Driver, pool.Name, d.Name)
				for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
					if a := d.Attributes[name]; isPlain(&a) {
						plain[string(name)] = fmt.Appendf(plain[string(name)], "%d %q;", place, marshal(&a))
					} else {
						fixed = fmt.Appendf(fixed, "%q %q;", name, marshal(&a))
					}
				}
				d.Name, d.Attributes = "", nil
				fixed = fmt.Appendf(fixed, "%q;", marshal(&d))
				place++
			}
		}
	}
	k := kinds{fixed: hashOf(fixed)}
	for name, values := range plain {
		k.attributes = append(k.attributes, attribute{name, hashOf(fmt.Appendf(values, "%q", name))})
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

// readsOf returns the local names of the attributes that a selector reads; all is true if it may
// read any.
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
