package extender_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
)

// ledgerStore holds the ledgers of several nodes, in memory.
type ledgerStore struct {
	mu          sync.Mutex
	ledgers     map[snapshot.LedgerKey]snapshot.Ledger
	allocations int // number of allocations written
}

func newLedgerStore() *ledgerStore {
	return &ledgerStore{ledgers: map[snapshot.LedgerKey]snapshot.Ledger{}}
}

func (b *ledgerStore) Allocate(_ context.Context, key snapshot.LedgerKey, pod *corev1.Pod, node string, choose engine.Choose) (snapshot.LedgerPod, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.ledgers[key]
	if !ok {
		l = snapshot.Ledger{Resource: key.Resource, Node: key.Node}
	}
	b.allocations++
	entry := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Token: fmt.Sprint(b.allocations)}
	next, held, err := ledger.Allocate(l, entry, choose, time.Now())
	if err == nil {
		b.ledgers[key] = next
	}
	return held, err
}

func (b *ledgerStore) Release(ctx context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	if held.Shared {
		return nil
	}
	return b.Revoke(ctx, key, held)
}

func (b *ledgerStore) Revoke(_ context.Context, key snapshot.LedgerKey, held snapshot.LedgerPod) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.ledgers[key]; l.Pod(held.UID) != nil && l.Pod(held.UID).Token == held.Token {
		b.ledgers[key] = *l.Without(func(uid types.UID) bool { return uid == held.UID })
	}
	return nil
}

// holders are the nodes on which the pod holds an allocation.
func (b *ledgerStore) holders(uid types.UID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes []string
	for key, l := range b.ledgers {
		if l.Pod(uid) != nil {
			nodes = append(nodes, key.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// view is a View of the nodes, on which the GPUs with these indexes are unhealthy.
func (b *ledgerStore) view(nodes []*corev1.Node, unhealthy string) *snapshot.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	var builder snapshot.Builder
	for _, n := range nodes {
		builder.SetNode(n)
		source := snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}
		builder.SetConfigMap(source, n.Name, map[string]string{"gpus": unhealthy})
	}
	for _, l := range b.ledgers {
		builder.SetLedger(&l)
	}
	return builder.View()
}

// largeGPUPod requests 10 GiB, so that two do not fit on one GPU.
func largeGPUPod(name string) *corev1.Pod { return sharing(name, 0, 10) }

// serveGPUMemory serves a profile with only GPUMemory.
func serveGPUMemory(t *testing.T, cluster extender.Cluster, ledgers engine.Ledgers, change ...func(*engine.Options, *extender.Options)) server {
	t.Helper()
	return serve(t, cluster, append([]func(*engine.Options, *extender.Options){withGPUMemory(t, ledgers)}, change...)...)
}

func withGPUMemory(t *testing.T, ledgers engine.Ledgers) func(*engine.Options, *extender.Options) {
	t.Helper()
	p, err := gpumemory.New(gpumemory.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return func(e *engine.Options, o *extender.Options) {
		e.Policies = []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}
		o.Ledgers = ledgers
	}
}

// bindTo returns the error in the response to a bind call.
func bindTo(t *testing.T, s server, pod, node string) string {
	t.Helper()
	args := extenderv1.ExtenderBindingArgs{PodName: pod, PodNamespace: "default", PodUID: types.UID(pod), Node: node}
	return decode[extenderv1.ExtenderBindingResult](t, s.post(t, "bind", encode(t, args))).Error
}

// While the outcome of every Binding is unknown, a pod that is tried on one node after the other holds no allocation; or, while the
// API server rejects changes of the pod, only the node where it holds an allocation has the best score.
func TestPodWithUnknownOutcomesDoesNotCollectAllocations(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n1", 1), gpuNode("n2", 1), gpuNode("n3", 1)}
	asked := names("n1", "n2", "n3")
	t.Run("the pod can be changed", func(t *testing.T) {
		b := newLedgerStore()
		cluster := &fakeCluster{view: b.view(nodes, ""), pods: []*corev1.Pod{largeGPUPod("p")}, bindErr: binder.ErrOutcomeUnknown}
		s := serveGPUMemory(t, cluster, b)
		for _, node := range *asked {
			if got := bindTo(t, s, "p", node); !strings.Contains(got, "the Binding was withdrawn") {
				t.Errorf("bind to %s: %s", node, got)
			}
			if held := b.holders("p"); len(held) > 0 {
				t.Errorf("after the bind to %s the pod holds allocations on %q", node, held)
			}
			cluster.view = b.view(nodes, "")
		}
	})
	t.Run("it cannot", func(t *testing.T) {
		for _, shortlist := range []int{0, 1} {
			b := newLedgerStore()
			cluster := &fakeCluster{
				view: b.view(nodes, ""), pods: []*corev1.Pod{largeGPUPod("p")}, bindErr: binder.ErrOutcomeUnknown, touchErr: errors.New("no answer"),
			}
			s := serveGPUMemory(t, cluster, b, func(e *engine.Options, _ *extender.Options) { e.Shortlist = shortlist })
			next := "n2"
			for range 3 {
				if got := bindTo(t, s, "p", next); !strings.Contains(got, "its allocations stay for now: changing pod default/p: no answer") {
					t.Errorf("bind to %s: %s", next, got)
				}
				cluster.view = b.view(nodes, "")
				fitting := *decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: largeGPUPod("p"), NodeNames: asked}))).NodeNames
				scores := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", encode(t, extenderv1.ExtenderArgs{Pod: largeGPUPod("p"), NodeNames: &fitting})))
				for _, name := range fitting { // a host without a score has 0
					if !slices.ContainsFunc(scores, func(s extenderv1.HostPriority) bool { return s.Host == name }) {
						scores = append(scores, extenderv1.HostPriority{Host: name})
					}
				}
				best := slices.MaxFunc(scores, func(a, b extenderv1.HostPriority) int { return int(a.Score - b.Score) })
				for _, other := range scores {
					if other.Host != best.Host && other.Score == best.Score {
						t.Errorf("the score of %s is not below that of %s", other.Host, best.Host)
					}
				}
				next = best.Host
			}
			if held := b.holders("p"); !slices.Equal(held, []string{"n2"}) {
				t.Errorf("with shortlist %d the pod holds allocations on %q", shortlist, held)
			}
		}
	})
}

// The GPU of a pod fails between two attempts to bind it. The second attempt allocates another GPU, but only after the Binding of
// the first, which may still be in flight, is certain to be rejected.
func TestRetryIsNotBoundToAnUnhealthyGPU(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2)}
	b := newLedgerStore()
	cluster := &fakeCluster{
		view: b.view(nodes, ""), pods: []*corev1.Pod{largeGPUPod("p")}, bindErr: binder.ErrOutcomeUnknown, touchErr: errors.New("no answer"),
	}
	s := serveGPUMemory(t, cluster, b)
	bindTo(t, s, "p", "n")
	first := cluster.bindings[0]
	cluster.view, cluster.bindErr = b.view(nodes, first.Annotations[gpuIndex]), nil

	want := "node n: the existing allocation of the pod cannot be used any more: a GPU that the pod has allocated is unhealthy or no longer exists: changing pod default/p: no answer"
	if got := bindTo(t, s, "p", "n"); got != want || len(cluster.bindings) != 1 || len(b.holders("p")) != 1 {
		t.Errorf("while the pod cannot be changed: %q, %d Bindings, allocations on %q", got, len(cluster.bindings), b.holders("p"))
	}
	cluster.touchErr = nil
	if got := bindTo(t, s, "p", "n"); got != "" {
		t.Fatal(got)
	}
	last := cluster.bindings[len(cluster.bindings)-1]
	if last.Annotations[gpuIndex] == first.Annotations[gpuIndex] || last.ResourceVersion == first.ResourceVersion {
		t.Errorf("bound to GPU %s as version %s, after a Binding to GPU %s as version %s",
			last.Annotations[gpuIndex], last.ResourceVersion, first.Annotations[gpuIndex], first.ResourceVersion)
	}
	if held := b.ledgers[snapshot.LedgerKey{Resource: "aliyun.com/gpu-mem", Node: "n"}]; len(held.Pods) != 1 || held.Unit(last.Annotations[gpuIndex]).Amount("p") != 10 {
		t.Errorf("the ledger holds %+v", held)
	}
}

// With bypass, no node is rejected or preferred, and bind still allocates: no GPU is allocated twice.
func TestBypass(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n1", 1), gpuNode("n2", 1)}
	b := newLedgerStore()
	cluster := &fakeCluster{view: b.view(nodes, ""), pods: []*corev1.Pod{largeGPUPod("p"), largeGPUPod("q")}}
	s := serveGPUMemory(t, cluster, b, func(e *engine.Options, _ *extender.Options) { e.Bypass, e.Shortlist = true, 1 })
	if got := bindTo(t, s, "p", "n1"); got != "" {
		t.Fatal(got)
	}
	cluster.view = b.view(nodes, "")
	request := encode(t, extenderv1.ExtenderArgs{Pod: largeGPUPod("q"), NodeNames: names("n1", "n2")})
	if got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", request)); !slices.Equal(*got.NodeNames, *names("n1", "n2")) {
		t.Errorf("filter returns %v", *got.NodeNames)
	}
	if got := decode[extenderv1.HostPriorityList](t, s.post(t, "prioritize", request)); len(got) > 0 {
		t.Errorf("prioritize returns %v", got)
	}
	if got := bindTo(t, s, "q", "n1"); !strings.Contains(got, "Insufficient GPU Memory") || len(b.holders("q")) > 0 {
		t.Errorf("bind to the full node: %q, with allocations on %v", got, b.holders("q"))
	}
	if got := bindTo(t, s, "q", "n2"); got != "" || !slices.Equal(b.holders("q"), []string{"n2"}) {
		t.Errorf("bind to the other node: %q, with allocations on %v", got, b.holders("q"))
	}
}
