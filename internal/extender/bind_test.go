package extender_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func TestBind(t *testing.T) {
	args := encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "better"})
	t.Run("bound, with the reason why", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}}
		s := serve(t, cluster)
		s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "better", "full")}))
		s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "better")}))
		if answer := s.post(t, "bind", args); answer != `{"Error":""}` {
			t.Fatalf("got response %s", answer)
		}
		want := []binder.Binding{{Namespace: "default", Name: "p", UID: "u1", Node: "better", Annotations: map[string]string{
			decision.Annotation: "scored 91 of 100 (Labels 91×1); 2 of 3 nodes fit; 1 no room for it",
		}}}
		if diff := cmp.Diff(want, cluster.bindings); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("bound to one of many nodes as good", func(t *testing.T) {
		var nodes []*corev1.Node
		var asked []string
		for i := range 63 {
			name := fmt.Sprintf("node-%02d", i)
			nodes, asked = append(nodes, labelled(name, "score", "20")), append(asked, name)
		}
		cluster := &fakeCluster{view: view(nodes), pods: []*corev1.Pod{somePod()}}
		s := serve(t, cluster)
		s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: &asked}))
		s.post(t, "bind", encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "node-42"}))
		want := "scored 20 of 100 (Labels 20×1), as much as 62 other nodes"
		if len(cluster.bindings) != 1 || cluster.bindings[0].Annotations[decision.Annotation] != want {
			t.Errorf("bound %+v, want %q", cluster.bindings, want)
		}
		found := s.log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 2})
		if chosen := found[1].Chosen; chosen == nil || chosen.Node != "node-42" || chosen.Total != 20 || found[1].Ties != 63 {
			t.Errorf("got the record %+v of the scores", found[1])
		}
	})
	t.Run("an error reaches the scheduler", func(t *testing.T) {
		s := serve(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}, bindErr: errors.New("pod default/p is already bound to node good")})
		if answer := s.post(t, "bind", args); !strings.Contains(answer, "already bound to node good") {
			t.Errorf("got response %s", answer)
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
			t.Errorf("got more Bindings: %+v", cluster.bindings)
		}
	})
	t.Run("a pod that does not exist", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes)}
		if answer := serve(t, cluster).post(t, "bind", args); !strings.Contains(answer, "does not exist") || len(cluster.bindings) > 0 {
			t.Errorf("got response %s", answer)
		}
	})
	t.Run("a pod newer than what we have seen", func(t *testing.T) {
		cluster := &fakeCluster{view: view(threeNodes), live: somePod()}
		if answer := serve(t, cluster).post(t, "bind", args); answer != `{"Error":""}` || len(cluster.bindings) != 1 {
			t.Errorf("got response %s", answer)
		}
	})
	t.Run("a node we do not know", func(t *testing.T) {
		cluster := &fakeCluster{view: view(nil), pods: []*corev1.Pod{somePod()}}
		if answer := serve(t, cluster).post(t, "bind", args); !strings.Contains(answer, "not known") || len(cluster.bindings) > 0 {
			t.Errorf("got response %s", answer)
		}
	})
}

// A pod that is bound to the node between two steps of another bind call also counts: it is no longer in flight, and the view
// from before does not have it.
func TestBindCountsPodsBoundMeanwhile(t *testing.T) {
	nodes := []*corev1.Node{labelled("one", "say", "full", "pods", "")}
	first := somePod()
	first.Name, first.UID, first.Spec.NodeName = "q", "u2", "one"
	cluster := &fakeCluster{view: view(nodes), live: somePod()}
	cluster.onLive = func(context.Context, string) error {
		cluster.view = view(nodes, first)
		return nil
	}
	answer := serve(t, cluster).post(t, "bind", encode(t, extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "u1", Node: "one"}))
	if !strings.Contains(answer, noRoom.Text) || len(cluster.bindings) > 0 {
		t.Errorf("got response %s, and bound %v", answer, cluster.bindings)
	}
}

// gated are labels that wait before they evaluate the first pod.
type gated struct {
	labels
	first *sync.Once
	open  chan struct{}
}

func (g gated) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	g.first.Do(func() { <-g.open })
	return g.labels.Prepare(ctx, pod, view)
}

// While one pod is being admitted, another bind call waits, and then evaluates its pod with the first one on the node.
func TestBindCountsThePodAdmittedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := somePod()
		second.Name, second.UID = "q", "u2"
		bound := make(chan error)
		cluster := &fakeCluster{view: view([]*corev1.Node{labelled("one", "say", "full", "pods", "")}), pods: []*corev1.Pod{somePod(), second}}
		cluster.onBind = func() error { return <-bound }
		gate := gated{first: new(sync.Once), open: make(chan struct{})}
		e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Labels", Policy: gate, Weight: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		bind := extender.New(extender.Options{
			Profile: "/", Engine: e, Cluster: cluster, Log: decision.NewLog(16),
			Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		}).Verb(decision.Bind)
		begin := func(name, uid string) chan string {
			answered := make(chan string, 1)
			body := encode(t, extenderv1.ExtenderBindingArgs{PodName: name, PodNamespace: "default", PodUID: types.UID(uid), Node: "one"})
			go func() { answered <- answer(bind, []byte(body)) }()
			synctest.Wait()
			return answered
		}
		first := begin("p", "u1")
		other := begin("q", "u2")
		close(gate.open)
		synctest.Wait()
		close(bound)
		if got := <-first; got != `{"Error":""}` {
			t.Errorf("the first pod: %s", got)
		}
		if got := <-other; !strings.Contains(got, noRoom.Text) {
			t.Errorf("the second pod: %s", got)
		}
	})
}
