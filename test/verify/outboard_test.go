package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	outboard "outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// stillCluster is a cluster that does not change.
type stillCluster struct{ view *snapshot.View }

func (c stillCluster) View() *snapshot.View                    { return c.view }
func (c stillCluster) ViewFor(types.UID) *snapshot.View        { return c.view }
func (stillCluster) Assume(*corev1.Pod, string) func()         { return func() {} }
func (stillCluster) Assumed(types.UID) string                  { return "" }
func (stillCluster) Superseded(*snapshot.View) <-chan struct{} { return nil }
func (stillCluster) Synced() error                             { return nil }
func (stillCluster) Pod(types.UID, string) *corev1.Pod         { return nil }
func (stillCluster) LatestPod(types.UID) *corev1.Pod           { return nil }
func (stillCluster) PodByUID(types.UID) *corev1.Pod            { return nil }
func (stillCluster) LivePod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return nil, fmt.Errorf("not found")
}
func (stillCluster) Throttle(ctx context.Context) (context.Context, error) { return ctx, nil }
func (stillCluster) TouchPod(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return nil, fmt.Errorf("not found")
}
func (stillCluster) Bind(context.Context, binder.Binding) error { return fmt.Errorf("not found") }

// byRack rejects every fourth node, and all nodes for a pod with a node selector.
type byRack struct{ none bool }

var noRoom = &policy.Reason{Code: "NoRoom", Text: "no room"}

func (byRack) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	return byRack{none: len(pod.Spec.NodeSelector) > 0}, nil
}

func (p byRack) Filter(n *snapshot.Node) policy.Verdict {
	if p.none || len(n.Object.Name)%4 == 3 {
		return policy.Verdict{Reason: noRoom}
	}
	return policy.Verdict{}
}

func (byRack) Score(n *snapshot.Node) int64 { return int64(len(n.Object.Name)) }

// Outboard passes every rule.
func TestOutboardKeepsEveryRule(t *testing.T) {
	var builder snapshot.Builder
	var names []string
	var pods []corev1.Pod
	for i := range 100 {
		name := fmt.Sprintf("%0*d", 1+i%7, i)
		names = append(names, name)
		builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-" + name, Namespace: "default", UID: types.UID("uid-" + name)},
			Spec:       corev1.PodSpec{NodeName: name},
		}
		pods = append(pods, pod)
		builder.SetPod(&pod)
	}
	profile, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "ByRack", Policy: byRack{}, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	handler := outboard.New(outboard.Options{
		Profile: "/", Engine: profile, Cluster: stillCluster{builder.View()}, Log: decision.NewLog(16),
		Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	mux := http.NewServeMux()
	for _, verb := range decision.Verbs() {
		mux.Handle("/"+string(verb), handler.Verb(verb))
	}
	o := allVerbs(serve(t, mux))
	o.Nodes, o.Pods, o.Sizes = nodesNamed(names...), pods, []int{50, 100}
	report := mustRun(t, o)
	// The responses stay short.
	if ids := broken(report); !slices.Equal(ids, []string{"score-all"}) || !report.OK() {
		t.Errorf("fails %v\n%s", ids, text(t, report))
	}
	for _, id := range []string{"order", "reasons", "nodes-unchanged", "preempt-untrimmed", "connection-reuse", "large-request", "survives"} {
		if r := resultOf(t, report, id); r.Outcome != Passed {
			t.Errorf("%s: %s (%s)", id, r.Outcome, r.Why)
		}
	}
}
