package wire

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Failure says why a node of the request was rejected.
type Failure struct {
	Index int32  // which node, 0 ≤ Index < Len
	Text  string // for the user. kube-scheduler counts equal texts, so leave numbers out
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

// minSplice is the length from which a part of the body is spliced into the
// answer: shorter ones are quicker copied than written by themselves.
const minSplice = 32 << 10

// An Answer is text of our own with long parts of the request's body between,
// which are not copied. The zero Answer is empty. It must not be used any more
// when the body changes.
type Answer struct {
	// Text is the answer, but for what is spliced into it.
	Text    []byte
	splices []splice
}

// splice is a part of a body, to stand before Text[at:].
type splice struct {
	at   int
	body []byte
}

// Reset empties the answer. It keeps the memory of Text.
func (a *Answer) Reset() {
	clear(a.splices)
	a.Text, a.splices = a.Text[:0], a.splices[:0]
}

// Len is the length of the whole answer.
func (a *Answer) Len() int {
	n := len(a.Text)
	for _, s := range a.splices {
		n += len(s.body)
	}
	return n
}

// WriteTo writes the whole answer.
func (a *Answer) WriteTo(w io.Writer) (written int64, err error) {
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

// AppendFilterResult appends the answer to a filter call, an
// ExtenderFilterResult in the mode of r. Only if Text is too small is new memory
// allocated for it, once. Text must not share memory with the body.
//
// kept lists the nodes that pass, in ascending order and each once. Their JSON
// is taken from the request as it stands. failed and unresolvable list the
// rejected nodes, preferably those with equal texts together; no node belongs
// in two of the three lists, and none may be listed twice. An empty list of
// failures is answered as null. None of this is checked, but an index outside of
// the request panics.
//
// kube-scheduler takes a node in none of the lists for one that preemption cannot
// help, which only matters when kept is empty.
func (a *Answer) AppendFilterResult(r *Request, kept []int32, failed, unresolvable []Failure) {
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

// AppendHostPriorities appends the answer to a prioritize call, a
// HostPriorityList, to dst and returns it. Only if dst is too small is new memory
// allocated, once.
// scores[k] is the score of node nodes[k], or of node k if nodes is nil.
//
// Hosts with score 0 are left out. kube-scheduler counts a host that is missing as
// 0, and decodes the shorter list sooner.
func AppendHostPriorities(dst []byte, r *Request, nodes []int32, scores []int64) []byte {
	name := func(k int) []byte {
		if nodes != nil {
			k = int(nodes[k])
		}
		return r.quotedName(int32(k))
	}
	size := len("[]")
	for k, score := range scores {
		if score != 0 {
			size += len(priorityNext) + len(name(k)) + len(priorityScore) + maxInt64
		}
	}
	dst = slices.Grow(dst, size)
	host := priorityFirst
	for k, score := range scores {
		if score == 0 {
			continue
		}
		dst = append(dst, host...)
		dst = append(dst, name(k)...)
		dst = append(dst, priorityScore...)
		dst = strconv.AppendInt(dst, score, 10)
		host = priorityNext
	}
	if host == priorityFirst {
		return append(dst, "[]"...)
	}
	return append(dst, "}]"...)
}

// AppendError appends the answer to a filter or prioritize call that cannot be
// judged, an ExtenderFilterResult with nothing but Error, to dst and returns it.
// It needs no Request, since often that is what could not be read. An empty text
// would mean success, and is answered as "unknown error".
//
// A HostPriorityList has no room for an error, and an empty list would be a
// verdict. So prioritize gets the same object: kube-scheduler, which wants a
// list, then reports a decoding error at its log level 5 and goes on without our
// scores, which is what it does about any failed prioritize call, and everybody
// else can read what is wrong.
func AppendError(dst []byte, text string) []byte {
	if text == "" {
		text = "unknown error"
	}
	dst = slices.Grow(dst, len(filterError)+textSize(text)+len("}"))
	dst = append(dst, filterError...)
	dst = appendText(dst, text)
	return append(dst, '}')
}

// quotedName returns the name of node i as it stands in the body, quotes included.
func (r *Request) quotedName(i int32) []byte {
	name := r.names[i]
	return r.body[name.from-1 : name.to+1]
}

// run returns the JSON of the nodes at the head of kept that are neighbours in
// the request, and the rest of kept. Between neighbours there are only commas
// and white space, so that one copy does for the whole run.
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

// AppendKept appends the body of the request as it would be about the kept nodes alone, which are listed in ascending order and each
// once: what kube-scheduler sends in the prioritize call that follows a filter call. The request must be by names.
func (r *Request) AppendKept(dst []byte, kept []int32) []byte {
	dst = slices.Grow(dst, len(r.body))
	dst = append(dst, r.body[:r.names[0].from-1]...)
	for rest := kept; len(rest) > 0; {
		if len(rest) < len(kept) {
			dst = append(dst, ',')
		}
		var run []byte
		run, rest = r.run(rest)
		dst = append(dst, run...)
	}
	return append(dst, r.body[r.names[len(r.names)-1].to+1:]...)
}

// keptSize is the length of the runs that are copied, and of the commas.
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

// appendFailures appends a FailedNodesMap. Texts are few and come in groups, so
// what the previous one was encoded to is copied.
func (r *Request) appendFailures(dst []byte, failures []Failure) []byte {
	if len(failures) == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	var from, to int // the previous text with the colon and the comma around it
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

// textSize is the most that appendText may append.
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
		return append(dst, `""`...) // not reached: any string can be marshalled
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
