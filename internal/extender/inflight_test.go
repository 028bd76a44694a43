package extender_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policies/remoteclusters"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// with serves a profile of one policy, and what handlers share.
func with(p policy.Policy, inFlight *extender.InFlight, ledgers engine.Ledgers) func(*engine.Options, *extender.Options) {
	return func(e *engine.Options, o *extender.Options) {
		e.Policies = []engine.WeightedPolicy{{Name: "Policy", Policy: p, Weight: 1}}
		o.InFlight, o.Ledgers = inFlight, ledgers
	}
}

// fitting are the nodes that a filter call returns.
func fitting(t *testing.T, s server, pod *corev1.Pod, asked ...string) []string {
	t.Helper()
	result := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &asked})))
	if result.NodeNames == nil {
		t.Fatalf("got response %+v", result)
	}
	return *result.NodeNames
}

// While one profile binds a pod, every other profile counts it, with any policies, and also if the profile is created meanwhile.
func TestProfilesCountTheSamePodsInFlight(t *testing.T) {
	gpus := func() policy.Policy { return policytest.Build(t, gpumemory.Type(), "") }
	limit := func() policy.Policy { return policytest.Build(t, podlimit.Type(), "{max: 1, selector: {}}") }
	for name, test := range map[string]struct{ binds, asks func() policy.Policy }{
		"two GPU policies":       {gpus, gpus},
		"a GPU policy, PodLimit": {gpus, limit},
		"PodLimit twice":         {limit, limit},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, proceed := make(chan struct{}), make(chan error)
			b := newLedgerStore()
			nodes := []*corev1.Node{gpuNode("one", 1), gpuNode("other", 1)}
			cluster := &fakeCluster{view: b.view(nodes, ""), pods: []*corev1.Pod{largeGPUPod("p"), largeGPUPod("q")}}
			var binding atomic.Bool
			cluster.onBind = func() error {
				if binding.Swap(true) {
					return nil // q, which the test reports
				}
				arrived <- struct{}{}
				return <-proceed
			}
			inFlight := extender.NewInFlight()
			binds, asks := serve(t, cluster, with(test.binds(), inFlight, b)), serve(t, cluster, with(test.asks(), inFlight, b))
			answered := make(chan string)
			go func() { answered <- bindTo(t, binds, "p", "one") }()
			<-arrived
			reloaded := serve(t, cluster, with(test.asks(), inFlight, b))
			for name, s := range map[string]server{"the other profile": asks, "a profile made meanwhile": reloaded} {
				if got := fitting(t, s, largeGPUPod("q"), "one", "other"); !slices.Equal(got, []string{"other"}) {
					t.Errorf("while p is being bound to one, in %s q fits on %q", name, got)
				}
				if got := bindTo(t, s, "q", "one"); got == "" {
					t.Errorf("while p is being bound to one, %s binds q there", name)
				}
				if got := fitting(t, s, largeGPUPod("p"), "one", "other"); !slices.Equal(got, []string{"one", "other"}) {
					t.Errorf("%s counts p against itself: it fits on %q", name, got)
				}
			}
			proceed <- errors.New("refused")
			<-answered
			if got := fitting(t, asks, largeGPUPod("q"), "one", "other"); !slices.Equal(got, []string{"one", "other"}) {
				t.Errorf("when p is not bound, q fits on %q", got)
			}
		})
	}
}

// RemoteClusters counts a pod that is being bound to one node of a cluster when it evaluates another node of that cluster.
func TestRemoteClustersCountsPodsInFlight(t *testing.T) {
	nodes := []*corev1.Node{labelled("west-1", "cluster", "west"), labelled("west-2", "cluster", "west")}
	var builder snapshot.Builder
	for _, n := range nodes {
		builder.SetNode(n)
	}
	builder.SetSignal(policytest.Signals("west: {pods/free: 1}")[0])
	waiting := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	}
	arrived, proceed := make(chan struct{}), make(chan error)
	cluster := &fakeCluster{view: builder.View(), pods: []*corev1.Pod{waiting("p"), waiting("q")}}
	cluster.onBind = func() error { arrived <- struct{}{}; return <-proceed }
	remote := policytest.Build(t, remoteclusters.Type(), "{clusterLabel: cluster, clusters: [{name: west, signal: west}]}")
	s := serve(t, cluster, with(remote, nil, nil))
	if got := fitting(t, s, waiting("q"), "west-2"); !slices.Equal(got, []string{"west-2"}) {
		t.Fatalf("before, q fits on %q", got)
	}
	answered := make(chan string)
	go func() { answered <- bindTo(t, s, "p", "west-1") }()
	<-arrived
	if got := fitting(t, s, waiting("q"), "west-2"); len(got) > 0 {
		t.Errorf("a pod that needs the only place in the cluster is being bound to west-1, and q fits on %q", got)
	}
	if got := bindTo(t, s, "q", "west-2"); got == "" {
		t.Error("q is bound to a cluster without room")
	}
	proceed <- errors.New("refused")
	<-answered
	if got := fitting(t, s, waiting("q"), "west-2"); !slices.Equal(got, []string{"west-2"}) {
		t.Errorf("when p is not bound, q fits on %q", got)
	}
}
