package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var (
	attemptOdd  = &policy.Reason{Code: "Odd", Text: "node has an odd number", Unit: "rest"}
	attemptTens = &policy.Reason{Code: "Tens", Text: "node has too many tens"}
)

// numberedNodes returns a View of this many nodes.
func numberedNodes(count int) *snapshot.View {
	var b snapshot.Builder
	for i := range count {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})
	}
	return b.View()
}

func numberOf(n *snapshot.Node) (number int64) {
	fmt.Sscanf(n.Name, "n%d", &number)
	return number
}

// Policies return the same for one node at a time, and concurrently, as for all nodes in one call,
// and the record has the same contents.
func TestAttemptIsARequestNodeByNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tens, scale := rapid.Int64Range(0, 9).Draw(t, "tens"), rapid.Int64Range(1, 7).Draw(t, "scale")
		policies := []engine.WeightedPolicy{
			{Name: "odd", Weight: 1, Policy: &fake{filter: func(n *snapshot.Node) policy.Verdict {
				if rest := numberOf(n) % 2; rest == 1 {
					return policy.Verdict{Reason: attemptOdd, Have: rest, Want: numberOf(n)}
				}
				return policy.Verdict{}
			}, score: func(n *snapshot.Node) int64 { return numberOf(n) * scale % 101 }}},
			{Name: "tens", Weight: 3, Policy: &fake{filter: func(n *snapshot.Node) policy.Verdict {
				if numberOf(n)/10 >= tens {
					return policy.Verdict{Reason: attemptTens, Unresolvable: true}
				}
				return policy.Verdict{}
			}, score: func(n *snapshot.Node) int64 { return numberOf(n) % 3 * 50 }}},
		}
		e, err := engine.New(engine.Options{Policies: policies})
		if err != nil {
			t.Fatal(err)
		}
		view := numberedNodes(rapid.IntRange(0, 90).Draw(t, "nodes"))
		nodes := slices.Collect(view.All())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", ResourceVersion: "1"}}
		var want engine.Result
		if err := e.Filter(t.Context(), engine.Request{Pod: pod, View: view, Nodes: nodes}, &want); err != nil {
			t.Fatal(err)
		}
		attempt, err := e.Begin(t.Context(), pod, view)
		if err != nil {
			t.Fatal(err)
		}
		fits := make([]bool, len(nodes))
		var group sync.WaitGroup
		for i, n := range nodes {
			group.Go(func() {
				verdict, err := attempt.FilterNode(n)
				fits[i] = err == nil && verdict.Fits()
			})
		}
		group.Wait()
		var kept []*snapshot.Node
		for i, n := range nodes {
			if fits[i] != slices.Contains(want.Kept, int32(i)) {
				t.Fatalf("%s fits: %v", n.Name, fits[i])
			}
			if fits[i] {
				kept = append(kept, n)
			}
		}
		// The order decides which of equally near nodes are named.
		same := cmpopts.IgnoreFields(decision.Rejection{}, "Nearest")
		if diff := cmp.Diff(want.Record, attempt.Record(len(kept)), same); diff != "" {
			t.Fatalf("the record differs: %s", diff)
		}
		if len(kept) == 0 {
			return
		}
		var scored engine.Result
		if err := e.Score(t.Context(), engine.Request{Pod: pod, View: view, Nodes: kept}, &want); err != nil {
			t.Fatal(err)
		}
		if err := attempt.Score(t.Context(), kept, nil, &scored); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Totals, scored.Totals); diff != "" {
			t.Fatalf("the totals differ: %s", diff)
		}
	})
}

// Nodes can differ in their totals if a policy scores, or if the pod may have a claim on one of
// them.
func TestAttemptScores(t *testing.T) {
	pass := func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }
	for name, tt := range map[string]struct {
		policy policy.Policy
		want   bool
	}{
		"filters":              {&fake{filter: pass}, false},
		"scores":               {&fake{score: func(*snapshot.Node) int64 { return 1 }}, true},
		"filters and reserves": {&reserver{fake: fake{filter: pass}, resources: []string{"r"}}, true},
	} {
		attempt, err := newEngine(t, engine.WeightedPolicy{Name: "P", Policy: tt.policy, Weight: 1}).Begin(t.Context(), podOf("u", "1"), numberedNodes(1))
		if err != nil {
			t.Fatal(err)
		}
		if got := attempt.Scores(); got != tt.want {
			t.Errorf("a policy that %s: nodes differ: %t, want %t", name, got, tt.want)
		}
	}
}

// Two pods have the same signature only if every policy that concerns them returns the same
// signature for both.
func TestAttemptSignature(t *testing.T) {
	pass := func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }
	signed := func(text string) *fake { return &fake{filter: pass, signature: text} }
	signature := func(policies ...*fake) (string, bool) {
		t.Helper()
		var o engine.Options
		for i, p := range policies {
			o.Policies = append(o.Policies, engine.WeightedPolicy{Name: fmt.Sprint(i), Policy: p})
		}
		e, err := engine.New(o)
		if err != nil {
			t.Fatal(err)
		}
		attempt, err := e.Begin(context.Background(), &corev1.Pod{}, new(snapshot.View))
		if err != nil {
			t.Fatal(err)
		}
		return attempt.Signature()
	}
	a, ok := signature(signed("a"), signed("b"))
	if !ok {
		t.Error("signed policies have no signature")
	}
	if same, _ := signature(signed("a"), signed("b")); same != a {
		t.Error("the same pods have different signatures")
	}
	if other, _ := signature(signed("ab"), signed("")); other == a {
		t.Error("different pods have the same signature")
	}
	if _, ok := signature(signed("a"), &fake{filter: pass}); ok {
		t.Error("there is a signature, although one policy has none")
	}
	if _, ok := signature(signed("a"), &fake{}); !ok {
		t.Error("there is no signature, although the policy without one does not concern the pod")
	}
}
