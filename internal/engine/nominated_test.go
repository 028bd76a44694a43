package engine_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// nominee is a pod that is nominated to the node; "" for none.
func nominee(name string, priority int32, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{Priority: &priority},
		Status:     corev1.PodStatus{NominatedNodeName: node},
	}
}

// atMost lets at most this many pods run on a node.
func atMost(pods int) *fake {
	full := &policy.Reason{Code: "Full", Text: "full"}
	return &fake{
		filter: func(n *snapshot.Node) policy.Verdict {
			if len(n.Pods) >= pods {
				return policy.Verdict{Reason: full}
			}
			return policy.Verdict{}
		},
		score: func(n *snapshot.Node) int64 { return 100 - int64(len(n.Pods)) },
	}
}

// besideFriend lets pods run only where the pod "friend" is.
func besideFriend() *fake {
	alone := &policy.Reason{Code: "Alone", Text: "no friend here"}
	return &fake{filter: func(n *snapshot.Node) policy.Verdict {
		if !slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return p.Name == "friend" }) {
			return policy.Verdict{Reason: alone}
		}
		return policy.Verdict{}
	}}
}

// A pod that is nominated to a node counts there for pods whose priority is not higher.
func TestNominatedPodsCount(t *testing.T) {
	for _, tc := range []struct {
		what      string
		nominated []*corev1.Pod
		policy    *fake
		asking    *corev1.Pod
		fits      bool
	}{
		{"more important", []*corev1.Pod{nominee("high", 10, "a")}, atMost(1), nominee("p", 5, ""), false},
		{"as important", []*corev1.Pod{nominee("same", 5, "a")}, atMost(1), nominee("p", 5, ""), false},
		{"less important", []*corev1.Pod{nominee("low", 1, "a")}, atMost(1), nominee("p", 5, ""), true},
		{"one of each", []*corev1.Pod{nominee("low", 1, "a"), nominee("high", 10, "a")}, atMost(2), nominee("p", 5, ""), true},
		{"two more important", []*corev1.Pod{nominee("higher", 11, "a"), nominee("high", 10, "a")}, atMost(2), nominee("p", 5, ""), false},
		{"the pod itself", []*corev1.Pod{nominee("p", 5, "a")}, atMost(1), nominee("p", 5, "a"), true},
		{"to another node", []*corev1.Pod{nominee("high", 10, "b")}, atMost(1), nominee("p", 5, ""), true},
		{"to a node that does not exist", []*corev1.Pod{nominee("high", 10, "c")}, atMost(1), nominee("p", 5, ""), true},
		{"who may never come is no friend", []*corev1.Pod{nominee("friend", 10, "a")}, besideFriend(), nominee("p", 5, ""), false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(object("a"))
			b.SetNode(object("b"))
			for _, pod := range tc.nominated {
				b.SetPod(pod)
			}
			e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: tc.policy, Weight: 1})
			req := asking(tc.asking, b.View(), "a")
			var result engine.Result
			if err := e.Filter(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			if fits := len(result.Kept) == 1; fits != tc.fits {
				t.Errorf("fits: %v, want %v", fits, tc.fits)
			}
			if fits, err := e.FitsAny(t.Context(), req); err != nil || fits != tc.fits {
				t.Errorf("FitsAny: %v, want %v (%v)", fits, tc.fits, err)
			}
			x, err := e.Explain(t.Context(), req)
			if err != nil || x.Nodes[0].Fits != tc.fits {
				t.Errorf("Explain returns fits: %v, want %v (%v)", x.Nodes[0].Fits, tc.fits, err)
			}
			if req.Nodes[0] != req.View.Node("a") {
				t.Error("the request has changed")
			}
		})
	}
}

// Of pods that are nominated to the same node, the first one fits if there is room for it: they do
// not wait for each other.
func TestNominatedPodsDoNotWaitForEachOther(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: atMost(1), Weight: 1})
	var b snapshot.Builder
	b.SetNode(object("a"))
	b.SetPod(nominee("one", 5, "a"))
	b.SetPod(nominee("two", 5, "a"))
	for pod, want := range map[string]bool{"one": true, "two": false} {
		if fits, err := e.FitsAny(t.Context(), asking(nominee(pod, 5, "a"), b.View(), "a")); err != nil || fits != want {
			t.Errorf("pod %s fits: %t, want %t (%v)", pod, fits, want, err)
		}
	}
}

// Scores and explanations count nominated pods, too.
func TestNominatedPodsCountInScores(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(object("a"))
	b.SetNode(object("b"))
	b.SetPod(nominee("high", 10, "a"))
	b.SetPod(nominee("low", 1, "b"))
	view := b.View()
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: atMost(9), Weight: 1})
	var result engine.Result
	if err := e.Score(t.Context(), asking(nominee("p", 5, ""), view, "a", "b"), &result); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(result.Totals), "[99 100]"; got != want {
		t.Errorf("totals %s, want %s", got, want)
	}
	x, err := e.Explain(t.Context(), asking(nominee("p", 5, ""), view, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(x.Nodes[0].Nominated, x.Nodes[1].Nominated), "[default/high] []"; got != want {
		t.Errorf("Explain returns the nominated pods %s, want %s", got, want)
	}
}
