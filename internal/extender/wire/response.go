package wire

import (
	"encoding/json"
	"io"
	"net"
	"strconv"
)

// Failure is a rejected node of the request, with the reason.
type Failure struct {
	Index int32  // index of the node, 0 ≤ Index < Len
	Text  string // for the user; without numbers, because kube-scheduler counts equal texts
	// Unresolvable is true if evicting pods from the node would not help.
	Unresolvable bool
}

const (
	filterNames      = `{"Nodes":null,"NodeNames":[`
	filterNamesEnd   = `],"FailedNodes":`
	filterNodes      = `{"Nodes":{"metadata":{},"items":[`
	filterNodesEnd   = `]},"NodeNames":null,"FailedNodes":`
	filterUnresolved = `,"FailedAndUnresolvableNodes":`
	filterEnd        = `,"Error":""}`

	priorityFirst = `[{"Host":`
	priorityScore = `,"Score":`
	priorityNext  = `},{"Host":`
)

// minSplice is the length from which a part of the body is spliced into the response: copying a
// shorter part is faster than writing it separately.
const minSplice = 32 << 10

// A Response is text with long parts of the request's body in between, which are not
// copied. The zero Response is empty. A Response is invalid after the body changes.
type Response struct {
	// Text is the response without the spliced parts.
	Text  []byte
	parts net.Buffers // Text[:done] and the spliced parts, in order
	done  int
}

// splice adds a part of the body, which is not copied.
func (a *Response) splice(part []byte) {
	a.parts = append(a.parts, a.Text[a.done:], part)
	a.done = len(a.Text)
}

// Reset empties the response. It keeps the memory of Text.
func (a *Response) Reset() {
	clear(a.parts)
	a.Text, a.parts, a.done = a.Text[:0], a.parts[:0], 0
}

// Len returns the length of the whole response.
func (a *Response) Len() int {
	n := len(a.Text) - a.done
	for _, part := range a.parts {
		n += len(part)
	}
	return n
}

// WriteTo writes the whole response, once.
func (a *Response) WriteTo(w io.Writer) (written int64, err error) {
	rest := append(a.parts, a.Text[a.done:])
	return rest.WriteTo(w)
}

// AppendFilterResult appends the response to a filter call, an ExtenderFilterResult in the mode of
// r. Text must not share memory with the body.
//
// kept lists the nodes that pass, ascending and without duplicates. Their JSON is copied from the
// request unchanged. failures are the rejected nodes, preferably with equal texts next to each
// other. The two lists must be disjoint and without duplicates. AppendFilterResult does not check
// any of this, but it panics if an index is out of range.
//
// kube-scheduler assumes that preemption cannot help on a node in none of the lists. This only
// matters if kept is empty.
func (a *Response) AppendFilterResult(r *Request, kept []int32, failures []Failure) {
	begin, end := filterNames, filterNamesEnd
	if r.mode == Nodes {
		begin, end = filterNodes, filterNodesEnd
	}
	a.Text = append(a.Text, begin...)
	for rest := kept; len(rest) > 0; {
		if len(rest) < len(kept) {
			a.Text = append(a.Text, ',')
		}
		var run []byte
		if run, rest = r.run(rest); len(run) >= minSplice {
			a.splice(run)
		} else {
			a.Text = append(a.Text, run...)
		}
	}
	a.Text = append(a.Text, end...)
	a.Text = r.appendFailures(a.Text, failures, false)
	a.Text = append(a.Text, filterUnresolved...)
	a.Text = r.appendFailures(a.Text, failures, true)
	a.Text = append(a.Text, filterEnd...)
}

// run returns the JSON of the first nodes of kept that are adjacent in the request, and the rest of
// kept. Only commas and white space are between adjacent nodes, so that one copy is enough for the
// whole run.
func (r *Request) run(kept []int32) (text []byte, rest []int32) {
	n := 1
	for n < len(kept) && kept[n] == kept[n-1]+1 {
		n++
	}
	first, last := kept[0], kept[n-1]
	if r.mode == Nodes {
		return r.body[r.nodes[first].from:r.nodes[last].to], kept[n:]
	}
	return r.body[r.names[first].from-1 : r.names[last].to+1], kept[n:]
}

// appendFailures appends a FailedNodesMap of the failures that are unresolvable, or of the others;
// null if there are none. There are few texts, and equal ones are adjacent, so it copies the
// encoding of the previous text.
func (r *Request) appendFailures(dst []byte, failures []Failure, unresolvable bool) []byte {
	next := byte('{')
	var text []byte // of the previous failure
	var previous string
	for _, f := range failures {
		if f.Unresolvable != unresolvable {
			continue
		}
		if text == nil || f.Text != previous {
			text, _ = json.Marshal(f.Text) // every string can be marshaled
			previous = f.Text
		}
		dst = append(append(dst, next), r.quotedName(f.Index)...)
		dst = append(append(dst, ':'), text...)
		next = ','
	}
	if text == nil {
		return append(dst, "null"...)
	}
	return append(dst, '}')
}

// quotedName returns the name of node i as in the body, with the quotes.
func (r *Request) quotedName(i int32) []byte {
	name := r.names[i]
	return r.body[name.from-1 : name.to+1]
}

// AppendHostPriorities appends the response to a prioritize call, a HostPriorityList, to dst and
// returns it. scores[i] is the score of node i.
//
// The list omits hosts with score 0. kube-scheduler counts a missing host as 0, and decodes the
// shorter list faster.
func AppendHostPriorities(dst []byte, r *Request, scores []int64) []byte {
	host := priorityFirst
	for i, score := range scores {
		if score == 0 {
			continue
		}
		dst = append(dst, host...)
		dst = append(dst, r.quotedName(int32(i))...)
		dst = append(dst, priorityScore...)
		dst = strconv.AppendInt(dst, score, 10)
		host = priorityNext
	}
	if host == priorityFirst {
		return append(dst, "[]"...)
	}
	return append(dst, "}]"...)
}
