package extender_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// labels is the policy of these tests: what it says about a node stands in the
// node's labels. A pod with the annotation "panic" makes it panic.
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

// serve serves all verbs of one profile; cluster may be nil.
func serve(t *testing.T, cluster extender.Cluster, change ...func(*engine.Options, *extender.Options)) server {
	t.Helper()
	members := engine.Options{Policies: []engine.Member{{Name: "Labels", Policy: labels{}, Weight: 1}}}
	o := extender.Options{
		Profile: "/", Cluster: cluster, Log: decision.NewLog(16),
		Metrics: extender.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
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
	for _, verb := range extender.Verbs {
		mux.Handle("/"+string(verb), h.Verb(verb))
	}
	s := server{httptest.NewServer(mux), o.Log}
	t.Cleanup(s.Close)
	return s
}

// post returns the body of a 200 answer and checks what holds for every one.
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
		t.Fatalf("%s answered %s: %s", verb, res.Status, answer)
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
	records := s.log.Find(func(r *decision.Record) bool { return r.Pod.Name == "p" }, 10)
	if len(records) != 1 || records[0].Asked != 5 || records[0].Fit != 2 || records[0].Verb != "filter" || records[0].Duration <= 0 {
		t.Errorf("the record is %+v", records)
	}
}

// In nodes mode the nodes of the answer are the request's own bytes: what we do
// not know, and what we trim, must not be lost for the scheduler's later plugins.
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
		t.Errorf("answered %s", answer)
	}
}

// Without a cluster nodes are judged from the request's own objects.
func TestWithoutACluster(t *testing.T) {
	s := serve(t, nil)
	list := &corev1.NodeList{}
	for _, n := range threeNodes {
		list.Items = append(list.Items, *n)
	}
	args := extenderv1.ExtenderArgs{Pod: somePod(), Nodes: list}
	for range 2 { // the second time from what is remembered of the first
		got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, args)))
		if len(got.Nodes.Items) != 2 || got.FailedNodes["full"] == "" || got.FailedAndUnresolvableNodes["wrong"] == "" {
			t.Fatalf("answered %+v", got)
		}
	}
	// A node that changes is judged anew.
	list.Items[0].Labels = map[string]string{"say": "wrong"}
	got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, args)))
	if len(got.Nodes.Items) != 1 || got.Nodes.Items[0].Name != "better" {
		t.Errorf("answered %+v", got)
	}
	for _, verb := range []string{"preempt", "bind"} {
		answer := s.post(t, verb, `{"Pod":{},"NodeNameToMetaVictims":{},"PodName":"p","PodNamespace":"d","PodUID":"u","Node":"n"}`)
		if !strings.Contains(answer, "without a cluster") {
			t.Errorf("%s answered %s", verb, answer)
		}
	}
	answer := s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good")}))
	if !strings.Contains(answer, "nodeCacheCapable: false") {
		t.Errorf("names without a cluster: answered %s", answer)
	}
}

func TestPrioritize(t *testing.T) {
	args := extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("better", "good", "full", "new")}
	for _, tt := range []struct {
		fine bool
		want extenderv1.HostPriorityList
	}{
		// 91 and 90 would both be level 9: the best moves up.
		{false, extenderv1.HostPriorityList{{Host: "better", Score: 10}, {Host: "good", Score: 9}, {Host: "full", Score: 1}, {Host: "new", Score: 0}}},
		{true, extenderv1.HostPriorityList{{Host: "better", Score: 91}, {Host: "good", Score: 90}, {Host: "full", Score: 10}, {Host: "new", Score: 0}}},
	} {
		t.Run(fmt.Sprintf("fine=%t", tt.fine), func(t *testing.T) {
			s := serve(t, &fakeCluster{view: view(threeNodes)}, func(_ *engine.Options, o *extender.Options) { o.Fine = tt.fine })
			got := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", encode(t, args)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestShortlistAnswersTheBestAlone(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(e *engine.Options, _ *extender.Options) { e.Shortlist = 1 })
	answer := s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "wrong", "better", "full")}))
	if diff := cmp.Diff(extenderv1.ExtenderFilterResult{NodeNames: names("better")}, decode[extenderv1.ExtenderFilterResult](t, answer)); diff != "" {
		t.Error(diff)
	}
	// When nothing fits, every node has its reason all the same.
	answer = s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("wrong", "full")}))
	want := extenderv1.ExtenderFilterResult{
		NodeNames: names(), FailedNodes: extenderv1.FailedNodesMap{"full": noRoom.Text},
		FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"wrong": wrongOne.Text},
	}
	if diff := cmp.Diff(want, decode[extenderv1.ExtenderFilterResult](t, answer)); diff != "" {
		t.Error(diff)
	}
}

// The pod is taken from the cache only when it is the very same version.
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
			got := decode[struct{ Error string }](t, s.post(t, verb, body))
			if !strings.HasPrefix(got.Error, "policy Labels: ") || strings.Contains(got.Error, "\n") {
				t.Errorf("%s, %s: Error is %q", verb, annotation, got.Error)
			}
		}
	}
	// The process and the policy live.
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
				t.Errorf("%s of %.60q: Error is %q", verb, body, got.Error)
			}
		}
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
		// The given victim stays, and the other pod joins it; on b a pod of equal
		// priority is in the way, c is of the wrong kind, d is not known.
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

func TestBind(t *testing.T) {
	args := encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "better"})
	t.Run("bound, with the reason why", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}}
		s := serve(t, cluster)
		s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "better", "full")}))
		s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "better")}))
		if answer := s.post(t, "bind", args); answer != `{"Error":""}` {
			t.Fatalf("answered %s", answer)
		}
		want := []extender.Binding{{Namespace: "default", Name: "p", UID: "u1", Node: "better", Annotations: map[string]string{
			extender.DecisionAnnotation: "scored 91 of 100 (Labels 91×1); 2 of 3 nodes fit; 1 no room for it",
		}}}
		if diff := cmp.Diff(want, cluster.bindings); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("an error reaches the scheduler", func(t *testing.T) {
		s := serve(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}, bindErr: errors.New("pod default/p is already bound to node good")})
		if answer := s.post(t, "bind", args); !strings.Contains(answer, "already bound to node good") {
			t.Errorf("answered %s", answer)
		}
	})
	t.Run("bound already", func(t *testing.T) {
		there, elsewhere := somePod(), somePod()
		there.Spec.NodeName, elsewhere.Spec.NodeName = "better", "good"
		cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{there}}
		if answer := serve(t, cluster).post(t, "bind", args); answer != `{"Error":""}` {
			t.Errorf("to the same node: %s", answer)
		}
		cluster.pods = []*corev1.Pod{elsewhere}
		if answer := serve(t, cluster).post(t, "bind", args); !strings.Contains(answer, "already bound") {
			t.Errorf("to another node: %s", answer)
		}
		if len(cluster.bindings) > 0 {
			t.Errorf("bound again: %+v", cluster.bindings)
		}
	})
	t.Run("a pod that does not exist", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes)}
		if answer := serve(t, cluster).post(t, "bind", args); !strings.Contains(answer, "does not exist") || len(cluster.bindings) > 0 {
			t.Errorf("answered %s", answer)
		}
	})
	t.Run("a pod newer than what we have seen", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes), live: somePod()}
		if answer := serve(t, cluster).post(t, "bind", args); answer != `{"Error":""}` || len(cluster.bindings) != 1 {
			t.Errorf("answered %s", answer)
		}
	})
	t.Run("a node we do not know", func(t *testing.T) {
		cluster := &fakeCluster{view: view(nil)}
		if answer := serve(t, cluster).post(t, "bind", args); !strings.Contains(answer, "not known") || len(cluster.bindings) > 0 {
			t.Errorf("answered %s", answer)
		}
	})
}

// Two pods for which there is room for one arrive at the same time: while the
// first is being bound, the second must be refused, though no view holds the
// first yet; and once it is clear that the first is not bound, another may come.
func TestBindCountsPodsOnTheirWay(t *testing.T) {
	second := somePod()
	second.Name, second.UID = "q", "u2"
	arrived, proceed := make(chan struct{}), make(chan error)
	cluster := &fakeCluster{view: view([]*corev1.Node{labelled("one", "say", "full", "pods", "")}), pods: []*corev1.Pod{somePod(), second}}
	cluster.onBind = func() error { arrived <- struct{}{}; return <-proceed }
	s := serve(t, cluster)
	bind := func(name, uid string) string {
		return s.post(t, "bind", encode(t, extenderv1.ExtenderBindingArgs{PodName: name, PodNamespace: "default", PodUID: types.UID(uid), Node: "one"}))
	}
	answered := make(chan string)
	go func() { answered <- bind("p", "u1") }()
	<-arrived
	if answer := bind("q", "u2"); !strings.Contains(answer, noRoom.Text) {
		t.Errorf("the second pod: %s", answer)
	}
	proceed <- errors.New("refused")
	if answer := <-answered; !strings.Contains(answer, "refused") {
		t.Errorf("the first pod: %s", answer)
	}
	go func() { answered <- bind("q", "u2") }()
	<-arrived
	// The same pod again, because the scheduler gave up waiting.
	again := make(chan string)
	go func() { again <- bind("q", "u2") }()
	<-arrived
	proceed <- nil
	proceed <- nil
	for _, answer := range []string{<-answered, <-again} {
		if answer != `{"Error":""}` {
			t.Errorf("the second pod, with room: %s", answer)
		}
	}
}

// While a pod is bound to a node, however long that takes, calls about the same node
// are answered.
func TestG9FilterDoesNotWaitForBind(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan error)
	cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}}
	cluster.onBind = func() error { arrived <- struct{}{}; return <-proceed }
	s := serve(t, cluster)
	answered := make(chan string)
	go func() {
		answered <- s.post(t, "bind", encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "good"}))
	}()
	<-arrived
	for _, verb := range []string{"filter", "prioritize"} {
		s.post(t, verb, encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &[]string{"good"}}))
	}
	proceed <- nil
	if answer := <-answered; answer != `{"Error":""}` {
		t.Errorf("bind: %s", answer)
	}
}

// shop is a policy that hands out one unit, and the ledger it is written into.
type shop struct {
	labels
	sold              bool
	after             []types.UID
	claimed, released int
}

func (s *shop) Ledgers(*corev1.Pod, *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "shop/unit"}}, nil
}

func (s *shop) Reserve(policy.Ask) (policy.Claim, policy.Verdict) {
	if s.sold {
		return policy.Claim{}, policy.Verdict{Reason: &policy.Reason{Code: "Sold", Text: "no unit is left"}}
	}
	return policy.Claim{Annotations: map[string]string{"shop/unit": "7"}, After: s.after}, policy.Verdict{}
}

func (s *shop) Claim(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	claim, err := choose(&snapshot.Ledger{Resource: key.Resource}, time.Unix(1, 0))
	if err != nil {
		return snapshot.LedgerPod{}, err
	}
	s.claimed++
	return snapshot.LedgerPod{UID: pod.UID, Node: node, Annotations: claim.Annotations}, nil
}

func (s *shop) Release(context.Context, snapshot.LedgerKey, snapshot.LedgerPod) error {
	s.released++
	return nil
}

// A pod waits for those that have to be bound before it, as long as they are on their
// way: not for one that is gone, and not for one on the node.
func TestBindWaitsForItsTurn(t *testing.T) {
	other := somePod()
	other.Name, other.UID = "other", "u2"
	onNode := other.DeepCopy()
	onNode.Spec.NodeName = "good"
	args := encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "good"})
	cluster := &turnCluster{fakeCluster: fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod(), other}}, next: view(threeNodes, onNode)}
	counter := &shop{after: []types.UID{"u2", "gone"}}
	s := serve(t, cluster, func(e *engine.Options, o *extender.Options) {
		e.Policies = []engine.Member{{Name: "Shop", Policy: counter, Weight: 1}}
		o.Ledgers = counter
	})
	if answer := decode[extenderv1.ExtenderBindingResult](t, s.post(t, "bind", args)); answer.Error != "" {
		t.Fatal(answer.Error)
	}
	if !cluster.bound {
		t.Error("bound before the pod that has to come first")
	}
}

// turnCluster shows the pod that has to come first on its node after some looks.
type turnCluster struct {
	fakeCluster
	next  *snapshot.View
	looks int
	bound bool // the Binding came when it was its turn
}

func (c *turnCluster) View() *snapshot.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks++; c.looks > 5 {
		return c.next
	}
	return c.view
}

func (c *turnCluster) Bind(ctx context.Context, b extender.Binding) error {
	c.bound = c.View() == c.next
	return c.fakeCluster.Bind(ctx, b)
}

func TestBindWithClaims(t *testing.T) {
	args := encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "good"})
	changed := somePod()
	changed.ResourceVersion = "78"
	for _, tt := range []struct {
		name              string
		sold              bool
		err               error
		live              *corev1.Pod
		claimed, released int
		versions          []string // of the pod, in the Bindings
		failed            string
	}{
		{"bound", false, nil, nil, 1, 0, []string{"77"}, ""},
		{"nothing left: no Binding", true, nil, nil, 0, 0, nil, "node good: policy Shop: no unit is left"},
		{"certainly not bound: released", false, errors.New("refused"), nil, 1, 1, []string{"77"}, "refused"},
		{"unknown: kept", false, fmt.Errorf("%w: connection lost", extender.ErrOutcomeUnknown), nil, 1, 0, []string{"77"}, "it is not known whether the pod was bound: connection lost"},
		{"the pod has changed: claimed and bound anew", false, nil, changed, 2, 1, []string{"77", "78"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			counter := &shop{sold: tt.sold}
			pod := somePod()
			pod.ResourceVersion = "77"
			cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{pod}, bindErr: tt.err, live: tt.live}
			s := serve(t, cluster, func(e *engine.Options, o *extender.Options) {
				e.Policies = []engine.Member{{Name: "Shop", Policy: counter, Weight: 1}}
				o.Ledgers = counter
			})
			answer := decode[extenderv1.ExtenderBindingResult](t, s.post(t, "bind", args))
			if answer.Error != tt.failed {
				t.Errorf("Error is %q, want %q", answer.Error, tt.failed)
			}
			if counter.claimed != tt.claimed || counter.released != tt.released {
				t.Errorf("claimed %d, released %d times", counter.claimed, counter.released)
			}
			var versions []string
			for _, b := range cluster.bindings {
				versions = append(versions, b.ResourceVersion)
				if b.Annotations["shop/unit"] != "7" {
					t.Errorf("binding without its annotation: %+v", b)
				}
			}
			if !slices.Equal(versions, tt.versions) {
				t.Errorf("bound versions %q, want %q", versions, tt.versions)
			}
		})
	}
}

// The 1.4-era API, as its design document shows it.
func TestLowerCaseKeys(t *testing.T) {
	s := serve(t, nil)
	body := `{"pod":{"metadata":{"name":"p","namespace":"default"}},"nodes":{"items":[
		{"metadata":{"name":"good","labels":{"score":"90"}}},
		{"metadata":{"name":"wrong","labels":{"say":"wrong"}}}]}}`
	got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", body))
	if got.Error != "" || got.Nodes == nil || len(got.Nodes.Items) != 1 || got.Nodes.Items[0].Name != "good" {
		t.Errorf("filter: %+v", got)
	}
	priorities := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", body))
	if diff := cmp.Diff(extenderv1.HostPriorityList{{Host: "good", Score: 9}, {Host: "wrong", Score: 0}}, priorities); diff != "" {
		t.Error(diff)
	}
}
