package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
			var expected snapshot.Builder
			expected.SetNode(object("a"))
			expected.SetNode(object("b"))
			for _, pod := range tc.nominated {
				expected.Nominate(pod, "", []snapshot.NominatedNode{{Name: pod.Status.NominatedNodeName}})
			}
			e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: tc.policy, Weight: 1})
			for by, req := range map[string]engine.Request{
				"the API server": asking(tc.asking, b.View(), "a"),
				"a preempt call": asking(tc.asking, expected.View(), "a"),
			} {
				var result engine.Result
				if err := e.Filter(t.Context(), req, &result); err != nil {
					t.Fatal(err)
				}
				if fits := len(result.Kept) == 1; fits != tc.fits {
					t.Errorf("nominated by %s: fits: %v, want %v", by, fits, tc.fits)
				}
				if fits, err := e.FitsAny(t.Context(), req); err != nil || fits != tc.fits {
					t.Errorf("nominated by %s: FitsAny: %v, want %v (%v)", by, fits, tc.fits, err)
				}
				x, err := e.Explain(t.Context(), req)
				if err != nil || x.Nodes[0].Fits != tc.fits {
					t.Errorf("nominated by %s: Explain returns fits: %v, want %v (%v)", by, x.Nodes[0].Fits, tc.fits, err)
				}
				if req.Nodes[0] != req.View.Node("a") {
					t.Error("the request has changed")
				}
			}
		})
	}
}

// A pod that is nominated to one node does not count there those that may get another one: otherwise both would wait. That is so as well if
// only the View knows the nomination, and not the pod in the request.
func TestNominatedPodsDoNotWaitForEachOther(t *testing.T) {
	e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: atMost(1), Weight: 1})
	for name, nominate := range map[string]func(*snapshot.Builder){
		"the API server": func(b *snapshot.Builder) { b.SetPod(nominee("one", 5, "a")) },
		"a preempt call": func(b *snapshot.Builder) {
			b.Nominate(nominee("one", 5, ""), "", []snapshot.NominatedNode{{Name: "a"}})
		},
	} {
		var b snapshot.Builder
		b.SetNode(object("a"))
		b.SetNode(object("b"))
		nominate(&b)
		b.Nominate(nominee("either", 5, ""), "", []snapshot.NominatedNode{{Name: "a"}, {Name: "b"}})
		view := b.View()
		for _, tc := range []struct {
			pod, node string
			fits      bool
		}{{"one", "a", true}, {"one", "b", false}, {"either", "a", false}, {"either", "b", true}} {
			var result engine.Result
			if err := e.Filter(t.Context(), asking(nominee(tc.pod, 5, ""), view, tc.node), &result); err != nil {
				t.Fatal(err)
			}
			if fits := len(result.Kept) == 1; fits != tc.fits {
				t.Errorf("nominated by %s: pod %s fits on %s: %t, want %t", name, tc.pod, tc.node, fits, tc.fits)
			}
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

// In preemption a nominated pod counts on its node and is not evicted. A pod that may be nominated elsewhere does not count:
// otherwise more pods than necessary would be evicted.
func TestPreemptCountsNominatedPods(t *testing.T) {
	low := nominee("low", 0, "")
	low.Spec.NodeName = "a"
	on := func(node string, victims ...types.UID) snapshot.NominatedNode {
		return snapshot.NominatedNode{Name: node, Victims: victims}
	}
	for _, tc := range []struct {
		what      string
		nominated *corev1.Pod
		to        []snapshot.NominatedNode
		policy    *fake
		want      string
	}{
		{"nobody", nominee("high", 10, ""), nil, atMost(1), "victims [low]"},
		{"one, and room for one", nominee("high", 10, ""), []snapshot.NominatedNode{on("a", "low")}, atMost(1), "dropped"},
		{"one, and room for two", nominee("high", 10, ""), []snapshot.NominatedNode{on("a")}, atMost(2), "victims [low]"},
		{"one less important", nominee("lower", 2, ""), []snapshot.NominatedNode{on("a")}, atMost(1), "victims [low]"},
		{"one, perhaps", nominee("high", 10, ""), []snapshot.NominatedNode{on("a"), on("b")}, atMost(1), "victims [low]"},
		{"who may never come is no friend", nominee("friend", 10, ""), []snapshot.NominatedNode{on("a")}, besideFriend(), "dropped"},
	} {
		var b snapshot.Builder
		b.SetNode(object("a"))
		b.SetPod(low)
		b.Nominate(tc.nominated, "", tc.to)
		view := b.View()
		e := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: tc.policy})
		for _, given := range [][]types.UID{{"low"}, nil} { // without it, Preempt chooses the same victim
			var result engine.Result
			kept, err := e.Preempt(t.Context(), engine.PreemptRequest{
				Request:    engine.Request{Pod: nominee("p", 5, ""), View: view},
				Candidates: []engine.Candidate{{Node: view.Node("a"), Name: "a", Victims: given}},
			}, &result)
			if err != nil {
				t.Fatal(err)
			}
			got := "dropped"
			if len(kept) == 1 {
				got = fmt.Sprintf("victims %v", kept[0].Victims)
			}
			if got != tc.want {
				t.Errorf("nominated: %s, given %v: %s, want %s", tc.what, given, got, tc.want)
			}
		}
	}
}

// Likeliest follows kube-scheduler's pickOneNodeForPreemption.
func TestLikeliest(t *testing.T) {
	began := time.Unix(1000, 0)
	candidate := func(name string, violations int64, victims ...*corev1.Pod) engine.Candidate {
		c := engine.Candidate{Name: name, Node: snapshot.NewNode(object(name), victims...), PDBViolations: violations}
		for _, v := range victims {
			c.Victims = append(c.Victims, v.UID)
		}
		return c
	}
	victim := func(name string, priority int32, started time.Duration) *corev1.Pod {
		p := nominee(name, priority, "")
		p.Status.StartTime = &metav1.Time{Time: began.Add(started)}
		return p
	}
	for _, tc := range []struct {
		what, want string
		candidates []engine.Candidate
	}{
		{"none", "", nil},
		{"fewest broken budgets", "b", []engine.Candidate{candidate("a", 2, victim("1", 0, 0)), candidate("b", 1, victim("2", 9, 0))}},
		{"least important victim", "b", []engine.Candidate{candidate("a", 0, victim("1", 5, 0)), candidate("b", 0, victim("2", 4, 0), victim("3", 4, 0))}},
		{"least sum", "a", []engine.Candidate{candidate("a", 0, victim("1", 5, 0), victim("2", 1, 0)), candidate("b", 0, victim("3", 5, 0), victim("4", 2, 0))}},
		{"fewest victims, also of negative priority", "a", []engine.Candidate{candidate("a", 0, victim("1", -5, 0)), candidate("b", 0, victim("2", -5, 0), victim("3", -5, 0))}},
		{"started last", "b", []engine.Candidate{candidate("a", 0, victim("1", 5, time.Second)), candidate("b", 0, victim("2", 5, time.Minute))}},
		{"of important victims the first start", "a", []engine.Candidate{
			candidate("a", 0, victim("1", 5, 3*time.Second), victim("2", 5, 2*time.Second)),
			candidate("b", 0, victim("3", 5, time.Second), victim("4", 5, time.Minute)),
		}},
		{"alike", "a c", []engine.Candidate{candidate("a", 0, victim("1", 5, 0)), candidate("b", 0, victim("2", 6, 0)), candidate("c", 0, victim("3", 5, 0))}},
	} {
		var names []string
		for _, c := range engine.Likeliest(tc.candidates) {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
