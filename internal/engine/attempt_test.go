package engine_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
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

// Nodes can differ in their totals if a policy scores, or if the pod may have an allocation on one of
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

// Two pods have the same signature only if every policy that applies to them returns the same
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
		t.Error("there is no signature, although the policy without one does not apply to the pod")
	}
}
