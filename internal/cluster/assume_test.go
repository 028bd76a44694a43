package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// A pod that asks where it fits does not count against itself while it is decided, and counts when it is bound.
func TestViewFor(t *testing.T) {
	c := &Cluster{State: NewState()}
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	c.SetComplete()
	has := func(asking types.UID) bool { return c.ViewFor(asking).Node("a").Has("p") }
	forget := c.Assume(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}, "a")
	if has("p") || !has("q") || !has("") || c.Assumed("p") != "a" {
		t.Errorf("while it is decided: for itself %v, for another %v, for nobody %v, on %q", has("p"), has("q"), has(""), c.Assumed("p"))
	}
	before := c.View()
	c.FinishBinding("p", time.Now())
	forget()
	if c.View() != before {
		t.Error("there is another View, although the pod counts as before")
	}
	if !has("p") || !has("q") || c.Assumed("p") != "" {
		t.Errorf("when it is bound: for itself %v, for another %v, on %q", has("p"), has("q"), c.Assumed("p"))
	}
}

// A bind call whose outcome was unknown may end because the pod turns out to be bound. Then the pod counts with its own annotations, not with
// those that were planned, before the watch shows it.
func TestWhatIsReadCounts(t *testing.T) {
	bound := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", Annotations: map[string]string{"device": "1"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
	}
	for name, read := range map[string]func(*Cluster) (*corev1.Pod, error){
		"LivePod":  func(c *Cluster) (*corev1.Pod, error) { return c.LivePod(t.Context(), "ns", "p", "p") },
		"TouchPod": func(c *Cluster) (*corev1.Pod, error) { return c.TouchPod(t.Context(), "ns", "p", "p") },
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cluster{client: fake.NewClientset(bound), State: NewState(), options: Options{BindTimeout: time.Minute, LookupTimeout: time.Minute}}
			c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			c.SetComplete()
			planned := bound.DeepCopy()
			planned.Spec.NodeName, planned.Annotations["device"] = "", "0"
			forget := c.Assume(planned, "a")
			if pod, err := read(c); err != nil || pod == nil {
				t.Fatal(pod, err)
			}
			c.FinishBinding("p", time.Now())
			forget()
			pods := c.View().Node("a").Pods
			if len(pods) != 1 || pods[0].Spec.NodeName != "a" || pods[0].Annotations["device"] != "1" {
				t.Errorf("the View has %v", pods)
			}
		})
	}
}
