package requeue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/snapshot"
)

func podNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("p%04d", i)
	}
	return names
}

// A Requeuer that requeues no pods knows why they wait, until they are bound or deleted.
func TestKnowsWithoutRequeuing(t *testing.T) {
	simulate(t, never, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("p0000", "p0001")
		c.node("a", 1)
		if requeued := c.after(time.Hour); requeued != "" {
			t.Errorf("requeued: %s", requeued)
		}
		if status, ok := c.requeuer.Status("/", "p0000"); !ok || status.Rejection.Code != "Full" || status.Requeues != 0 {
			t.Errorf("%v, %+v", ok, status)
		}
		c.mu.Lock()
		delete(c.pods, "p0000")
		c.mu.Unlock()
		time.Sleep(time.Hour)
		if _, ok := c.requeuer.Status("/", "p0000"); ok {
			t.Error("a deleted pod is known")
		}
		if _, ok := c.requeuer.Status("/", "p0001"); !ok {
			t.Error("a pod that waits is not known")
		}
	})
}

// The version changes with what Status returns, and not when a pod still fits on no node of a new View.
func TestVersion(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		none := c.requeuer.Version()
		c.create("p0000")
		rejected := c.requeuer.Version()
		c.node("b", 0)
		c.after(time.Minute)
		if still := c.requeuer.Version(); rejected == none || still != rejected {
			t.Errorf("versions %d, %d after a rejection, %d after another View", none, rejected, still)
		}
		c.node("a", 1)
		c.after(time.Minute)
		if after := c.requeuer.Version(); after == rejected {
			t.Error("a pod that fits does not change the version")
		}
	})
}

// One free place requeues one of a thousand pods, the oldest; three free places requeue three, one after the other.
func TestOneFreePlaceRequeuesOnePod(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(1000)...)
		if requeued := c.after(time.Hour); requeued != "" {
			t.Errorf("no place is free, but got requeued pods: %s", requeued)
		}
		c.start = time.Now()
		c.node("a", 1)
		if requeued := c.after(time.Hour); requeued != "p0000@0" {
			t.Errorf("requeued: %s", requeued)
		}
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 999 {
			t.Errorf("got %v pending pods", got)
		}
		c.start = time.Now()
		c.node("a", 4)
		if requeued := c.after(time.Hour); requeued != "p0001@0 p0002@0.05 p0003@0.1" {
			t.Errorf("requeued: %s", requeued)
		}
		if got := c.metric("outboard_requeue_pods_total", "success"); got != 4 {
			t.Errorf("got %v successful requeues of 4", got)
		}
		if got := c.metric("outboard_requeue_patches_total", ""); got != 4 {
			t.Errorf("got %v patches", got)
		}
	})
}

// The next pod is requeued when the outcome of the previous requeue is known, or after a second.
func TestAwaitsOutcome(t *testing.T) {
	simulate(t, 1000, func(c *fakeCluster) {
		c.busy = 300 * time.Millisecond
		c.node("a", 0)
		c.create(podNames(3)...)
		c.start = time.Now()
		c.node("a", 3)
		if requeued := c.after(time.Minute); requeued != "p0000@0 p0001@0.3 p0002@0.6" {
			t.Errorf("requeued: %s", requeued)
		}
	})
	simulate(t, 1000, func(c *fakeCluster) {
		c.rejectedElsewhere["p0000"] = true
		c.node("a", 0)
		c.create(podNames(3)...)
		c.start = time.Now()
		c.node("a", 3)
		if requeued := c.after(1500 * time.Millisecond); requeued != "p0000@0 p0001@1 p0002@1.005 p0000@1.01" {
			t.Errorf("requeued: %s", requeued)
		}
		if got := c.metric("outboard_requeue_pods_total", "timeout"); got != 1 {
			t.Errorf("got %v requeues that timed out", got)
		}
	})
}

// Pods of higher priority come first, and those whose retries failed last.
func TestOrder(t *testing.T) {
	simulate(t, 1000, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("old", "young")
		for name, priority := range map[string]int32{"important": 10, "unimportant": -10} {
			c.create(name)
			pod := c.PodByUID(types.UID(name)).DeepCopy()
			pod.Spec.Priority, pod.ResourceVersion = &priority, "2"
			c.set(pod)
			c.attempt(name)
		}
		c.rejectedElsewhere["old"] = true
		c.start = time.Now()
		c.node("a", 2)
		if requeued := c.after(1500 * time.Millisecond); requeued != "important@0 old@0.005 young@1.005" {
			t.Errorf("requeued: %s", requeued)
		}
		c.rejectedElsewhere["old"] = false
		c.start = time.Now()
		c.node("a", 4) // the last retry of old has just failed
		if requeued := c.after(time.Minute); requeued != "old@0 unimportant@0.005" {
			t.Errorf("requeued: %s", requeued)
		}
	})
}

// The backoff of a pod that kube-scheduler finds no node for grows, and starts again after a long pause.
func TestBackoff(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.rejectedElsewhere["p0000"] = true
		c.node("a", 0)
		c.create("p0000")
		c.start = time.Now()
		c.node("a", 1)
		want := "p0000@0 p0000@1 p0000@3 p0000@7 p0000@15 p0000@31 p0000@63 p0000@127 p0000@255 p0000@511 p0000@811 p0000@1111"
		if requeued := c.after(20 * time.Minute); requeued != want {
			t.Errorf("requeued\n%s, want\n%s", requeued, want)
		}
		status, ok := c.requeuer.Status("/", "p0000")
		wanted := requeue.Status{
			Since: c.start, Requeues: 12, LastRequeued: c.start.Add(1111 * time.Second), LastCall: status.LastCall, Nodes: 1,
			Rejection: decision.Rejection{Policy: "Places", Code: "Full", Text: "node(s) are full", Nodes: 1, Nearest: []decision.Miss{{Node: "a"}}},
		}
		if diff := cmp.Diff(wanted, status); !ok || diff != "" {
			t.Errorf("%v (-want +got):\n%s", ok, diff)
		}
		if _, ok := c.requeuer.Status("/other", "p0000"); ok {
			t.Error("the pod is pending because of another profile")
		}
		c.node("a", 0)
		c.after(15 * time.Minute)
		c.start = time.Now()
		c.node("a", 1)
		if requeued := c.after(5 * time.Second); requeued != "p0000@0 p0000@1 p0000@3" {
			t.Errorf("requeued after a pause: %s", requeued)
		}
	})
}

// The rate limits how many pods are requeued.
func TestRate(t *testing.T) {
	simulate(t, 5, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.node("a", 100)
		if requeued := strings.Fields(c.after(10*time.Second - time.Millisecond)); len(requeued) != 50 {
			t.Errorf("%d requeued in 10 s", len(requeued))
		}
		if requeued := strings.Fields(c.after(time.Hour)); len(requeued) != 50 {
			t.Errorf("%d requeued after that", len(requeued))
		}
	})
}

// When kube-scheduler sees a change before Outboard does, its retry is evaluated with the View before the change. The pod is
// requeued when the next View is published, even if that is between the evaluation and the report of its result.
func TestLateView(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("p0000")
		synctest.Wait()
		view := c.View()
		pod := c.PodByUID("p0000")
		c.node("a", 1)
		if requeued := c.after(0); !strings.HasPrefix(requeued, "p0000") {
			t.Fatalf("requeued: %q", requeued)
		}
		// The retry binds it. The same happens to another pod, whose rejection is reported late:
		c.after(time.Minute)
		other := pod.DeepCopy()
		other.UID, other.Name = "other", "other"
		c.set(other)
		c.node("a", 2)
		synctest.Wait()
		c.observe(engine.Request{Pod: other, View: view, Nodes: []*snapshot.Node{view.Node("a")}}, false, nil, nil)
		if requeued := c.after(0); !strings.HasPrefix(requeued, "other") {
			t.Errorf("requeued: %q", requeued)
		}
	})
}

// kube-scheduler can see a new pod before Outboard does. When the watch shows the pod, no View changes.
func TestNewPod(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		view := c.View()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new"}}
		c.observe(engine.Request{Pod: pod, View: view, Nodes: []*snapshot.Node{view.Node("a")}}, false, nil, nil)
		c.node("a", 1)
		if requeued := c.after(10 * time.Second); requeued != "" {
			t.Errorf("requeued before the watch shows it: %s", requeued)
		}
		c.set(pod)
		if requeued := c.after(2 * time.Second); !strings.HasPrefix(requeued, "new@") {
			t.Errorf("requeued: %q", requeued)
		}
	})
}

// A node that a call names before the cluster has it counts once the cluster has it; a node outside the call never counts.
func TestOnlyNodesAskedAbout(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("waits", "knows", "sees")
		c.attempt("knows", "coming")
		c.node("other", 1)
		if requeued := c.after(time.Hour); requeued != "" {
			t.Errorf("requeued for a node that was not in the call: %s", requeued)
		}
		pod := c.PodByUID("sees")
		foreign := snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "only in the request"}})
		c.observe(engine.Request{Pod: pod, View: c.View(), Nodes: []*snapshot.Node{foreign}}, false, nil, nil)
		c.node(foreign.Name, 1)
		if requeued := c.after(500 * time.Millisecond); !strings.HasPrefix(requeued, "sees@") || strings.Contains(requeued, " ") {
			t.Errorf("requeued: %s", requeued)
		}
		c.node("coming", 1)
		if requeued := c.after(500 * time.Millisecond); !strings.HasPrefix(requeued, "knows@") || strings.Contains(requeued, "waits") {
			t.Errorf("requeued: %s", requeued)
		}
	})
}

// The node to which a pod is nominated counts once the victims are gone, also if kube-scheduler rejects the node itself in its last call.
func TestNominatedPod(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("asked", 0)
		c.node("nominated", 4)
		victim := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "victim", UID: "victim", DeletionTimestamp: &metav1.Time{Time: c.start}},
			Spec:       corev1.PodSpec{NodeName: "nominated"},
		}
		c.change(func(b *snapshot.Builder) { b.SetPod(victim) })
		rejected := func(name string) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
			pod.Status.NominatedNodeName = "nominated"
			c.set(pod)
			c.observe(engine.Request{Pod: pod, View: c.View(), Nodes: []*snapshot.Node{c.View().Node("asked")}}, false, nil, nil)
		}
		rejected("early")
		if requeued := c.after(time.Hour); requeued != "" {
			t.Errorf("requeued while a pod ends: %s", requeued)
		}
		c.change(func(b *snapshot.Builder) { b.DeletePod(victim.UID) })
		if requeued := c.after(time.Second); requeued != "early@3600" {
			t.Errorf("requeued when it is gone: %s", requeued)
		}
		rejected("late")
		if requeued := c.after(time.Hour); !strings.HasPrefix(requeued, "late@36") {
			t.Errorf("requeued after it is gone: %s", requeued)
		}
	})
}

// New policies may let a pod pass although the cluster has not changed.
func TestUse(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("p0000")
		c.after(time.Minute)
		all, err := engine.New(engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.requeuer.Use(map[string]*engine.Engine{"/": all})
		if requeued := c.after(0); !strings.HasPrefix(requeued, "p0000@") {
			t.Errorf("requeued: %q", requeued)
		}
		c.requeuer.Use(nil) // without the profile no pod is pending because of it
		c.after(2 * time.Minute)
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 0 {
			t.Errorf("got %v pending pods", got)
		}
	})
}

// Pods that are deleted, bound, terminating or unknown leave the queue.
func TestRemovesPods(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("gone", "bound", "deleted", "stays")
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 4 {
			t.Errorf("got %v pending pods at first", got)
		}
		bound, deleted := c.PodByUID("bound").DeepCopy(), c.PodByUID("deleted").DeepCopy()
		bound.Spec.NodeName, deleted.DeletionTimestamp = "elsewhere", &deleted.CreationTimestamp
		c.set(bound)
		c.set(deleted)
		c.mu.Lock()
		delete(c.pods, "gone")
		c.mu.Unlock()
		view := c.View()
		for _, uid := range []types.UID{"imagined", ""} {
			imagined := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "imagined", UID: uid}}
			c.observe(engine.Request{Pod: imagined, View: view, Nodes: []*snapshot.Node{view.Node("a")}}, false, nil, nil)
		}
		if requeued := c.after(3 * time.Minute); requeued != "" {
			t.Errorf("requeued: %s", requeued)
		}
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 1 {
			t.Errorf("got %v pending pods", got)
		}
		c.node("a", 9)
		if requeued := c.after(time.Minute); !strings.HasPrefix(requeued, "stays@") || strings.Contains(requeued, " ") {
			t.Errorf("requeued: %s", requeued)
		}
	})
}

// A pod with scheduling gates is never pending because of Outboard; without gates it is, even before the watch shows that they
// are removed.
func TestGatedPods(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", ResourceVersion: "1"}}
		gated := pod.DeepCopy()
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
		c.set(gated)
		c.attempt("p")
		if _, waits := c.requeuer.Status("/", "p"); waits || c.metric("outboard_requeue_pending_pods", "") != 0 {
			t.Error("a gated pod is pending because of Outboard")
		}
		c.node("a", 1)
		if requeued := c.after(10 * time.Minute); requeued != "" {
			t.Errorf("requeued with gates: %s", requeued)
		}
		c.node("a", 0)
		c.set(pod)
		c.attempt("p")
		c.set(gated)
		c.start = time.Now()
		c.node("a", 1)
		if requeued := c.after(500 * time.Millisecond); requeued != "p@0" {
			t.Errorf("requeued without gates: %q", requeued)
		}
	})
}

// Without the permission, there is one write every five minutes and one warning in the log; with it, requeuing works again.
func TestForbidden(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(10)...)
		c.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p0000", errors.New("no"))
		c.node("a", 10)
		if requeued := strings.Fields(c.after(16 * time.Minute)); len(requeued) != 4 {
			t.Errorf("got %d writes in 16 minutes", len(requeued))
		}
		if got := strings.Count(c.log.String(), "level=WARN"); got != 1 || !strings.Contains(c.log.String(), "grant the verb patch on pods/status") {
			t.Errorf("got %d warnings: %s", got, c.log.String())
		}
		if got := c.metric("outboard_requeue_pods_total", "error"); got != 4 {
			t.Errorf("got %v errors", got)
		}
		c.mu.Lock()
		c.err = nil
		c.mu.Unlock()
		c.after(10 * time.Minute)
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 0 {
			t.Errorf("got %v pending pods", got)
		}
		if !strings.Contains(c.log.String(), "requeuing pending pods works again") {
			t.Error(c.log.String())
		}
	})
}

// While the API server fails, there is one write per second; a pod that does not exist leaves the queue.
func TestErrors(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.err = errors.New("away")
		c.node("a", 100)
		if requeued := strings.Fields(c.after(10*time.Second - time.Millisecond)); len(requeued) != 10 {
			t.Errorf("got %d writes in 10 s", len(requeued))
		}
	})
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("gone", "stays")
		c.unknown = "gone" // in the API server; the watch does not show it yet
		c.start = time.Now()
		c.node("a", 2)
		if requeued := c.after(10 * time.Second); requeued != "gone@0 stays@0.05" {
			t.Errorf("requeued: %s", requeued)
		}
		if got := c.metric("outboard_requeue_pods_total", "not_found"); got != 1 {
			t.Errorf("got %v pods that were not found", got)
		}
	})
}

// However often the View changes, evaluations take at most a fifth of the time.
func TestShareOfTime(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.slow.Store(int64(time.Millisecond))
		start := time.Now()
		for i := range 10_000 {
			time.Sleep(time.Millisecond)
			other := c.View().Node("a").Object.DeepCopy()
			other.Labels["changed"] = fmt.Sprint(i)
			c.change(func(b *snapshot.Builder) { b.SetNode(other) })
		}
		took, judging := time.Since(start).Seconds(), c.metric("outboard_requeue_evaluation_seconds_total", "")
		if share := judging / took; share > 0.21 || share < 0.1 {
			t.Errorf("evaluations took %.1f of %.1f seconds", judging, took)
		}
	})
}

// The number of pods in the queue is bounded; the metric counts the pods that are dropped.
func TestBound(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(10_010)...)
		if got := c.metric("outboard_requeue_pending_pods", ""); got != 10_000 {
			t.Errorf("got %v pending pods", got)
		}
		if got := c.metric("outboard_requeue_dropped_pods_total", ""); got != 10 {
			t.Errorf("got %v dropped pods", got)
		}
	})
}

// While nothing changes, no pod is evaluated.
func TestIdle(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.after(time.Minute)
		before := c.asked.Load()
		c.after(time.Hour)
		if c.asked.Load() != before {
			t.Errorf("evaluated %d times while nothing changed", c.asked.Load()-before)
		}
		other := c.View().Node("a").Object.DeepCopy()
		other.Labels["changed"] = "yes"
		c.change(func(b *snapshot.Builder) { b.SetNode(other) })
		c.after(time.Minute)
		if got := c.asked.Load() - before; got != 100 {
			t.Errorf("evaluated %d times after one change, want once for each pod", got)
		}
	})
}
