package wakeup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/wakeup"
)

func podNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("p%04d", i)
	}
	return names
}

// One place that becomes free wakes one of a thousand pods, the oldest; three wake three, one after the other.
func TestOnePlaceWakesOnePod(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(1000)...)
		if woken := c.after(time.Hour); woken != "" {
			t.Errorf("nothing is free, but woken: %s", woken)
		}
		c.start = time.Now()
		c.node("a", 1)
		if woken := c.after(time.Hour); woken != "p0000@0" {
			t.Errorf("woken: %s", woken)
		}
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 999 {
			t.Errorf("%v pods wait", got)
		}
		c.start = time.Now()
		c.node("a", 4)
		if woken := c.after(time.Hour); woken != "p0001@0 p0002@0.05 p0003@0.1" {
			t.Errorf("woken: %s", woken)
		}
		if got := c.metric("outboard_wakeup_wakes_total", "fits"); got != 4 {
			t.Errorf("%v wakes of 4 did good", got)
		}
		if got := c.metric("outboard_wakeup_patches_total", ""); got != 4 {
			t.Errorf("%v patches", got)
		}
	})
}

// Until it is known what became of a pod nobody else is woken, but for no more than a second.
func TestFateIsAwaited(t *testing.T) {
	simulate(t, 1000, func(c *fakeCluster) {
		c.busy = 300 * time.Millisecond
		c.node("a", 0)
		c.create(podNames(3)...)
		c.start = time.Now()
		c.node("a", 3)
		if woken := c.after(time.Minute); woken != "p0000@0 p0001@0.3 p0002@0.6" {
			t.Errorf("woken: %s", woken)
		}
	})
	simulate(t, 1000, func(c *fakeCluster) {
		c.deaf["p0000"] = true
		c.node("a", 0)
		c.create(podNames(3)...)
		c.start = time.Now()
		c.node("a", 3)
		if woken := c.after(1500 * time.Millisecond); woken != "p0000@0 p0001@1 p0002@1.005 p0000@1.01" {
			t.Errorf("woken: %s", woken)
		}
		if got := c.metric("outboard_wakeup_wakes_total", "unanswered"); got != 1 {
			t.Errorf("%v wakes unanswered", got)
		}
	})
}

// Pods of higher priority come first, and those woken in vain last.
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
		c.deaf["old"] = true
		c.start = time.Now()
		c.node("a", 2)
		if woken := c.after(1500 * time.Millisecond); woken != "important@0 old@0.005 young@1.005" {
			t.Errorf("woken: %s", woken)
		}
		c.deaf["old"] = false
		c.start = time.Now()
		c.node("a", 4) // old was woken in vain a moment ago
		if woken := c.after(time.Minute); woken != "old@0 unimportant@0.005" {
			t.Errorf("woken: %s", woken)
		}
	})
}

// A pod that kube-scheduler finds no node for is left alone ever longer, and after a long calm as short as at first.
func TestBackoff(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.deaf["p0000"] = true
		c.node("a", 0)
		c.create("p0000")
		c.start = time.Now()
		c.node("a", 1)
		want := "p0000@0 p0000@1 p0000@3 p0000@7 p0000@15 p0000@31 p0000@63 p0000@127 p0000@255 p0000@511 p0000@811 p0000@1111"
		if woken := c.after(20 * time.Minute); woken != want {
			t.Errorf("woken\n%s, want\n%s", woken, want)
		}
		status, ok := c.waker.Status("/", "p0000")
		if want := (wakeup.Status{Since: c.start, Woken: 12, Last: c.start.Add(1111 * time.Second)}); !ok || status != want {
			t.Errorf("%v, %+v, want %+v", ok, status, want)
		}
		if _, ok := c.waker.Status("/other", "p0000"); ok {
			t.Error("it waits because of another profile")
		}
		c.node("a", 0)
		c.after(15 * time.Minute)
		c.start = time.Now()
		c.node("a", 1)
		if woken := c.after(5 * time.Second); woken != "p0000@0 p0000@1 p0000@3" {
			t.Errorf("after a calm: %s", woken)
		}
	})
}

// No more are woken than the rate allows.
func TestRate(t *testing.T) {
	simulate(t, 5, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.node("a", 100)
		if woken := strings.Fields(c.after(10*time.Second - time.Millisecond)); len(woken) != 50 {
			t.Errorf("%d woken in 10 s", len(woken))
		}
		if woken := strings.Fields(c.after(time.Hour)); len(woken) != 50 {
			t.Errorf("%d woken after that", len(woken))
		}
	})
}

// kube-scheduler hears of a change before we do: its attempt is judged by the View from before, and the pod is woken when the
// next comes, also if that comes between the judgement and when it is told.
func TestViewThatComesLate(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("p0000")
		synctest.Wait()
		view := c.View()
		pod := c.PodByUID("p0000")
		c.node("a", 1)
		if woken := c.after(0); !strings.HasPrefix(woken, "p0000") {
			t.Fatalf("woken: %q", woken)
		}
		// The attempt that follows binds it. Another pod, of which the same is told late:
		c.after(time.Minute)
		other := pod.DeepCopy()
		other.UID, other.Name = "other", "other"
		c.set(other)
		c.node("a", 2)
		synctest.Wait()
		c.observe(engine.Request{Pod: other, View: view, Nodes: []*snapshot.Node{view.Node("a")}}, false, nil)
		if woken := c.after(0); !strings.HasPrefix(woken, "other") {
			t.Errorf("woken: %q", woken)
		}
	})
}

// A node that was asked about by name, because it was not known yet, counts when it is; one that was not asked about never.
func TestOnlyNodesAskedAbout(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("waits", "knows", "sees")
		c.attempt("knows", "coming")
		c.node("other", 1)
		if woken := c.after(time.Hour); woken != "" {
			t.Errorf("woken for a node they were not asked about: %s", woken)
		}
		pod := c.PodByUID("sees")
		foreign := snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "only in the request"}})
		c.observe(engine.Request{Pod: pod, View: c.View(), Nodes: []*snapshot.Node{foreign}}, false, nil)
		c.node(foreign.Name, 1)
		if woken := c.after(500 * time.Millisecond); !strings.HasPrefix(woken, "sees@") || strings.Contains(woken, " ") {
			t.Errorf("woken: %s", woken)
		}
		c.node("coming", 1)
		if woken := c.after(500 * time.Millisecond); !strings.HasPrefix(woken, "knows@") || strings.Contains(woken, "waits") {
			t.Errorf("woken: %s", woken)
		}
	})
}

// Policies that are configured anew may let a pod pass although nothing has changed.
func TestUse(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("p0000")
		c.after(time.Minute)
		all, err := engine.New(engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.waker.Use(map[string]*engine.Engine{"/": all})
		if woken := c.after(0); !strings.HasPrefix(woken, "p0000@") {
			t.Errorf("woken: %q", woken)
		}
		c.waker.Use(nil) // without the profile nobody waits because of it
		c.after(2 * time.Minute)
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 0 {
			t.Errorf("%v pods wait", got)
		}
	})
}

// What is not waiting any more is forgotten: pods that are gone, bound, or being deleted, and pods that never were.
func TestForgets(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("gone", "bound", "deleted", "stays")
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 4 {
			t.Errorf("%v pods wait at first", got)
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
			c.observe(engine.Request{Pod: imagined, View: view, Nodes: []*snapshot.Node{view.Node("a")}}, false, nil)
		}
		if woken := c.after(3 * time.Minute); woken != "" {
			t.Errorf("woken: %s", woken)
		}
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 1 {
			t.Errorf("%v pods wait", got)
		}
		c.node("a", 9)
		if woken := c.after(time.Minute); !strings.HasPrefix(woken, "stays@") || strings.Contains(woken, " ") {
			t.Errorf("woken: %s", woken)
		}
	})
}

// A pod with scheduling gates does not wait because of us, whoever asks about it, and is not woken; without them it does, also
// while the watch has not shown yet that they are gone.
func TestGatedPods(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", ResourceVersion: "1"}}
		gated := pod.DeepCopy()
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
		c.set(gated)
		c.attempt("p")
		if _, waits := c.waker.Status("/", "p"); waits || c.metric("outboard_wakeup_waiting_pods", "") != 0 {
			t.Error("a gated pod waits because of us")
		}
		c.node("a", 1)
		if woken := c.after(10 * time.Minute); woken != "" {
			t.Errorf("gated, and woken: %s", woken)
		}
		c.node("a", 0)
		c.set(pod)
		c.attempt("p")
		c.set(gated)
		c.start = time.Now()
		c.node("a", 1)
		if woken := c.after(500 * time.Millisecond); woken != "p@0" {
			t.Errorf("without gates, woken: %q", woken)
		}
	})
}

// Without the permission the API server is asked once in five minutes, and the log says so once; with it all is well again.
func TestForbidden(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(10)...)
		c.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p0000", errors.New("no"))
		c.node("a", 10)
		if woken := strings.Fields(c.after(16 * time.Minute)); len(woken) != 4 {
			t.Errorf("asked %d times in 16 minutes", len(woken))
		}
		if got := strings.Count(c.log.String(), "level=WARN"); got != 1 || !strings.Contains(c.log.String(), "grant the verb patch on pods/status") {
			t.Errorf("%d warnings: %s", got, c.log.String())
		}
		if got := c.metric("outboard_wakeup_wakes_total", "error"); got != 4 {
			t.Errorf("%v errors counted", got)
		}
		c.mu.Lock()
		c.err = nil
		c.mu.Unlock()
		c.after(10 * time.Minute)
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 0 {
			t.Errorf("%v pods wait", got)
		}
		if !strings.Contains(c.log.String(), "waiting pods are woken again") {
			t.Error(c.log.String())
		}
	})
}

// An API server that fails is asked once a second; a pod that is gone is forgotten.
func TestErrors(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.err = errors.New("away")
		c.node("a", 100)
		if woken := strings.Fields(c.after(10*time.Second - time.Millisecond)); len(woken) != 10 {
			t.Errorf("asked %d times in 10 s", len(woken))
		}
	})
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("gone", "stays")
		c.unknown = "gone" // to the API server; the watch has yet to say so
		c.start = time.Now()
		c.node("a", 2)
		if woken := c.after(10 * time.Second); woken != "gone@0 stays@0.05" {
			t.Errorf("woken: %s", woken)
		}
		if got := c.metric("outboard_wakeup_wakes_total", "gone"); got != 1 {
			t.Errorf("%v counted as gone", got)
		}
	})
}

// However often the View changes, judging takes a fifth of the time at most.
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
		took, judging := time.Since(start).Seconds(), c.metric("outboard_wakeup_judging_seconds_total", "")
		if share := judging / took; share > 0.21 || share < 0.1 {
			t.Errorf("%.1f of %.1f seconds", judging, took)
		}
	})
}

// There is a bound on how many pods are remembered; what does not fit in is counted.
func TestBound(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(10_010)...)
		if got := c.metric("outboard_wakeup_waiting_pods", ""); got != 10_000 {
			t.Errorf("%v pods wait", got)
		}
		if got := c.metric("outboard_wakeup_dropped_total", ""); got != 10 {
			t.Errorf("%v pods not remembered", got)
		}
	})
}

// While nothing changes nothing is judged again.
func TestIdle(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create(podNames(100)...)
		c.after(time.Minute)
		before := c.asked.Load()
		c.after(time.Hour)
		if c.asked.Load() != before {
			t.Errorf("judged %d times while nothing changed", c.asked.Load()-before)
		}
		other := c.View().Node("a").Object.DeepCopy()
		other.Labels["changed"] = "yes"
		c.change(func(b *snapshot.Builder) { b.SetNode(other) })
		c.after(time.Minute)
		if got := c.asked.Load() - before; got != 100 {
			t.Errorf("judged %d times after one change, want once for each pod", got)
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := wakeup.New(wakeup.Options{}); err == nil {
		t.Error("no error without a Cluster")
	}
	if _, err := wakeup.New(wakeup.Options{Cluster: &fakeCluster{}, PerSecond: -1}); err == nil {
		t.Error("no error for a negative rate")
	}
}
