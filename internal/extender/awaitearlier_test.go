package extender_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/snapshot"
)

// bindingCluster is a cluster that shows pods on their nodes once they are bound, and that sends no Binding after the caller's
// context has ended.
type bindingCluster struct {
	*fakeCluster
	slow  map[types.UID]time.Duration // the duration of the Bindings of these pods
	mu    sync.Mutex
	nodes map[types.UID]string // of pods that are bound
	order []types.UID
	next  chan struct{} // closed when a pod is bound
}

func newBindingCluster(f *fakeCluster) *bindingCluster {
	return &bindingCluster{fakeCluster: f, nodes: map[types.UID]string{}, next: make(chan struct{})}
}

func (c *bindingCluster) View() *snapshot.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *bindingCluster) ViewFor(uid types.UID) *snapshot.View { return c.with(c.View(), uid) }

func (c *bindingCluster) Superseded(view *snapshot.View) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if view != c.view {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.next
}

func (c *bindingCluster) PodByUID(uid types.UID) *corev1.Pod {
	pod := c.fakeCluster.PodByUID(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.nodes[uid]; pod != nil && node != "" {
		pod = pod.DeepCopy()
		pod.Spec.NodeName = node
	}
	return pod
}

func (c *bindingCluster) Bind(ctx context.Context, b binder.Binding) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	time.Sleep(c.slow[b.UID])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[b.UID], c.order = b.Node, append(c.order, b.UID)
	another := *c.view
	c.view = &another
	close(c.next)
	c.next = make(chan struct{})
	return nil
}

// bindHere is bindTo without a network.
func bindHere(t *testing.T, h http.Handler, pod, node string) string {
	args := extenderv1.ExtenderBindingArgs{PodName: pod, PodNamespace: "default", PodUID: types.UID(pod), Node: node}
	return decode[extenderv1.ExtenderBindingResult](t, here(t, h, "bind", encode(t, args))).Error
}

// A replica is killed after it made a claim, so that pod is never bound. The other pods of its size, whose Bindings should
// follow, are bound: concurrent bind calls, and sequential ones.
func TestPodsAreBoundBesideAClaimOfAPodThatIsNot(t *testing.T) {
	synctest.Test(t, boundBesideAClaimOfAPodThatIsNot)
}

func boundBesideAClaimOfAPodThatIsNot(t *testing.T) {
	const gpus, together = 16, 5
	b := newLedgerStore()
	nodes := []*corev1.Node{gpuNode("n", gpus)}
	dead := largeGPUPod("dead")
	cluster := newBindingCluster(&fakeCluster{view: b.view(nodes, ""), pods: []*corev1.Pod{dead}})
	for i := range gpus - 1 {
		cluster.pods = append(cluster.pods, largeGPUPod(fmt.Sprint("p", i)))
	}
	// The claim of the killed replica.
	killed := &fakeCluster{view: cluster.view, pods: cluster.pods, bindErr: binder.ErrOutcomeUnknown, touchErr: io.ErrUnexpectedEOF}
	dying, _ := handlerOf(t, killed, withGPUMemory(t, b))
	bindHere(t, dying, "dead", "n")
	if held := b.holders("dead"); len(held) != 1 {
		t.Fatalf("the pod holds claims on %q", held)
	}

	h, _ := handlerOf(t, cluster, withGPUMemory(t, b))
	bind := func(i int) {
		pod := fmt.Sprint("p", i)
		if got := bindHere(t, h, pod, "n"); got != "" {
			t.Errorf("%s: %s", pod, got)
		}
	}
	var all sync.WaitGroup
	for i := range together {
		all.Go(func() { bind(i) })
	}
	all.Wait()
	for i := together; i < gpus-1; i++ {
		bind(i)
	}
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if len(cluster.nodes) != gpus-1 || cluster.nodes["dead"] != "" {
		t.Errorf("got bound pods %v", cluster.nodes)
	}
}

// Bind waits longer for a pod that this replica is binding: it will be bound, or its claim released.
func TestPodWaitsForTheOneThatIsBeingBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLedgerStore()
		cluster := newBindingCluster(&fakeCluster{view: b.view([]*corev1.Node{gpuNode("n", 2)}, ""), pods: []*corev1.Pod{largeGPUPod("first"), largeGPUPod("second")}})
		cluster.slow = map[types.UID]time.Duration{"first": 700 * time.Millisecond}
		h, _ := handlerOf(t, cluster, withGPUMemory(t, b))
		bind := func(pod string) {
			if got := bindHere(t, h, pod, "n"); got != "" {
				t.Errorf("%s: %s", pod, got)
			}
		}
		var first sync.WaitGroup
		first.Go(func() { bind("first") })
		synctest.Wait() // until its Binding takes its time
		bind("second")
		first.Wait()
		if got := fmt.Sprint(cluster.order); got != "[first second]" {
			t.Errorf("got the order %s", got)
		}
	})
}
