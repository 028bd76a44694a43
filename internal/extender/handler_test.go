package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// labels is the policy of these tests: a node's labels hold its verdict and score. It panics for a pod with the annotation
// "panic".
type labels struct{}

var (
	noRoom   = &policy.Reason{Code: "NoRoom", Text: "no room for it"}
	wrongOne = &policy.Reason{Code: "WrongNode", Text: `a node of the "wrong" kind`}
)

func (labels) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	if _, ok := pod.Annotations["error"]; ok {
		return nil, errors.New("annotation error: cannot be\nunderstood")
	}
	if _, ok := pod.Annotations["panic"]; ok {
		panic("as told")
	}
	return labels{}, nil
}

func (labels) Filter(n *snapshot.Node) policy.Verdict {
	switch n.Object.Labels["say"] {
	case "full":
		if len(n.Pods) > 0 || !has(n, "pods") {
			return policy.Verdict{Reason: noRoom, Have: 1, Want: 2}
		}
	case "wrong":
		return policy.Verdict{Reason: wrongOne, Unresolvable: true}
	}
	return policy.Verdict{}
}

func has(n *snapshot.Node, label string) bool { _, ok := n.Object.Labels[label]; return ok }

func (labels) Score(n *snapshot.Node) int64 {
	score, _ := strconv.ParseInt(n.Object.Labels["score"], 10, 64)
	return score
}

func labelled(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func view(nodes []*corev1.Node, pods ...*corev1.Pod) *snapshot.View {
	var b snapshot.Builder
	for _, n := range nodes {
		b.SetNode(n)
	}
	for _, p := range pods {
		b.SetPod(p)
	}
	return b.View()
}

type server struct {
	*httptest.Server
	log *decision.Log
}

// serve serves all verbs of one profile, see handlerOf.
func serve(t *testing.T, cluster extender.Cluster, change ...func(*engine.Options, *extender.Options)) server {
	t.Helper()
	h, log := handlerOf(t, cluster, change...)
	s := server{httptest.NewServer(h), log}
	t.Cleanup(s.Close)
	return s
}

// handlerOf returns the handler of all verbs of one profile, for a test in a synctest bubble, whose clock stands still while a server waits
// for connections; cluster may be nil.
func handlerOf(t *testing.T, cluster extender.Cluster, change ...func(*engine.Options, *extender.Options)) (http.Handler, *decision.Log) {
	t.Helper()
	members := engine.Options{Policies: []engine.WeightedPolicy{{Name: "Labels", Policy: labels{}, Weight: 1}}}
	o := extender.Options{
		Profile: "/", Cluster: cluster, Log: decision.NewLog(16),
		Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&members, &o)
	}
	e, err := engine.New(members)
	if err != nil {
		t.Fatal(err)
	}
	o.Engine = e
	h := extender.New(o)
	mux := http.NewServeMux()
	for _, verb := range decision.Verbs() {
		mux.Handle("/"+string(verb), h.Verb(verb))
	}
	return mux, o.Log
}

// here makes a call without a network, and returns the response: then the handler has returned, too.
func here(t *testing.T, h http.Handler, verb, body string) string {
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+verb, strings.NewReader(body))); w.Code != http.StatusOK {
		t.Errorf("%s returned %d: %.1000s", verb, w.Code, w.Body)
	}
	return w.Body.String()
}

// answer is the response to a call.
func answer(h http.Handler, body []byte) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/filter", bytes.NewReader(body)))
	return w.Body.String()
}

// post returns the body of a 200 response, and checks what applies to all responses.
func (s server) post(t *testing.T, verb, body string) string {
	t.Helper()
	res, err := http.Post(s.URL+"/"+verb, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s returned %s: %s", verb, res.Status, answer)
	}
	if res.ContentLength != int64(len(answer)) || len(res.TransferEncoding) > 0 {
		t.Errorf("Content-Length is %d of %d bytes, encoding %v", res.ContentLength, len(answer), res.TransferEncoding)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
	if !json.Valid(answer) || strings.HasSuffix(string(answer), "\n") {
		t.Errorf("not a bare JSON value: %q", answer)
	}
	return string(answer)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func names(list ...string) *[]string { return new(append([]string{}, list...)) }

var threeNodes = []*corev1.Node{
	labelled("good", "score", "90"),
	labelled("better", "score", "91"),
	labelled("full", "say", "full", "score", "10"),
	labelled("wrong", "say", "wrong"),
}

func somePod(annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u1", ResourceVersion: "7"}}
	for i := 0; i+1 < len(annotations); i += 2 {
		p.Annotations = map[string]string{annotations[i]: annotations[i+1]}
	}
	return p
}

func TestFilterByNames(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	answer := s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("wrong", "better", "new", "good", "full")}))
	want := extenderv1.ExtenderFilterResult{
		NodeNames:                  names("better", "good"),
		FailedNodes:                extenderv1.FailedNodesMap{"full": noRoom.Text, "new": engine.NodeUnknown.Text},
		FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"wrong": wrongOne.Text},
	}
	if diff := cmp.Diff(want, decode[extenderv1.ExtenderFilterResult](t, answer)); diff != "" {
		t.Error(diff)
	}
	records := s.log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 10})
	if len(records) != 1 || records[0].Nodes != 5 || records[0].Fit != 2 || records[0].Verb != "filter" || records[0].Duration <= 0 {
		t.Errorf("got records %+v", records)
	}
}

// In nodes mode the nodes in the response are the request's own bytes: later plugins of kube-scheduler may need fields that
// Outboard does not know, or trims.
func TestFilterByNodesEchoesTheirBytes(t *testing.T) {
	body := `{"Pod":{"metadata":{"name":"p"}},"Nodes":{"metadata":{},"items":[
		{"metadata":{"name":"good","managedFields":[{"manager":"x"}]},"unknown":{"a":[1,2,{"b":"}]\""}]}},
		{"metadata":{"name":"wrong"}}]},"NodeNames":null}`
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	answer := s.post(t, "filter", body)
	if !strings.Contains(answer, `{"metadata":{"name":"good","managedFields":[{"manager":"x"}]},"unknown":{"a":[1,2,{"b":"}]\""}]}}`) {
		t.Errorf("the node is not the request's own bytes: %s", answer)
	}
	got := decode[extenderv1.ExtenderFilterResult](t, answer)
	if got.NodeNames != nil || len(got.Nodes.Items) != 1 || got.FailedAndUnresolvableNodes["wrong"] != wrongOne.Text {
		t.Errorf("got response %s", answer)
	}
}

// Without a cluster, nodes are evaluated from the objects in the request.
func TestWithoutACluster(t *testing.T) {
	s := serve(t, nil)
	list := &corev1.NodeList{}
	for _, n := range threeNodes {
		list.Items = append(list.Items, *n)
	}
	args := extenderv1.ExtenderArgs{Pod: somePod(), Nodes: list}
	for range 2 { // the second call uses the cache
		got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, args)))
		if len(got.Nodes.Items) != 2 || got.FailedNodes["full"] == "" || got.FailedAndUnresolvableNodes["wrong"] == "" {
			t.Fatalf("got response %+v", got)
		}
	}
	// A changed node is evaluated anew.
	list.Items[0].Labels = map[string]string{"say": "wrong"}
	got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, args)))
	if len(got.Nodes.Items) != 1 || got.Nodes.Items[0].Name != "better" {
		t.Errorf("got response %+v", got)
	}
	for _, verb := range []string{"preempt", "bind"} {
		answer := s.post(t, verb, `{"Pod":{},"NodeNameToMetaVictims":{},"PodName":"p","PodNamespace":"d","PodUID":"u","Node":"n"}`)
		if !strings.Contains(answer, "without a cluster") {
			t.Errorf("%s returned %s", verb, answer)
		}
	}
	answer := s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good")}))
	if !strings.Contains(answer, "nodeCacheCapable: false") {
		t.Errorf("names without a cluster: got response %s", answer)
	}
}

func TestPrioritize(t *testing.T) {
	args := extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("better", "good", "full", "new")}
	// 91 and 90 would both be level 9, so the best is raised by one. The response omits the lowest, which is 0.
	want := extenderv1.HostPriorityList{{Host: "better", Score: 10}, {Host: "good", Score: 9}, {Host: "full", Score: 1}}
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	got := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", encode(t, args)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// indifferent is a policy that applies to no pod.
type indifferent struct{}

func (indifferent) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

// A policy that does not apply to the pod does not reduce the number of levels.
func TestPrioritizeUsesAllLevels(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(e *engine.Options, _ *extender.Options) {
		e.Policies = append(e.Policies, engine.WeightedPolicy{Name: "Indifferent", Policy: indifferent{}, Weight: 9})
	})
	got := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("better", "good", "full")})))
	want := extenderv1.HostPriorityList{{Host: "better", Score: 9}, {Host: "good", Score: 8}} // levels 10, 9 and 1, less 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestShortlistReturnsTheBestOnly(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(e *engine.Options, _ *extender.Options) { e.Shortlist = 1 })
	answer := s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "wrong", "better", "full")}))
	if diff := cmp.Diff(extenderv1.ExtenderFilterResult{NodeNames: names("better")}, decode[extenderv1.ExtenderFilterResult](t, answer)); diff != "" {
		t.Error(diff)
	}
	// If no node fits, every node still has its reason.
	answer = s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("wrong", "full")}))
	want := extenderv1.ExtenderFilterResult{
		NodeNames: names(), FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"full": noRoom.Text, "wrong": wrongOne.Text},
	}
	if diff := cmp.Diff(want, decode[extenderv1.ExtenderFilterResult](t, answer)); diff != "" {
		t.Error(diff)
	}
}

// The pod comes from the cache only if its version is exactly the same.
func TestPodFromCache(t *testing.T) {
	cached := somePod("error", "from the cache")
	s := serve(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{cached}})
	ask := func(change func(*corev1.Pod)) string {
		pod := somePod()
		change(pod)
		return s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: names("good")}))
	}
	if answer := ask(func(*corev1.Pod) {}); !strings.Contains(answer, "cannot be understood") {
		t.Errorf("the cached pod was not used: %s", answer)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"other version": func(p *corev1.Pod) { p.ResourceVersion = "8" },
		"other pod":     func(p *corev1.Pod) { p.UID = "u2" },
		"no identity":   func(p *corev1.Pod) { p.UID, p.ResourceVersion = "", "" },
	} {
		if answer := ask(change); strings.Contains(answer, "understood") {
			t.Errorf("%s: the cached pod was used: %s", name, answer)
		}
	}
}

func TestPolicyFailures(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for _, annotation := range []string{"error", "panic"} {
		for _, verb := range []string{"filter", "prioritize", "preempt"} {
			body := encode(t, extenderv1.ExtenderArgs{Pod: somePod(annotation, "x"), NodeNames: names("good")})
			if verb == "preempt" {
				body = encode(t, extenderv1.ExtenderPreemptionArgs{Pod: somePod(annotation, "x"), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}})
			}
			answer := s.post(t, verb, body)
			if got := failure(t, answer); !strings.HasPrefix(got, "policy Labels: ") || strings.Contains(got, "\n") {
				t.Errorf("%s, %s: got %q", verb, annotation, got)
			}
			// kube-scheduler would ignore the error of an ignorable extender, and place the pod.
			if got := decode[struct{ Error string }](t, answer).Error; (got == "") != (verb == "filter") {
				t.Errorf("%s, %s: got Error %q", verb, annotation, got)
			}
		}
	}
	// The process and the policy keep working.
	got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good")})))
	if got.Error != "" || len(*got.NodeNames) != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestBadInput(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	for _, body := range []string{
		``, `hello`, `[]`, `{`, `{}`, `null`,
		`{"Pod":{"metadata":{"name":"p"}},"NodeNames":["good"`,
		`{"Pod":{"metadata":{"name":"p"}}}`,
		`{"NodeNames":["good"]}`,
		`{"Pod":null,"NodeNames":["good"]}`,
		`{"Pod":{"metadata":{"name":7}},"NodeNames":["good"]}`,
		`{"Pod":{},"NodeNames":"good"}`,
		`{"Pod":{},"NodeNames":[]}`,
		`{"Pod":{},"NodeNames":["good","good"]}`,
		`{"Pod":{},"NodeNames":["strange","strange"]}`,
		`{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"new"}},{"metadata":{"name":"new"}}]}}`,
		`{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"new","labels":3}}]}}`,
		`{"Pod":{},"Nodes":{"items":[]},"NodeNames":["good"]}`,
		`{"Pod":` + strings.Repeat(`[`, 10000) + strings.Repeat(`]`, 10000) + `,"NodeNames":["good"]}`,
		`{"Pod":{},"NodeNames":["good"]}{}`,
	} {
		for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
			if got := decode[struct{ Error string }](t, s.post(t, verb, body)); got.Error == "" || strings.Contains(got.Error, "\n") {
				t.Errorf("%s of %.60q: got Error %q", verb, body, got.Error)
			}
		}
	}
	if answer := string(s.post(t, "filter", `{"apiVersion": "v1", "kind": "Pod"}`)); !strings.Contains(answer, `request has no Pod; kube-scheduler sends {\"Pod\": {`) {
		t.Errorf("a bare Pod: %s", answer)
	}
	res, err := http.Get(s.URL + "/filter")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s, Allow %q", res.Status, res.Header.Get("Allow"))
	}
}

func TestPreempt(t *testing.T) {
	priority := func(n int32) *int32 { return &n }
	on := func(name, node string, p int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
			Spec:       corev1.PodSpec{NodeName: node, Priority: priority(p)},
		}
	}
	nodes := []*corev1.Node{
		labelled("a", "say", "full", "pods", ""),
		labelled("b", "say", "full", "pods", ""),
		labelled("c", "say", "wrong"),
	}
	s := serve(t, &fakeCluster{view: view(nodes, on("a1", "a", 1), on("a2", "a", 2), on("b1", "b", 1), on("b2", "b", 10), on("c1", "c", 1))})
	pod := somePod()
	pod.Spec.Priority = priority(10)
	victims := func(uids ...string) *extenderv1.MetaVictims {
		v := &extenderv1.MetaVictims{}
		for _, uid := range uids {
			v.Pods = append(v.Pods, &extenderv1.MetaPod{UID: uid})
		}
		return v
	}
	want := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		// The given victim stays, and the other pod is added; on b a pod of equal priority uses the node, the policy rejects c
		// for any pods, and d is unknown.
		"a": victims("uid-a2", "uid-a1"),
	}}
	meta := extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		"a": victims("uid-a2"), "b": victims("uid-b1"), "c": victims("uid-c1"), "d": victims("uid-d1"), "e": nil,
	}}
	whole := extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToVictims: map[string]*extenderv1.Victims{
		"a": {Pods: []*corev1.Pod{on("a2", "a", 2)}}, "b": {Pods: []*corev1.Pod{on("b1", "b", 1)}},
	}}
	for _, args := range []extenderv1.ExtenderPreemptionArgs{meta, whole} {
		got := decode[extenderv1.ExtenderPreemptionResult](t, s.post(t, "preempt", encode(t, args)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Until the cluster has been read, every call fails with an error that names what is missing.
func TestUnreadClusterIsNamed(t *testing.T) {
	missing := errors.New("not read from the API server yet: pods (the API server forbids reading a resource)")
	s := serve(t, &fakeCluster{view: view(nil), unsynced: missing})
	for verb, body := range map[string]string{
		"filter":     encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good")}),
		"prioritize": encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good")}),
		"preempt":    `{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"u1"}},"NodeNameToMetaVictims":{}}`,
		"bind":       encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "good"}),
	} {
		if answer := s.post(t, verb, body); !strings.Contains(answer, missing.Error()) {
			t.Errorf("%s returns %s", verb, answer)
		}
	}
}
