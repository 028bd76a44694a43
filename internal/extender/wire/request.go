package wire

import (
	"bytes"
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
	body    []byte
	mode    Mode
	escaped bool // some name has escapes
	pod     span
	podMeta meta
	nodes   []span // Nodes mode: the JSON of each node
	names   []span // each node's name, between its quotes

	// Memory for both kinds of names; names is one of them. Both are kept because a later null can
	// replace an earlier key.
	listNames, nodeNames []span
}

// Reset empties the request, so that a pooled Request does not keep a large body alive. It keeps
// the memory of the lists, at most 2 MB.
func (r *Request) Reset() {
	*r = Request{nodes: r.nodes[:0], listNames: r.listNames[:0], nodeNames: r.nodeNames[:0]}
}

// Mode returns how the request lists its nodes, and 0 without a request.
func (r *Request) Mode() Mode { return r.mode }

// Len returns the number of requested nodes: at least one, and 0 without a request.
func (r *Request) Len() int { return len(r.names) }

// Name returns the name of node i, 0 ≤ i < Len. It is valid UTF-8 and not empty, but may be a name
// that Kubernetes does not allow. The bytes belong to the body; a name with escapes is a new slice
// on each call.
func (r *Request) Name(i int) []byte {
	name := r.at(r.names[i])
	if r.escaped {
		return unquote(name)
	}
	return name
}

// Node returns node i as JSON, 0 ≤ i < Len, and nil in Names mode. The bytes belong to the body.
// Only the name is checked.
func (r *Request) Node(i int) []byte {
	if r.mode != Nodes {
		return nil
	}
	return r.at(r.nodes[i])
}

// Pod returns the Pod as JSON, and nil without a request. The bytes belong to the body. Only
// [Request.PodMeta] is checked: decoding the Pod may fail.
func (r *Request) Pod() []byte { return r.at(r.pod) }

// PodMeta returns the identity of the Pod and its version, so that a known Pod need not be decoded.
// A part that the request omits is empty. All parts are empty if one of them has escapes: then
// decode the Pod. The bytes belong to the body.
func (r *Request) PodMeta() (namespace, name, uid, resourceVersion []byte) {
	m := &r.podMeta
	namespace, name, uid, resourceVersion = r.at(m.namespace), r.at(m.name), r.at(m.uid), r.at(m.resourceVersion)
	for _, part := range [][]byte{namespace, name, uid, resourceVersion} {
		if r.escaped && bytes.IndexByte(part, '\\') >= 0 {
			return nil, nil, nil, nil
		}
	}
	return namespace, name, uid, resourceVersion
}

// at returns a part of the body, capped so that an append cannot reach the rest.
func (r *Request) at(s span) []byte { return r.body[s.from:s.to:s.to] }

var (
	keyPod       = []byte("Pod")
	keyNodes     = []byte("Nodes")
	keyNodeNames = []byte("NodeNames")
	keyItems     = []byte("items")
)

// Decode reads the body of a filter or prioritize call; the package documentation describes what it
// accepts. The body must not change while the Request is in use. An error is one line for the
// operator who runs the caller, and leaves the Request as after Reset.
func (r *Request) Decode(body []byte) error {
	r.Reset()
	if err := r.decode(body); err != nil {
		r.Reset()
		return err
	}
	return nil
}

func (r *Request) decode(body []byte) error {
	s := scanner{body: body}
	if err := s.start(); err != nil {
		return err
	}
	r.body = body
	r.read(&s)
	return s.finish()
}

// read decodes the top-level object and determines the mode. The last value of a duplicate key
// replaces the ones before it.
func (r *Request) read(s *scanner) {
	var havePod, haveNodes, haveNames bool
	for more := s.begin('{', '}'); more; more = s.next('}') {
		switch key := s.key(); {
		case is(key, keyPod):
			if havePod = !s.null(); havePod {
				r.readPod(s)
			}
		case is(key, keyNodeNames):
			if haveNames = !s.null(); haveNames {
				r.readNames(s)
			}
		case is(key, keyNodes):
			if haveNodes = !s.null(); haveNodes {
				r.readNodes(s)
			}
		default:
			s.skipChecked(1)
		}
	}
	r.escaped = s.escaped
	switch {
	case s.err != nil:
	case !havePod:
		s.err = errors.New("request has no Pod")
	case haveNodes && haveNames:
		s.err = errors.New("request has both Nodes and NodeNames: one of them must be null or absent")
	case haveNames && len(r.listNames) == 0:
		s.err = errors.New("request has no nodes: NodeNames is empty")
	case haveNodes && len(r.nodes) == 0:
		s.err = errors.New("request has no nodes: Nodes.items is empty")
	case haveNames:
		r.mode, r.names = Names, r.listNames
	case haveNodes:
		r.mode, r.names = Nodes, r.nodeNames
	default:
		s.err = errors.New("request has neither Nodes nor NodeNames")
	}
}

func (r *Request) readPod(s *scanner) {
	r.podMeta = meta{}
	r.pod = s.object(1, &r.podMeta)
	s.checkMeta(&r.podMeta)
	s.within("Pod")
}

func (r *Request) readNames(s *scanner) {
	r.listNames = r.listNames[:0]
	for more := s.begin('[', ']'); more; more = s.next(']') {
		r.listNames = s.appendName(r.listNames, s.text("a string"))
	}
	s.within("NodeNames")
}

func (r *Request) readNodes(s *scanner) {
	r.nodes, r.nodeNames = r.nodes[:0], r.nodeNames[:0]
	for more := s.begin('{', '}'); more; more = s.next('}') {
		if is(s.key(), keyItems) {
			r.readItems(s)
		} else {
			s.skipChecked(2)
		}
	}
	s.within("Nodes")
}

func (r *Request) readItems(s *scanner) {
	r.nodes, r.nodeNames = r.nodes[:0], r.nodeNames[:0]
	if s.null() {
		return
	}
	for more := s.begin('[', ']'); more; more = s.next(']') {
		var m meta
		r.nodes = append(r.nodes, s.object(3, &m))
		r.nodeNames = s.appendName(r.nodeNames, m.name)
	}
	s.within(".items")
}

// appendName appends the name of the element just read. Errors about that element contain its
// index.
func (s *scanner) appendName(names []span, name span) []span {
	if s.err == nil && name.from < name.to && len(names) < maxNodes && (name.to-name.from <= MaxName || s.length(name) <= MaxName) {
		return append(names, name)
	}
	s.badElement(len(names), name)
	return names
}

func (s *scanner) badElement(i int, name span) {
	switch {
	case s.err != nil:
	case name.from == name.to:
		s.err = errors.New("the node has no name")
	case s.length(name) > MaxName:
		s.err = tooLong("the name", s.length(name), MaxName)
	default:
		s.err = fmt.Errorf("more than %d nodes", maxNodes)
	}
	s.within("[" + strconv.Itoa(i) + "]")
}
