package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"outboard.dev/outboard/internal/extender/wire"
)

func seeds(f *testing.F) [][]byte {
	var bodies [][]byte
	requests, _ := payloads(f)
	for _, body := range requests {
		bodies = append(bodies, body)
	}
	for _, body := range []string{
		threeNames, threeNodes, oddNames,
		`{"Pod":{"metadata":{"name":"p"},"spec":[{"a":"\"}"}]},"NodeNames":["a"],"x":[{}]}`,
		`{"pod":{},"nodes":{"items":[{"metadata":{"name":"a"},"s":{]}]},"nodenames":null}`,
		`{"Pod":{},"NodeNames":["\ud800","\u0000"],"Nodes":null}`,
		`{"Pod":{},"NodeNames":["a"],"Nodes":{},"Nodes":null}`,
		`{"Pod":{"metadata":{"labels":{"\\":"\\\\\""}}},"NodeNames":["a","b",]}`,
		"{\"Pod\":{},\"NodeNames\":[\"\xff\",\"\x01\"]}",
	} {
		bodies = append(bodies, []byte(body))
	}
	return bodies
}

// FuzzDecode checks the package comment of Decode, for any bytes.
func FuzzDecode(f *testing.F) {
	for _, body := range seeds(f) {
		f.Add(body)
	}
	var r wire.Request
	f.Fuzz(func(t *testing.T, body []byte) { requireContract(t, &r, body) })
}

// requireContract compares Decode with encoding/json: Decode accepts the same well-formed requests, with the same meaning; it
// accepts malformed JSON only in the parts that it documents as unchecked.
func requireContract(t tester, r *wire.Request, body []byte) {
	t.Helper()
	before := bytes.Clone(body)
	err := r.Decode(body)
	if !bytes.Equal(before, body) {
		t.Fatalf("Decode changed the body from %q", before)
	}
	if err != nil {
		if r.Mode() != 0 || r.Len() != 0 || r.Pod() != nil {
			t.Fatal("the request is not empty after an error")
		}
		if text := err.Error(); strings.ContainsAny(text, "\r\n") || !utf8.ValidString(text) || len(text) > 300 {
			t.Fatalf("the error is not a short line: %q", text)
		}
		_, wantErr := readReference(body)
		if wantErr == nil && wellFormed(body) && !repeatsKeys(body) {
			t.Fatalf("Decode rejects a valid request: %v\n%s", err, body)
		}
		return
	}
	if repeatsKeys(body) {
		return // a second value that is null, or malformed, changes nothing
	}
	if json.Valid(body) {
		want, err := readReference(body)
		if err != nil {
			t.Fatalf("Decode accepts what encoding/json rejects: %v\n%s", err, body)
		}
		requireSame(t, r, want)
		return
	}
	skeleton := withoutObjects(body, r)
	want, err := readReference(skeleton)
	if err != nil {
		t.Fatalf("Decode accepts what encoding/json rejects outside of Pod and nodes: %v\n%s\nof %s", err, skeleton, body)
	}
	if want.mode != r.Mode() || len(want.names) != r.Len() {
		t.Fatalf("mode %v with %d nodes, want %v with %d", r.Mode(), r.Len(), want.mode, len(want.names))
	}
	for i, name := range want.names {
		if name != string(r.Name(i)) {
			t.Fatalf("name %d is %q, want %q", i, r.Name(i), name)
		}
	}
}

// repeatsKeys reports whether a relevant key may be repeated.
func repeatsKeys(body []byte) bool {
	if bytes.Contains(body, []byte("ſ")) {
		return true
	}
	lower := bytes.ToLower(body)
	for _, key := range []string{`"pod"`, `"nodes"`, `"nodenames"`, `"items"`, `victims"`, `\u`} {
		if n := bytes.Count(lower, []byte(key)); n > 1 || n > 0 && key == `\u` {
			return true
		}
	}
	return false
}

// FuzzFilterResult compares the answers with the verdicts, for any request and any texts.
func FuzzFilterResult(f *testing.F) {
	for i, body := range seeds(f) {
		f.Add(body, []byte{byte(i), 2, 1, 0}, "no GPU", "größer \"\x00\xff</script>")
	}
	var r wire.Request
	f.Fuzz(func(t *testing.T, body, verdicts []byte, text1, text2 string) {
		if r.Decode(body) != nil || len(verdicts) == 0 || hasRepeatedNames(&r) {
			return
		}
		var kept []int32
		var failed, unresolvable []wire.Failure
		scores := make([]int64, r.Len())
		for i := range int32(r.Len()) {
			verdict := verdicts[int(i)%len(verdicts)]
			scores[i] = int64(int8(verdict)) << (verdict % 64)
			failure := wire.Failure{Index: i, Text: text1}
			if verdict&4 != 0 {
				failure.Text = text2
			}
			switch verdict & 3 {
			case 0:
				failed = append(failed, failure)
			case 1:
				unresolvable = append(unresolvable, failure)
			default:
				kept = append(kept, i)
			}
		}
		answer := filterResult(t, &r, kept, failed, unresolvable)
		if wellFormedNodes(&r) {
			requireFilterResult(t, &r, answer, kept, failed, unresolvable)
		}
		requirePriorities(t, &r, wire.AppendHostPriorities(nil, &r, scores), scores)
	})
}

func hasRepeatedNames(r *wire.Request) bool {
	seen := map[string]bool{}
	for i := range r.Len() {
		seen[string(r.Name(i))] = true
	}
	return len(seen) < r.Len()
}

func wellFormedNodes(r *wire.Request) bool {
	for i := range r.Len() {
		if r.Mode() == wire.Nodes && !json.Valid(r.Node(i)) {
			return false
		}
	}
	return true
}
