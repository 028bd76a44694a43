package wire

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Failure is a rejected node of the request, with the reason.
type Failure struct {
	Index int32  // index of the node, 0 ≤ Index < Len
	Text  string // for the user; without numbers, because kube-scheduler counts equal texts
}

const (
	filterNames      = `{"Nodes":null,"NodeNames":[`
	filterNamesEnd   = `],"FailedNodes":`
	filterNodes      = `{"Nodes":{"metadata":{},"items":[`
	filterNodesEnd   = `]},"NodeNames":null,"FailedNodes":`
	filterUnresolved = `,"FailedAndUnresolvableNodes":`
	filterEnd        = `,"Error":""}`
	filterError      = `{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":`

	priorityFirst = `[{"Host":`
	priorityScore = `,"Score":`
	priorityNext  = `},{"Host":`

	maxInt64 = len("-9223372036854775808")
)

// minSplice is the length from which a part of the body is spliced into the response: copying a
// shorter part is faster than writing it separately.
const minSplice = 32 << 10

// A Response is text with long parts of the request's body in between, which are not
// copied. The zero Response is empty. A Response is invalid after the body changes.
type Response struct {
	// Text is the response without the spliced parts.
	Text    []byte
	splices []splice
}

// splice is a part of the body that comes before Text[at:].
type splice struct {
	at   int
	body []byte
}

// Reset empties the response. It keeps the memory of Text.
func (a *Response) Reset() {
	clear(a.splices)
	a.Text, a.splices = a.Text[:0], a.splices[:0]
}

// Len returns the length of the whole response.
func (a *Response) Len() int {
	n := len(a.Text)
	for _, s := range a.splices {
		n += len(s.body)
	}
	return n
}

// WriteTo writes the whole response.
func (a *Response) WriteTo(w io.Writer) (written int64, err error) {
	at := 0
	write := func(part []byte) {
		if err == nil && len(part) > 0 {
			var n int
			n, err = w.Write(part)
			written += int64(n)
		}
	}
	for _, s := range a.splices {
		write(a.Text[at:s.at])
		write(s.body)
		at = s.at
	}
	write(a.Text[at:])
	return written, err
}

// AppendFilterResult appends the response to a filter call, an ExtenderFilterResult in the mode of
// r. It allocates at most once, if Text is too small. Text must not share memory with the body.
//
// kept lists the nodes that pass, ascending and without duplicates. Their JSON is copied from the
// request unchanged. failed and unresolvable list the rejected nodes, preferably with equal texts
// next to each other. The three lists must be disjoint and without duplicates. An empty list of
// failures becomes null. AppendFilterResult does not check any of this, but it panics if an index
// is out of range.
//
// kube-scheduler assumes that preemption cannot help on a node in none of the lists. This only
// matters if kept is empty.
func (a *Response) AppendFilterResult(r *Request, kept []int32, failed, unresolvable []Failure) {
	begin, end := filterNames, filterNamesEnd
	if r.mode == Nodes {
		begin, end = filterNodes, filterNodesEnd
	}
	a.Text = slices.Grow(a.Text, len(begin)+r.keptSize(kept)+len(end)+
		r.failuresSize(failed)+len(filterUnresolved)+r.failuresSize(unresolvable)+len(filterEnd))

	a.Text = append(a.Text, begin...)
	for rest := kept; len(rest) > 0; {
		if len(rest) < len(kept) {
			a.Text = append(a.Text, ',')
		}
		var run []byte
		if run, rest = r.run(rest); len(run) >= minSplice {
			a.splices = append(a.splices, splice{len(a.Text), run})
		} else {
			a.Text = append(a.Text, run...)
		}
	}
	a.Text = append(a.Text, end...)
	a.Text = r.appendFailures(a.Text, failed)
	a.Text = append(a.Text, filterUnresolved...)
	a.Text = r.appendFailures(a.Text, unresolvable)
	a.Text = append(a.Text, filterEnd...)
}

// AppendHostPriorities appends the response to a prioritize call, a HostPriorityList, to dst and
// returns it. It allocates at most once, if dst is too small. scores[i] is the score of node i.
//
// The list omits hosts with score 0. kube-scheduler counts a missing host as 0, and decodes the
// shorter list faster.
func AppendHostPriorities(dst []byte, r *Request, scores []int64) []byte {
	size := len("[]")
	for i, score := range scores {
		if score != 0 {
			size += len(priorityNext) + len(r.quotedName(int32(i))) + len(priorityScore) + maxInt64
		}
	}
	dst = slices.Grow(dst, size)
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

// AppendError appends the response to a failed filter or prioritize call, an ExtenderFilterResult
// with only an Error, to dst and returns it. It needs no Request, because decoding the request may
// have failed. An empty text would mean success, and becomes "unknown error".
//
// A HostPriorityList has no field for an error, and an empty list would be a result. So the
// response to prioritize is the same object: kube-scheduler expects a list, logs a decoding error
// at level 5 and continues without Outboard's scores, as after any failed prioritize call. Other
// clients can read the error.
func AppendError(dst []byte, text string) []byte {
	if text == "" {
		text = "unknown error"
	}
	dst = slices.Grow(dst, len(filterError)+textSize(text)+len("}"))
	dst = append(dst, filterError...)
	dst = appendText(dst, text)
	return append(dst, '}')
}

// quotedName returns the name of node i as in the body, with the quotes.
func (r *Request) quotedName(i int32) []byte {
	name := r.names[i]
	return r.body[name.from-1 : name.to+1]
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

// keptSize returns the length of the copied runs and of the commas.
func (r *Request) keptSize(kept []int32) (size int) {
	for len(kept) > 0 {
		var run []byte
		if run, kept = r.run(kept); len(run) < minSplice {
			size += len(run)
		}
		size += len(",")
	}
	return size
}

// appendFailures appends a FailedNodesMap. There are few texts, and equal ones are adjacent, so it
// copies the encoding of the previous text.
func (r *Request) appendFailures(dst []byte, failures []Failure) []byte {
	if len(failures) == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	var from, to int // where the previous text is, with its colon and comma
	for i, f := range failures {
		dst = append(dst, r.quotedName(f.Index)...)
		if i > 0 && f.Text == failures[i-1].Text {
			dst = append(dst, dst[from:to]...)
			continue
		}
		from = len(dst)
		dst = append(dst, ':')
		dst = appendText(dst, f.Text)
		dst = append(dst, ',')
		to = len(dst)
	}
	dst[len(dst)-1] = '}'
	return dst
}

func (r *Request) failuresSize(failures []Failure) (size int) {
	var text int
	for i, f := range failures {
		if i == 0 || f.Text != failures[i-1].Text {
			text = textSize(f.Text)
		}
		size += len(",") + len(r.quotedName(f.Index)) + len(":") + text
	}
	return size + len("null")
}

// textSize returns the most that appendText can append.
func textSize(text string) int {
	if isPlain(text) {
		return len(text) + len(`""`)
	}
	return len(`\u0000`)*len(text) + len(`""`)
}

// appendText appends text as a JSON string.
func appendText(dst []byte, text string) []byte {
	if isPlain(text) {
		dst = append(dst, '"')
		dst = append(dst, text...)
		return append(dst, '"')
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return append(dst, `""`...) // unreachable: every string can be marshaled
	}
	return append(dst, quoted...)
}

func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
