package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// shown returns where the latest View has the pod with the UID p: on which nodes, and whether it is bound there, or to which node it is
// nominated.
func shown(s *State) string {
	on := ""
	for n := range s.View().All() {
		for _, pod := range n.Pods {
			if pod.UID != "p" {
				continue
			}
			on += "on " + n.Name
			if pod.Spec.NodeName != "" {
				on += ", bound"
			}
		}
		for _, pod := range s.View().Nominated() {
			if pod.Status.NominatedNodeName == n.Name {
				on += "nominated to " + n.Name
			}
		}
	}
	if on == "" {
		return "nowhere"
	}
	return on
}

// Views show each effect of an assumption; assumption.TestStates has all steps.
func TestAssumption(t *testing.T) {
	pod := func(node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{NominatedNodeName: "c"},
		}
	}
	type step struct {
		do   string
		want string // where the View has the pod
	}
	for name, steps := range map[string][]step{
		"decided, and forgotten":     {{"assume a", "on a"}, {"forget", "nominated to c"}},
		"decided and bound":          {{"assume a", "on a"}, {"bind a", "on a, bound"}, {"forget", "on a, bound"}, {"watch a", "on a, bound"}},
		"bound by another client":    {{"assume a", "on a"}, {"finish", "on a, bound"}, {"forget", "on a, bound"}, {"watch a", "on a, bound"}},
		"gone while it is bound":     {{"assume a", "on a"}, {"bind a", "on a, bound"}, {"gone", "nowhere"}, {"forget", "nowhere"}},
		"decided anew":               {{"assume a", "on a"}, {"assume b", "on b"}, {"forget", "on b"}, {"forget", "nominated to c"}},
		"unconfirmed, and not bound": {{"assume a", "on a"}, {"bind a", "on a, bound"}, {"forget", "on a, bound"}, {"confirm ", "nominated to c"}},
		"never watched, and gone":    {{"gone", "nowhere"}, {"assume a", "on a"}, {"bind a", "on a, bound"}, {"forget", "on a, bound"}, {"gone from the API", "nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState()
			for _, node := range []string{"a", "b", "c"} {
				s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
			}
			s.SetPod(pod(""))
			s.SetComplete()
			var forgets []func()
			now := time.Now()
			for i, step := range steps {
				var node string
				switch _, err := fmt.Sscanf(step.do, "assume %s", &node); {
				case err == nil:
					forgets = append(forgets, s.Assume(pod(""), node))
				case step.do == "forget":
					forgets[0]()
					forgets = forgets[1:]
				case step.do == "finish":
					s.FinishBindingAt("p", now)
				case step.do == "gone":
					s.RemovePod(pod(""))
				case step.do == "gone from the API":
					s.Confirm(s.Unconfirmed(now.Add(time.Hour))[0], nil, now)
				case step.do[:4] == "bind":
					s.EndRequest("p", s.BeginRequest("p"), pod(step.do[5:]), now)
				case step.do[:5] == "watch":
					s.SetPod(pod(step.do[6:]))
					s.Publish()
				case step.do[:7] == "confirm":
					s.Confirm(s.Unconfirmed(now.Add(time.Hour))[0], pod(step.do[8:]), now)
				}
				if step.do == "gone" || step.do == "finish" {
					s.Publish()
				}
				if got := shown(s); got != step.want {
					t.Fatalf("after step %d, %s, the pod is %s, want %s", i, step.do, got, step.want)
				}
			}
		})
	}
}

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
	c.FinishBinding("p")
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
			c.FinishBinding("p")
			forget()
			pods := c.View().Node("a").Pods
			if len(pods) != 1 || pods[0].Spec.NodeName != "a" || pods[0].Annotations["device"] != "1" {
				t.Errorf("the View has %v", pods)
			}
		})
	}
}
