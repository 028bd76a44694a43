package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// largePod has 1.2 MB of labels, which the API server accepts, and an annotation.
func largePod(name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"later": "1"},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	for i := range 9_000 {
		pod.Labels[fmt.Sprintf("%d-%s", i, strings.Repeat("x", 55))] = strings.Repeat("y", 63)
	}
	return pod
}

// watched makes the state have the pod, as the feed of pods does.
func (c *Cluster) watched(pod *corev1.Pod) {
	shown := pod.DeepCopy()
	trimPod(shown)
	snapshot.ReducePod(shown, c.state.readsOf)
	c.state.setPod(shown)
}

// A large pod takes little memory. The Cluster does not return a pending one for evaluation, and a bound one counts.
func TestLargePods(t *testing.T) {
	c, _ := testCluster(t)
	c.state.setNode(exampleNode(0))
	node := exampleNodeName(0)
	c.watched(largePod("bound", node))
	c.watched(largePod("pending", ""))
	c.state.setComplete()
	for _, name := range []string{"bound", "pending"} {
		pod := c.PodByUID(types.UID(name))
		if size := snapshot.PodSize(pod); size > 8<<10 {
			t.Errorf("%s takes %d bytes", name, size)
		}
		if c.Pod(pod.UID, "1") != nil {
			t.Errorf("%s is returned for evaluation", name)
		}
	}
	if n := c.View().Node(node); !n.Has("bound") {
		t.Error("the bound pod does not count")
	}
}

// A Cluster that runs reads large pods again.
func TestRunReadsLargePodsAgain(t *testing.T) {
	node := exampleNodeName(0)
	c, _ := testCluster(t, exampleNode(0), largePod("bound", node))
	c.KeepOfPods([]string{"app"}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	later := func() (value string, known bool) {
		if pod := c.PodByUID("bound"); pod != nil {
			return pod.Labels["later"] + pod.Annotations["later"], true
		}
		return "", false
	}
	eventually(t, "large pod", func() bool { _, known := later(); return known })
	if value, _ := later(); value != "" {
		t.Errorf("before a policy reads it, the pod has %q", value)
	}
	c.KeepOfPods([]string{"app", "later"}, nil)
	eventually(t, "what a new policy reads", func() bool { value, _ := later(); return value == "1" })
}

// When a policy or a budget comes that reads more of pods, the Cluster reads again the pods of which that was removed, and no others.
func TestLargePodsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := exampleNodeName(0)
		bound, elsewhere, pending := largePod("bound", node), largePod("elsewhere", node), largePod("pending", "")
		elsewhere.Namespace = "other"
		c, client := testCluster(t, bound, elsewhere, pending)
		c.KeepOfPods([]string{"app"}, nil)
		c.state.setNode(exampleNode(0))
		for _, pod := range []*corev1.Pod{bound, elsewhere, pending} {
			c.watched(pod)
		}
		c.state.setComplete()
		go c.reread(t.Context())
		expect := func(what, key string, want string) {
			t.Helper()
			time.Sleep(2 * rereadPause)
			synctest.Wait()
			pod := c.PodByUID("bound")
			if got := pod.Labels[key] + pod.Annotations[key]; got != want {
				t.Errorf("%s: the bound pod has %s=%q, want %q", what, key, got, want)
			}
		}
		read := func() (n int) {
			time.Sleep(2 * rereadPause)
			synctest.Wait()
			for _, action := range client.Actions() {
				if action.Matches("get", "pods") {
					n++
				}
			}
			client.ClearActions()
			return n
		}
		label := "7-" + strings.Repeat("x", 55)
		expect("at first", label, "")
		expect("at first", "app", "web")
		if n := read(); n != 0 {
			t.Errorf("%d pods are read although nothing has changed", n)
		}
		c.state.setBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{label: strings.Repeat("y", 63)}}},
		})
		expect("with a budget", label, strings.Repeat("y", 63))
		if n := read(); n != 1 {
			t.Errorf("%d pods are read for the budget, want only the one on a node in its namespace", n)
		}
		expect("before the policy", "later", "")
		c.KeepOfPods([]string{"app", "later"}, nil)
		expect("with a policy", "later", "1")
		read()
		c.KeepOfPods([]string{"app"}, nil)
		if n := read(); n != 0 {
			t.Errorf("%d pods are read because a policy has gone", n)
		}
	})
}

// The Cluster also reads a large pod again of which the watch has shown a version that differs only in what is removed.
func TestLargePodWithALaterVersionIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := largePod("bound", exampleNodeName(0))
		later := earlier.DeepCopy()
		later.ResourceVersion, later.Annotations["unread"] = "2", "x"
		c, _ := testCluster(t, later)
		c.KeepOfPods([]string{"app"}, nil)
		c.state.setNode(exampleNode(0))
		c.watched(earlier)
		c.watched(later)
		c.state.setComplete()
		go c.reread(t.Context())
		c.KeepOfPods([]string{"app", "later"}, nil)
		time.Sleep(2 * rereadPause)
		synctest.Wait()
		if got := c.PodByUID("bound").Annotations["later"]; got != "1" {
			t.Errorf("the annotation is %q", got)
		}
	})
}

// A pod that is deleted while it is read again stays deleted.
func TestDeletedPodIsNotReadAgain(t *testing.T) {
	s := newState()
	s.setComplete()
	pod := largePod("p", exampleNodeName(0))
	trimPod(pod)
	snapshot.ReducePod(pod, s.readsOf)
	s.setPod(pod)
	var events sync.WaitGroup
	s.mu.Lock() // both come while a View is made
	events.Go(func() { s.removePod(pod) })
	time.Sleep(10 * time.Millisecond) // the watch is first
	events.Go(func() { s.replaceVersion(pod.DeepCopy()) })
	time.Sleep(10 * time.Millisecond)
	s.mu.Unlock()
	events.Wait()
	if s.seen("p") != nil {
		t.Error("the pod is back")
	}
}

// Pods are read again for labels that a budget did not select before, and not for each change of its status.
func TestBudgetsThatSelectMoreCauseReading(t *testing.T) {
	s := newState()
	for _, step := range []struct {
		label   string
		allowed int32
		reads   int
	}{{"app", 1, 1}, {"app", 0, 0}, {"tier", 0, 1}} {
		s.setBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: step.allowed},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{step.label: "x"}}},
		})
		if got := len(s.lacking); got != step.reads {
			t.Errorf("%+v: pods are read %d times", step, got)
		}
		select {
		case <-s.lacking:
		default:
		}
	}
}

// However many labels the budgets of a namespace select, a large pod takes little memory. It has these labels again when they are few.
func TestLabelsThatBudgetsSelectAreLimited(t *testing.T) {
	large := largePod("bound", exampleNodeName(0))
	c, _ := testCluster(t)
	c.state.setNode(exampleNode(0))
	c.state.setComplete()
	label := func(i int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("x", 55)) }
	for i := range 100 {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for j := range 20 {
			selector.MatchLabels[label(20*i+j)] = ""
		}
		c.state.setBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector},
		})
		c.watched(large)
		if size := snapshot.PodSize(c.PodByUID("bound")); size > 16<<10 {
			t.Fatalf("with %d budgets, the pod takes %d bytes", i+1, size)
		}
	}
	for i := 99; i >= 0; i-- {
		c.state.removeBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}})
		c.watched(large)
		if kept := len(c.PodByUID("bound").Labels); i == 1 && kept != 20 || i == 0 && kept != 0 {
			t.Errorf("with %d budgets, the pod has %d labels", i, kept)
		}
	}
}
