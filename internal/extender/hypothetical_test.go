package extender_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
)

var hypotheticalCalls = flag.Int("hypothetical-calls", 25_000, "how many calls a cluster autoscaler makes in TestHypotheticalNodesChangeNothing")

// replica is one Outboard with its own cluster: a profile of GPUMemory that learns from the history of the view, ledgers, and a
// Requeuer.
type replica struct {
	*fakeCluster
	t        *testing.T
	nodes    []string
	ledgers  *ledgerStore
	log      *decision.Log
	requeuer *requeue.Requeuer
	engine   *engine.Engine
	verbs    map[decision.Verb]http.Handler
	retried  []string // pods, in order
	heard    []string // pods and nodes of the calls of Filtered
}

// View may be called while see publishes another one.
func (r *replica) View() *snapshot.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view
}

func (r *replica) ViewFor(uid types.UID) *snapshot.View { return r.with(r.View(), uid) }

// RetryPod is called by the Requeuer.
func (r *replica) RetryPod(_ context.Context, _, name string, _ types.UID) (bool, error) {
	r.retried = append(r.retried, name)
	return true, nil
}

func newReplica(t *testing.T, nodes int, pods ...*corev1.Pod) *replica {
	config := gpumemory.Defaults()
	config.ScoringStrategy.Type = gpumemory.LeastWaste
	p, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{
		fakeCluster: &fakeCluster{pods: pods}, t: t, ledgers: newLedgerStore(),
		log: decision.NewLog(0), engine: e, verbs: map[decision.Verb]http.Handler{},
	}
	r.requeuer = requeue.New(requeue.Options{Cluster: r, PerSecond: 20, Logger: slog.New(slog.DiscardHandler)})
	observe := r.requeuer.Observer("/", e)
	h := extender.New(extender.Options{
		Profile: "/", Engine: e, Cluster: r, Ledgers: r.ledgers, Log: r.log,
		ManagedResources: []string{"aliyun.com/gpu-mem"},
		Metrics:          callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Filtered: func(req engine.Request, fits bool, unknown []string, why *decision.Rejection) {
			r.heard = append(r.heard, fmt.Sprint(req.Pod.Name, fits, len(req.Nodes), unknown))
			observe(req, fits, unknown, why)
		},
	})
	for _, verb := range decision.Verbs() {
		r.verbs[verb] = h.Verb(verb)
	}
	for i := range nodes {
		node := gpuNode(fmt.Sprintf("n%02d", i), 2)
		r.nodes = append(r.nodes, node.Name)
		r.builder.SetNode(node)
	}
	for _, pod := range pods {
		r.builder.SetPod(pod)
	}
	r.publish()
	return r
}

func (r *replica) publish() {
	for _, l := range r.ledgers.ledgers {
		r.builder.SetLedger(&l)
	}
	r.view = r.builder.View()
}

func (r *replica) call(verb decision.Verb, args any) string {
	body, err := json.Marshal(args)
	if err != nil {
		r.t.Error(err)
	}
	w := httptest.NewRecorder()
	r.verbs[verb].ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	return w.Body.String()
}

// place makes the calls of kube-scheduler for a pod, and returns all responses.
func (r *replica) place(pod *corev1.Pod) (responses []string) {
	ask := func(verb decision.Verb, args any) string {
		response := r.call(verb, args)
		responses = append(responses, response)
		return response
	}
	fitting := decode[extenderv1.ExtenderFilterResult](r.t, ask(decision.Filter, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &r.nodes}))
	if fitting.NodeNames == nil || len(*fitting.NodeNames) == 0 {
		return responses
	}
	best := (*fitting.NodeNames)[0]
	if len(*fitting.NodeNames) > 1 {
		scores := decode[extenderv1.HostPriorityList](r.t, ask(decision.Prioritize, extenderv1.ExtenderArgs{Pod: pod, NodeNames: fitting.NodeNames}))
		if len(scores) > 0 {
			best = slices.MaxFunc(scores, func(a, b extenderv1.HostPriority) int {
				return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(b.Host, a.Host))
			}).Host
		}
	}
	ask(decision.Bind, extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: best})
	made := r.bindings[len(r.bindings)-1]
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.Annotations, bound.ResourceVersion, bound.Status.Phase = made.Node, made.Annotations, "2", corev1.PodRunning
	r.see(bound)
	return responses
}

// see updates the view as if the watch showed the pod.
func (r *replica) see(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byUID = nil
	r.pods[slices.IndexFunc(r.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })] = pod
	r.builder.SetPod(pod)
	r.publish()
}

// state is everything that calls may change, without times.
func (r *replica) state() map[string]any {
	records := map[string]string{}
	for _, pod := range append(r.PodsByName(), "stranger", "unmanaged") {
		for i, record := range r.log.Find(decision.Query{Namespace: "default", Name: pod, Limit: 100}) {
			plain := *record
			plain.Time, plain.Duration, plain.Policies = time.Time{}, 0, nil
			text, err := json.Marshal(plain)
			if err != nil {
				r.t.Error(err)
			}
			records[fmt.Sprint(pod, i)] = string(text)
		}
	}
	pending := map[string]bool{}
	for _, pod := range r.PodsByName() {
		_, pending[pod] = r.requeuer.Status("/", types.UID(pod))
	}
	var history []string
	for _, event := range r.view.History().Events {
		history = append(history, fmt.Sprint(event.Pod.Name, event.Gone))
	}
	return map[string]any{
		"records": records, "pending": pending, "heard": slices.Clone(r.heard), "history": history,
		"generation": r.view.Generation(), "ledgers": fmt.Sprint(r.ledgers.ledgers), "claims": r.ledgers.claims,
		"bindings": fmt.Sprint(r.bindings), "touches": r.touches, "assumed": len(r.assumed),
	}
}

// PodsByName returns the names of the pods.
func (r *replica) PodsByName() (names []string) {
	for _, p := range r.pods {
		names = append(names, p.Name)
	}
	return names
}

// autoscaler makes calls about nodes that it could add.
type autoscaler struct {
	t    *testing.T
	pods []*corev1.Pod
}

// ask makes the call with this number, and reports a wrong response. Each call has its own node, as a new simulation does, on
// which pods fit that need at most one GPU's memory, and another node that is too small for all of them.
func (a autoscaler) ask(r *replica, number int) {
	pod := a.pods[number%len(a.pods)]
	large, small := gpuNode(fmt.Sprintf("template-%d", number), 2), gpuNode("template-small", 1)
	small.Status.Capacity["aliyun.com/gpu-mem"] = large.Status.Capacity["aliyun.com/gpu-count"] // 2 GiB
	list := &corev1.NodeList{Items: []corev1.Node{*large, *small}}
	if number%5 == 0 {
		list.Items = list.Items[1:]
	}
	args := extenderv1.ExtenderArgs{Pod: pod, Nodes: list}
	if number%3 == 0 {
		if got := decode[extenderv1.HostPriorityList](a.t, r.call(decision.Prioritize, args)); len(got) > len(list.Items) {
			a.t.Errorf("call %d returned the scores %v", number, got)
		}
		return
	}
	got := decode[extenderv1.ExtenderFilterResult](a.t, r.call(decision.Filter, args))
	var want []string
	for _, node := range list.Items {
		if pod.Name == "unmanaged" || node.Name == large.Name {
			want = append(want, node.Name)
		}
	}
	var fitting []string
	if got.Nodes != nil {
		for _, node := range got.Nodes.Items {
			fitting = append(fitting, node.Name)
		}
	}
	if !slices.Equal(fitting, want) || got.Error != "" || got.NodeNames != nil {
		a.t.Errorf("call %d about %s: fits on %q, want %q; error %q", number, pod.Name, fitting, want, got.Error)
	}
}

// A cluster autoscaler makes calls about nodes that do not exist, in addition to all calls of kube-scheduler, for the same pods.
// They change nothing: the responses to kube-scheduler, the records, the pending pods and which of them are retried, ledgers,
// Bindings with their annotations, history, pods in flight, and the memory in use are the same as without it.
func TestHypotheticalNodesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, pods = 8, 40 // 16 pods fit
		var waiting []*corev1.Pod
		for i := range pods {
			waiting = append(waiting, sharing(fmt.Sprintf("p%02d", i), 0, 10))
		}
		important := sharing("important", 10, 10)
		waiting = append(waiting, important)
		stranger, unmanaged := sharing("stranger", 0, 10), sharing("unmanaged", 0, 10)
		unmanaged.Spec.Containers = nil
		asking := autoscaler{t, append(slices.Clone(waiting), stranger, unmanaged, nominatedTo("n00", important), nominatedTo("template-small", waiting[pods-1]))}

		alone, beside := newReplica(t, nodes, slices.Clone(waiting)...), newReplica(t, nodes, slices.Clone(waiting)...)
		before, most, calls, last := heap(), int64(0), 0, pods+4
		for step := range last {
			var scaling sync.WaitGroup
			for worker := range 2 {
				scaling.Go(func() {
					for number := calls + worker; number < *hypotheticalCalls*(step+1)/last; number += 2 {
						asking.ask(beside, number)
					}
				})
			}
			want, got := ordinary(alone, step, pods), ordinary(beside, step, pods)
			scaling.Wait()
			calls = *hypotheticalCalls * (step + 1) / last
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("step %d has another response with an autoscaler (-alone +beside):\n%s", step, diff)
			}
			if diff := gocmp.Diff(alone.state(), beside.state()); diff != "" {
				t.Fatalf("step %d: an autoscaler changed the state (-alone +beside):\n%s", step, diff)
			}
			most = max(most, heap()-before)
		}
		if calls != *hypotheticalCalls {
			t.Errorf("made %d calls", calls)
		}
		t.Logf("the memory in use grew by %d bytes at most", most)
		if most > 2<<20 {
			t.Errorf("the memory in use grew by %d bytes", most)
		}
		if want, got := alone.retry(), beside.retry(); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("retried %q with an autoscaler, and %q without", got, want)
		}
	})
}

// ordinary is one step of kube-scheduler: it places pods one after the other, until none fits, makes room for a pod of high
// priority, and tries others again.
func ordinary(r *replica, step, pods int) []string {
	if step < pods {
		return r.place(r.pods[step])
	}
	important := r.pods[pods]
	switch step - pods {
	case 0:
		candidates := map[string]*extenderv1.MetaVictims{}
		for _, pod := range r.pods {
			if pod.Spec.NodeName != "" {
				candidates[pod.Spec.NodeName] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: string(pod.UID)}}}
			}
		}
		return []string{r.call(decision.Preempt, extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: candidates})}
	case 1:
		return r.place(important)
	default:
		return r.place(r.pods[pods-step%pods-1])
	}
}

// retry adds a node, on which pending pods fit if kube-scheduler made a call about it, and returns which pods are retried.
func (r *replica) retry() []string {
	for _, pod := range r.pods {
		if pod.Spec.NodeName == "n00" { // the pod ends
			ended := pod.DeepCopy()
			ended.Status.Phase = corev1.PodSucceeded
			for key, l := range r.ledgers.ledgers {
				r.ledgers.ledgers[key] = *l.Without(func(uid types.UID) bool { return uid == pod.UID })
			}
			r.see(ended)
		}
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	r.requeuer.Use(map[string]*engine.Engine{"/": r.engine}) // before Run, which drops the pods of profiles that do not exist
	running.Go(func() { r.requeuer.Run(ctx) })
	time.Sleep(30*time.Second + time.Millisecond) // not at a moment of a retry
	cancel()
	running.Wait()
	return r.retried
}

// A node that exists only in a call is evaluated like the same node in a cluster where it has no pods, whatever pods run on the
// node that it was made from, and the response has it as the call had it.
func TestHypotheticalNodesAreEmpty(t *testing.T) {
	original := gpuNode("n00", 2)
	template := original.DeepCopy()
	template.Name = "template"
	other := gpuNode("template-2", 1)
	other.Labels = map[string]string{"nvidia.com/gpu.product": "A100"}
	pods := []*corev1.Pod{on(sharing("a", 0, 16), "n00", "0"), on(sharing("b", 0, 16), "n00", "1")}
	full := serveGPUMemory(t, &fakeCluster{view: view([]*corev1.Node{original}, pods...)}, newLedgerStore())
	empty := serveGPUMemory(t, &fakeCluster{view: view([]*corev1.Node{template, other})}, newLedgerStore())
	for _, gibibytes := range []int64{1, 10, 16, 17} {
		args := extenderv1.ExtenderArgs{Pod: sharing("p", 0, gibibytes), Nodes: &corev1.NodeList{Items: []corev1.Node{*template, *other}}}
		for _, verb := range []string{"filter", "prioritize"} {
			body := encode(t, args)
			if want, got := empty.post(t, verb, body), full.post(t, verb, body); got != want {
				t.Errorf("%s for %d GiB: %s, in a cluster with these nodes %s", verb, gibibytes, got, want)
			}
		}
	}
	if records := full.log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 1}); len(records) > 0 {
		t.Errorf("the record has nodes that do not exist: %+v", records[0])
	}
	args := extenderv1.ExtenderArgs{Pod: sharing("p", 0, 1), Nodes: &corev1.NodeList{Items: []corev1.Node{*original}}}
	if got := decode[extenderv1.ExtenderFilterResult](t, full.post(t, "filter", encode(t, args))); len(got.FailedNodes) != 1 {
		t.Errorf("the node that exists: got %+v", got)
	}
}

// A pod that fits on no existing node stays pending, although it fits on a node that exists only in the call.
func TestPodThatFitsOnHypotheticalNodesStaysPending(t *testing.T) {
	var heard []string
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(_ *engine.Options, o *extender.Options) {
		o.Filtered = func(_ engine.Request, fits bool, _ []string, _ *decision.Rejection) {
			heard = append(heard, fmt.Sprint(fits))
		}
	})
	for _, nodes := range [][]*corev1.Node{
		{labelled("template")},
		{labelled("template", "say", "wrong")},
		{labelled("wrong"), labelled("template")},
		{labelled("wrong"), labelled("template", "say", "wrong")},
		{labelled("good"), labelled("template")},
	} {
		list := &corev1.NodeList{}
		for _, n := range nodes {
			list.Items = append(list.Items, *n)
		}
		s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), Nodes: list}))
	}
	if want := []string{"false", "true"}; !slices.Equal(heard, want) {
		t.Errorf("got %q, want %q", heard, want)
	}
}
