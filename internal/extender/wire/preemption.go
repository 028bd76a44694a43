package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxVictims bounds the victims of one request, and maxVictimsOnNode those on one node: the number
// of pods in the largest cluster that Kubernetes supports, and 37 times the number on one of its
// nodes.
const (
	maxVictims       = 150_000
	maxVictimsOnNode = 4096
)

// Victims are the pods that kube-scheduler proposes to evict from one node.
type Victims struct {
	UIDs          []string
	PDBViolations int64
}

// Preemption is a decoded preempt call. Its zero value is ready for Decode.
type Preemption struct {
	podArgument
	// Victims are the candidates by node name, from either of the two forms of a request. An entry
	// is nil if it is null in the request.
	Victims map[string]*Victims
	// Count is the number of victims on all nodes together.
	Count int
}

var (
	keyMetaVictims   = []byte("NodeNameToMetaVictims")
	keyWholeVictims  = []byte("NodeNameToVictims")
	keyPods          = []byte("Pods")
	keyPDBViolations = []byte("NumPDBViolations")
)

// Decode reads the body of a preempt call. It accepts what encoding/json decodes into an
// ExtenderPreemptionArgs with a Pod and one of the two maps of victims, with the differences in the
// package documentation. It decodes only the UIDs of victims: a whole Pod takes hundreds of times
// the memory of the `{}` from which it may be decoded. encoding/json would not do, even into
// structs that have only the UID: it decodes all victims before their number can be limited, and
// makes 16 bytes of each `{},`, and more while the slice grows, for as many as fit in the body.
//
// The body must not change while Pod and PodVersion are in use.
func (p *Preemption) Decode(body []byte) error {
	*p = Preemption{}
	return p.decode(body, p.read, func() error {
		if p.Victims == nil {
			return errors.New("request has neither NodeNameToMetaVictims nor NodeNameToVictims")
		}
		return nil
	})
}

func (p *Preemption) read(s *scanner, key []byte) (known bool) {
	switch {
	case is(key, keyMetaVictims):
		p.readVictims(s, keyMetaVictims, (*scanner).uid)
	case is(key, keyWholeVictims):
		p.readVictims(s, keyWholeVictims, (*scanner).podUID)
	default:
		return false
	}
	return true
}

// readVictims decodes one of the two maps. uid decodes one victim, which is not null.
func (p *Preemption) readVictims(s *scanner, key []byte, uid func(*scanner) span) {
	if !s.value(p.Victims != nil, "map of victims") {
		return
	}
	p.Victims = map[string]*Victims{}
	for more := s.begin('{', '}'); more; more = s.next('}') {
		name := s.text("a node name")
		s.colon()
		switch {
		case s.err != nil:
		case s.length(name) > MaxName:
			s.err = tooLong("the name of a node", s.length(name), MaxName)
		case len(p.Victims) == maxNodes:
			s.err = fmt.Errorf("more than %d nodes", maxNodes)
		default:
			node := string(unquote(s.body[name.from:name.to]))
			if p.Victims[node] = nil; !s.null() {
				p.Victims[node] = p.readNode(s, uid)
				s.within("[" + strconv.Quote(node) + "]")
			}
		}
	}
	s.within(string(key))
}

func (p *Preemption) readNode(s *scanner, uid func(*scanner) span) *Victims {
	victims := &Victims{}
	for more := s.begin('{', '}'); more; more = s.next('}') {
		switch key := s.key(); {
		case is(key, keyPods):
			p.readPods(s, victims, uid)
		case is(key, keyPDBViolations):
			s.integer(&victims.PDBViolations)
			s.within(".NumPDBViolations")
		default:
			s.skipChecked(3)
		}
	}
	return victims
}

func (p *Preemption) readPods(s *scanner, victims *Victims, uid func(*scanner) span) {
	victims.UIDs = nil
	if s.null() {
		return
	}
	for more := s.begin('[', ']'); more; more = s.next(']') {
		if s.null() {
			continue
		}
		at := uid(s)
		switch {
		case s.err != nil:
		case s.length(at) > MaxUID:
			s.err = tooLong("the UID", s.length(at), MaxUID)
		case len(victims.UIDs) == maxVictimsOnNode:
			s.err = fmt.Errorf("more than %d victims on one node", maxVictimsOnNode)
		case p.Count == maxVictims:
			s.err = fmt.Errorf("more than %d victims", maxVictims)
		default:
			p.Count++
			victims.UIDs = append(victims.UIDs, string(unquote(s.body[at.from:at.to])))
			continue
		}
		s.within(".Pods[" + strconv.Itoa(len(victims.UIDs)) + "]")
	}
}

// uid decodes a MetaPod.
func (s *scanner) uid() (uid span) {
	for more := s.begin('{', '}'); more; more = s.next('}') {
		switch key := s.key(); {
		case !is(key, keyUID):
			s.skipChecked(5)
		case !s.null():
			uid = s.text("a string")
		}
	}
	return uid
}

// podUID decodes a Pod.
func (s *scanner) podUID() span {
	var m meta
	s.object(5, &m)
	return m.uid
}

// integer decodes a number; null leaves the value unchanged.
func (s *scanner) integer(into *int64) {
	if s.null() {
		return
	}
	from := s.at
	s.skipScalar()
	if s.err == nil && json.Unmarshal(s.body[from:s.at], into) != nil {
		s.at = from
		s.fail("an integer")
	}
}
