package wire

import (
	"errors"
	"fmt"
	"strconv"
)

// maxNodes bounds the memory for a hostile request: 13 times the nodes that Kubernetes supports in
// one cluster.
const maxNodes = 1 << 16

// The lengths that Kubernetes allows. It does not restrict UIDs and versions; the API server
// creates UIDs of 36 bytes and versions of at most 20.
const (
	MaxName            = 253
	MaxNamespace       = 63
	MaxUID             = 128
	MaxResourceVersion = 128
)

// Mode is how a request lists its nodes. The response must be in the same mode.
type Mode uint8

const (
	// Names: the request has node names (nodeCacheCapable: true).
	Names Mode = iota + 1
	// Nodes: the request has whole Node objects (nodeCacheCapable: false).
	Nodes
)

// Request is a decoded filter or prioritize call: the positions of its parts in the body. The zero
// value is ready for Decode. Reuse a Request to keep its memory. Several goroutines may read it
// concurrently, but not while Decode or Reset runs.
type Request struct {
	podArgument
	mode  Mode
	nodes []span // Nodes mode: the JSON of each node
	names []span // each node's name, between its quotes
}

// podArgument is the pod of a request.
type podArgument struct {
	body []byte
	pod  span
	meta meta
}

// Pod returns the Pod as JSON, and nil without a request. The bytes belong to the body. Only its
// metadata are checked: decoding the Pod may fail.
func (p *podArgument) Pod() []byte { return p.at(p.pod) }

// PodVersion returns the UID and resourceVersion of the Pod, so that a known Pod need not be
// decoded. One that the request omits is empty.
func (p *podArgument) PodVersion() (uid, resourceVersion []byte) {
	return unquote(p.at(p.meta.uid)), unquote(p.at(p.meta.resourceVersion))
}

// at returns a part of the body, capped so that an append cannot reach the rest.
func (p *podArgument) at(s span) []byte { return p.body[s.from:s.to:s.to] }

// decode reads the object of a call: its Pod, and what read does, which reports whether it knows
// the key. missing returns what the object lacks besides a Pod.
func (p *podArgument) decode(body []byte, read func(s *scanner, key []byte) (known bool), missing func() error) error {
	s := &scanner{body: body}
	if err := s.start(); err != nil {
		return err
	}
	p.body = body
	havePod := false
	for more := s.begin('{', '}'); more; more = s.next('}') {
		switch key := s.key(); {
		case !is(key, keyPod):
			if !read(s, key) {
				s.skipChecked(1)
			}
		case s.value(havePod, "Pod"):
			havePod = true
			p.pod = s.object(1, &p.meta)
			s.checkMeta(&p.meta)
			s.within("Pod")
		}
	}
	switch {
	case s.err != nil:
	case !havePod:
		s.err = errors.New("request has no Pod")
	default:
		s.err = missing()
	}
	return s.finish()
}

// Reset empties the request, so that a pooled Request does not keep a large body alive. It keeps
// the memory of the lists, at most 1 MB.
func (r *Request) Reset() { *r = Request{nodes: r.nodes[:0], names: r.names[:0]} }

// Mode returns how the request lists its nodes, and 0 without a request.
func (r *Request) Mode() Mode { return r.mode }

// Len returns the number of requested nodes: at least one, and 0 without a request.
func (r *Request) Len() int { return len(r.names) }

// Name returns the name of node i, 0 ≤ i < Len. It is valid UTF-8 and not empty, but may be a name
// that Kubernetes does not allow. The bytes belong to the body; a name with escapes is a new slice
// on each call.
func (r *Request) Name(i int) []byte {
	return unquote(r.at(r.names[i]))
}

// Node returns node i as JSON, 0 ≤ i < Len, and nil in Names mode. The bytes belong to the body.
// Only the name is checked.
func (r *Request) Node(i int) []byte {
	if r.mode != Nodes {
		return nil
	}
	return r.at(r.nodes[i])
}

var (
	keyPod       = []byte("Pod")
	keyNodes     = []byte("Nodes")
	keyNodeNames = []byte("NodeNames")
	keyItems     = []byte("items")
)

// lists is how an error names what a request has one of.
const lists = "list of nodes (Nodes and NodeNames)"

// Decode reads the body of a filter or prioritize call; the package documentation describes what it
// accepts. The body must not change while the Request is in use. An error is one line for the
// operator who runs the caller, and leaves the Request as after Reset.
func (r *Request) Decode(body []byte) error {
	r.Reset()
	err := r.decode(body, r.read, r.missing)
	if err != nil {
		r.Reset()
	}
	return err
}

// read decodes the list of nodes, which determines the mode.
func (r *Request) read(s *scanner, key []byte) (known bool) {
	switch {
	case is(key, keyNodeNames):
		if s.value(r.mode != 0, lists) {
			r.mode = Names
			r.readNames(s)
		}
	case is(key, keyNodes):
		if s.value(r.mode != 0, lists) {
			r.mode = Nodes
			r.readNodes(s)
		}
	default:
		return false
	}
	return true
}

func (r *Request) missing() error {
	switch {
	case r.mode == 0:
		return errors.New("request has neither Nodes nor NodeNames")
	case len(r.names) > 0:
		return nil
	case r.mode == Names:
		return errors.New("request has no nodes: NodeNames is empty")
	}
	return errors.New("request has no nodes: Nodes.items is empty")
}

func (r *Request) readNames(s *scanner) {
	for more := s.begin('[', ']'); more; more = s.next(']') {
		r.names = s.appendName(r.names, s.text("a string"))
	}
	s.within("NodeNames")
}

func (r *Request) readNodes(s *scanner) {
	for more := s.begin('{', '}'); more; more = s.next('}') {
		if !is(s.key(), keyItems) {
			s.skipChecked(2)
		} else if s.value(len(r.names) > 0, lists) {
			r.readItems(s)
		}
	}
	s.within("Nodes")
}

func (r *Request) readItems(s *scanner) {
	for more := s.begin('[', ']'); more; more = s.next(']') {
		var m meta
		r.nodes = append(r.nodes, s.object(3, &m))
		r.names = s.appendName(r.names, m.name)
	}
	s.within(".items")
}

// appendName appends the name of the element just read. Errors about that element contain its
// index.
func (s *scanner) appendName(names []span, name span) []span {
	switch {
	case s.err != nil:
	case name.from == name.to:
		s.err = errors.New("the node has no name")
	case len(names) == maxNodes:
		s.err = fmt.Errorf("more than %d nodes", maxNodes)
	case s.length(name) > MaxName:
		s.err = tooLong("the name", s.length(name), MaxName)
	default:
		return append(names, name)
	}
	s.within("[" + strconv.Itoa(len(names)) + "]")
	return names
}
