package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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

func TestAppendFilterResult(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		request              string
		kept                 []int32
		failed, unresolvable []wire.Failure
		want                 string
	}{
		{"all names", threeNames, []int32{0, 1, 2}, nil, nil,
			`{"Nodes":null,"NodeNames":["a","b","c"],"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}`},
		{"some names", threeNames, []int32{0, 2}, []wire.Failure{{Index: 1, Text: "no GPU"}}, nil,
			`{"Nodes":null,"NodeNames":["a","c"],"FailedNodes":{"b":"no GPU"},"FailedAndUnresolvableNodes":null,"Error":""}`},
		{"no names: an empty list, not null", threeNames, nil, []wire.Failure{{Index: 0, Text: "no GPU"}, {Index: 2, Text: "no GPU"}}, []wire.Failure{{Index: 1, Text: "no license"}},
			`{"Nodes":null,"NodeNames":[],"FailedNodes":{"a":"no GPU","c":"no GPU"},"FailedAndUnresolvableNodes":{"b":"no license"},"Error":""}`},
		{"texts that need escapes", threeNames, []int32{0}, []wire.Failure{{Index: 1, Text: "a \"b\"\n"}}, []wire.Failure{{Index: 2, Text: "größer als \xff"}},
			`{"Nodes":null,"NodeNames":["a"],"FailedNodes":{"b":"a \"b\"\n"},"FailedAndUnresolvableNodes":{"c":"größer als \ufffd"},"Error":""}`},
		{"names as they were spelled", oddNames, []int32{0, 2}, []wire.Failure{{Index: 1, Text: "x"}}, nil,
			`{"Nodes":null,"NodeNames":["a\u0062","c"],"FailedNodes":{"\"<é>\"":"x"},"FailedAndUnresolvableNodes":null,"Error":""}`},
		{"neighbours with what is between them", oddNames, []int32{1, 2}, nil, nil,
			"{\"Nodes\":null,\"NodeNames\":[\"\\\"<é>\\\"\",\n  \"c\"],\"FailedNodes\":null,\"FailedAndUnresolvableNodes\":null,\"Error\":\"\"}"},
		{"all nodes", threeNodes, []int32{0, 1, 2}, nil, nil,
			`{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"x":"y"}}},{"metadata":{"name":"b"}},{"kind":"Node","metadata":{"name":"c"},"unknown":[1]}]},"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}`},
		{"some nodes", threeNodes, []int32{0, 2}, nil, []wire.Failure{{Index: 1, Text: "no GPU"}},
			`{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"x":"y"}}},{"kind":"Node","metadata":{"name":"c"},"unknown":[1]}]},"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":{"b":"no GPU"},"Error":""}`},
		{"no nodes: an empty list, not null", threeNodes, nil, []wire.Failure{{Index: 0, Text: "x"}, {Index: 1, Text: "x"}, {Index: 2, Text: "y"}}, nil,
			`{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,"FailedNodes":{"a":"x","b":"x","c":"y"},"FailedAndUnresolvableNodes":null,"Error":""}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := decoded(t, tc.request)
			got := filterResult(t, r, tc.kept, tc.failed, tc.unresolvable)
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			requireFilterResult(t, r, got, tc.kept, tc.failed, tc.unresolvable)
		})
	}
}

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

func TestAppendHostPriorities(t *testing.T) {
	for _, tc := range []struct {
		name    string
		request string
		scores  []int64
		want    string
	}{
		{"names", threeNames, []int64{10, 1, 3}, `[{"Host":"a","Score":10},{"Host":"b","Score":1},{"Host":"c","Score":3}]`},
		{"nodes", threeNodes, []int64{10, 1, 3}, `[{"Host":"a","Score":10},{"Host":"b","Score":1},{"Host":"c","Score":3}]`},
		{"with zeros", threeNames, []int64{0, 7, 0}, `[{"Host":"b","Score":7}]`},
		{"nothing but zeros", threeNames, []int64{0, 0, 0}, `[]`},
		{"no nodes", threeNames, nil, `[]`},
		{"names as they were spelled", oddNames, []int64{1, 2, 3}, `[{"Host":"a\u0062","Score":1},{"Host":"\"<é>\"","Score":2},{"Host":"c","Score":3}]`},
		{"large", threeNames, []int64{math.MinInt64, math.MaxInt64, -1}, `[{"Host":"a","Score":-9223372036854775808},{"Host":"b","Score":9223372036854775807},{"Host":"c","Score":-1}]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := decoded(t, tc.request)
			got := wire.AppendHostPriorities([]byte("before"), r, tc.scores)
			if string(got) != "before"+tc.want {
				t.Errorf("got  %s\nwant before%s", got, tc.want)
			}
			requirePriorities(t, r, got[len("before"):], tc.scores)
		})
	}
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
