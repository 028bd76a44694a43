package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/extender/wire"
)

const (
	threeNames = `{"Pod":{},"NodeNames":["a","b","c"]}`
	threeNodes = `{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"x":"y"}}},{"metadata":{"name":"b"}},{"kind":"Node","metadata":{"name":"c"},"unknown":[1]}]}}`
	oddNames   = "{\"Pod\":{},\"NodeNames\":[\n  \"a\\u0062\" ,\n  \"\\\"<é>\\\"\",\n  \"c\"\n]}"
)

// filterResult returns the answer as written.
func filterResult(t tester, r *wire.Request, kept []int32, failed, unresolvable []wire.Failure) []byte {
	t.Helper()
	var a wire.Response
	a.AppendFilterResult(r, kept, failures(failed, unresolvable))
	var written bytes.Buffer
	n, err := a.WriteTo(&written)
	if err != nil || n != int64(a.Len()) || written.Len() != a.Len() {
		t.Fatalf("wrote %d bytes and returned %d, %v; the answer has %d", written.Len(), n, err, a.Len())
	}
	return written.Bytes()
}

// failures returns both lists together.
func failures(failed, unresolvable []wire.Failure) []wire.Failure {
	all := slices.Clone(failed)
	for _, f := range unresolvable {
		f.Unresolvable = true
		all = append(all, f)
	}
	return all
}

// Long runs of adjacent nodes are not copied, and keep their place.
func TestFilterResultSplicesLongRuns(t *testing.T) {
	names := make([]string, 3000)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i/256, i%256))
	}
	r := decoded(t, `{"Pod":{},"NodeNames":[`+strings.Join(names, ",")+`]}`)
	var kept []int32
	var failed []wire.Failure
	for i := range int32(len(names)) {
		if i%1000 == 3 || i == 1500 {
			failed = append(failed, wire.Failure{Index: i, Text: "no GPU"})
		} else {
			kept = append(kept, i)
		}
	}
	requireFilterResult(t, r, filterResult(t, r, kept, failed, nil), kept, failed, nil)

	var a wire.Response
	a.AppendFilterResult(r, kept, failed)
	if len(a.Text) > a.Len()/2 {
		t.Errorf("the answer copies %d of %d bytes", len(a.Text), a.Len())
	}
	a.Reset()
	if a.Len() != 0 {
		t.Errorf("%d bytes after Reset", a.Len())
	}
}

// requireFilterResult checks that kube-scheduler decodes the intended result from the answer, whose
// Nodes are those of the request. It does not decode them, since a resource quantity such as
// 1e-9999999 takes its decoder 10 s.
func requireFilterResult(t tester, r *wire.Request, answer []byte, kept []int32, failed, unresolvable []wire.Failure) {
	t.Helper()
	type list struct {
		Metadata map[string]string
		Items    []json.RawMessage
	}
	type result struct {
		Nodes                                   *list
		NodeNames                               *[]string
		FailedNodes, FailedAndUnresolvableNodes extenderv1.FailedNodesMap
		Error                                   string
	}
	want := result{FailedNodes: failuresMap(r, failed), FailedAndUnresolvableNodes: failuresMap(r, unresolvable)}
	names, nodes := []string{}, []json.RawMessage{}
	for _, i := range kept {
		names, nodes = append(names, string(r.Name(int(i)))), append(nodes, r.Node(int(i)))
	}
	if want.NodeNames = &names; r.Mode() == wire.Nodes {
		want.NodeNames, want.Nodes = nil, &list{map[string]string{}, nodes}
	}
	var got result
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("kube-scheduler decodes another result (-want +got):\n%s", diff)
	}
}

func failuresMap(r *wire.Request, failures []wire.Failure) extenderv1.FailedNodesMap {
	if len(failures) == 0 {
		return nil
	}
	m := extenderv1.FailedNodesMap{}
	for _, f := range failures {
		m[string(r.Name(int(f.Index)))] = string([]rune(f.Text))
	}
	return m
}

// requirePriorities decodes the answer as kube-scheduler does: it has the nonzero scores.
func requirePriorities(t tester, r *wire.Request, answer []byte, scores []int64) {
	t.Helper()
	want := extenderv1.HostPriorityList{}
	for i, score := range scores {
		if score != 0 {
			want = append(want, extenderv1.HostPriority{Host: string(r.Name(i)), Score: score})
		}
	}
	var got extenderv1.HostPriorityList
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("kube-scheduler decodes other scores (-want +got):\n%s", diff)
	}
}
