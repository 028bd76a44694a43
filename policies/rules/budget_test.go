package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/cel/library"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// noClash compares each annotation of the pod with the labels of each node.
const noClash = `pod.metadata.?annotations.orValue({}).all(k, !(k in node.metadata.labels))`

// annotated is a pod with a number of annotations. The API server accepts about 50,000.
func annotated(annotations int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", UID: "u", ResourceVersion: "1", Annotations: map[string]string{}}}
	for i := range annotations {
		pod.Annotations[fmt.Sprintf("a%x", i)] = ""
	}
	return pod
}

func labelledNodes(nodes int) *snapshot.View {
	var b snapshot.Builder
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}}
		for k := range 20 {
			n.Labels[fmt.Sprintf("label-%d", k)] = "x"
		}
		b.SetNode(n)
	}
	return b.View()
}

// The policy rejects a pod that makes a rule too expensive on every node, with a reason that names
// the rule, and without evaluating the rule on every node.
func TestPodThatCostsTooMuch(t *testing.T) {
	for _, tt := range []struct{ name, rules, want string }{
		{"pod and node", `filters: [{name: no-clash, expression: '` + noClash + `'}]`, "no-clash-cost-exceeded"},
		{"pod alone", `filters: [{name: short, expression: 'pod.metadata.annotations.all(k, k.size() < 100)'}]`, "short-cost-exceeded"},
		{"part about the pod", `filters: [{name: short, expression: 'pod.metadata.annotations.all(k, k.size() < 100) || node.spec.unschedulable'}]`, "short-cost-exceeded"},
		{"match condition", `filters: [{name: short, matchConditions: [{name: short-keys, expression: 'pod.metadata.annotations.all(k, k.size() < 100)'}], expression: 'node.spec.unschedulable'}]`, "short-cost-exceeded"},
		{"rule that may fail", `filters: [{name: no-clash, expression: '` + noClash + `', failurePolicy: Ignore}]`, ""},
		{"match condition that may fail", `filters: [{name: short, matchConditions: [{name: short-keys, expression: 'pod.metadata.annotations.all(k, k.size() < 100)'}], expression: 'false && node.spec.unschedulable', failurePolicy: Ignore}]`, ""},
		{"beside another", `filters: [{name: no-clash, expression: '` + noClash + `'}, {name: has-label, expression: '"label-0" in node.metadata.labels'}]`, "no-clash-cost-exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			view := labelledNodes(500)
			cycle, err := policytest.Build(t, Type(), tt.rules).Prepare(t.Context(), annotated(50_000), view)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if cycle != nil {
					t.Errorf("the cycle is %T, want none: the rule is disabled", cycle)
				}
				return
			}
			filter := cycle.(policy.Filter)
			for n := range view.All() {
				v := filter.Filter(n)
				if v.Reason == nil || v.Reason.Code != tt.want || !v.Unresolvable || !strings.Contains(v.Reason.Text, "rule "+strings.TrimSuffix(tt.want, "-cost-exceeded")) {
					t.Fatalf("node %s: the verdict is %+v", n.Name, v)
				}
			}
			if told := cycle.(policy.Explainer).Explain(view.At(0)); !strings.Contains(told[0], "cost limit exceeded") {
				t.Errorf("the explanation is %q", told)
			}
		})
	}
}

// Without nodes in the view, the policy evaluates each node separately, within a limit.
func TestPodThatCostsTooMuchWithoutCluster(t *testing.T) {
	p := policytest.Build(t, Type(), `filters: [{name: no-clash, expression: '`+noClash+`'}]`)
	node := labelledNodes(1).At(0)
	for annotations, want := range map[int]string{100: "", 50_000: "no-clash-cost-exceeded"} {
		cycle := policytest.Prepare[policy.Filter](t, p, annotated(annotations), new(snapshot.View))
		got := ""
		if v := cycle.Filter(node); !v.Fits() {
			got = v.Reason.Code
		}
		if got != want {
			t.Errorf("with %d annotations the reason is %q, want %q", annotations, got, want)
		}
	}
}

func TestScoreThatCostsTooMuch(t *testing.T) {
	view := labelledNodes(3)
	for _, rules := range []string{
		`scores: [{name: no-clash, expression: '` + noClash + ` ? 1 : 0'}]`,
		`scores: [{name: short, matchConditions: [{name: short-keys, expression: 'pod.metadata.annotations.all(k, k.size() < 100)'}], expression: '1 + node.status.images.size()'}]`,
	} {
		cycle := policytest.Prepare[policy.Score](t, policytest.Build(t, Type(), rules), annotated(50_000), view)
		if score := cycle.Score(view.At(0)); score != policy.NoOpinion {
			t.Errorf("%s: the score is %d, want none", rules, score)
		}
	}
}

// One limit bounds everything that the rules compute for one pod.
func TestRulesAboutThePodShareABudget(t *testing.T) {
	config := Config{WhenStale: policy.Neutral}
	for i := range maxRules {
		config.Filters = append(config.Filters, FilterRule{Name: fmt.Sprint("r", i), Expression: fmt.Sprintf(`pod.metadata.annotations.all(k, k.size() < %d) || node.spec.unschedulable`, 100+i)})
	}
	built, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	p := built.(*rules)
	c := &cycle{policy: p, view: labelledNodes(1), request: make([]value, p.counts[ofRequest])}
	vars := p.request(annotated(2_000), c.view)
	if _, err := c.begin(t.Context(), p.filters, vars); err != nil {
		t.Fatal(err)
	}
	if c.spent < prepareCost || c.spent > prepareCost+costLimit {
		t.Errorf("the cost is %d, want %d and at most %d more", c.spent, prepareCost, costLimit)
	}
	first, err := c.eval(p.filters[0].expression, 0, c.view.At(0))
	if err != nil || first.Value() != true {
		t.Errorf("the first rule returned %v, %v", first, err)
	}
	if _, err := c.eval(p.filters[maxRules-1].expression, 0, c.view.At(0)); !exceeds(err) {
		t.Errorf("the last rule fails with %v, want that it costs too much", err)
	}
}

// The verdict does not depend on the iteration order of a Go map.
func TestLoopsOverMapsHaveAnOrder(t *testing.T) {
	view := labelledNodes(1)
	for _, tt := range []struct {
		annotations int
		text        string
	}{
		{50_000, `pod.metadata.annotations.exists(k, k == "a1000" && node.metadata.name != "")`}, // evaluating all of them costs too much
		{3, `pod.metadata.annotations.map(k, k)[0] == "a0"`},
		{3, `pod.metadata.annotations.map(k, k + node.metadata.name)[0] == "a0n0"`},
		{3, `pod.metadata.annotations.transformList(k, v, k)[0] == "a0"`},
		{3, `podRequests.map(k, k)[0] == "cpu"`},
	} {
		p := policytest.Build(t, Type(), "filters: [{name: one, expression: '"+tt.text+"'}]")
		verdicts := map[string]bool{}
		for range 20 {
			verdict := ""
			if cycle, err := p.Prepare(t.Context(), annotated(tt.annotations), view); err != nil {
				t.Fatal(err)
			} else if f, ok := cycle.(policy.Filter); ok {
				if v := f.Filter(view.At(0)); !v.Fits() {
					verdict = v.Reason.Code
				}
			}
			verdicts[verdict] = true
		}
		if len(verdicts) != 1 || !verdicts[""] {
			t.Errorf("%s: the verdicts are %v", tt.text, verdicts)
		}
	}
}

// An evaluation without cost tracking costs no more than its estimate.
func TestBoundsHold(t *testing.T) {
	view := policytest.View(someNodes, onNodes, someSignals)
	shared := newShared(t)
	rapid.Check(t, func(t *rapid.T) {
		text := conditions().Draw(t, "expression")
		p := compileOne(t, shared, text)
		e := p.filters[0].expression
		if e.whole != nil || e.counting[0] == nil {
			return
		}
		for _, pod := range somePods {
			c := prepared(p, pod, view)
			for n := range view.All() {
				f := c.policy.activations.Get().(*partActivation)
				f.cycle, f.node = c, n
				if _, cost, _ := count(e.counting[0], f); cost > e.possibleCost || cost > e.usualCost && c.isUsual(e, n) {
					t.Fatalf("%s\npod %s, node %s: costs %d, more than %d, or %d if all sizes are usual", text, pod.Name, n.Name, cost, e.possibleCost, e.usualCost)
				}
			}
		}
	})
}

// The estimate knows how much a function returns: it bounds the cost, and is not much higher.
func TestEstimateKnowsTheResultsOfFunctions(t *testing.T) {
	view := labelledNodes(1)
	pod := annotated(1)
	pod.Annotations["a0"] = strings.Repeat("a", int(usualSizes.text))
	const x = `pod.metadata.annotations["a0"]`
	p := compileOne(t, newShared(t), `(node.metadata.name + `+strings.Repeat(x+" + ", 8)+x+`).find(".*").contains(`+x+`)`)
	c, e := prepared(p, pod, view), p.filters[0].expression
	f := c.policy.activations.Get().(*partActivation)
	f.cycle, f.node = c, view.At(0)
	if _, cost, err := count(e.counting[0], f); err != nil || cost > e.usualCost || e.usualCost > 2*cost || !c.isUsual(e, f.node) {
		t.Errorf("it costs %d (%v), and the estimate is %d", cost, err, e.usualCost)
	}
}

// An expression may have an estimated cost of exactly the limit.
func TestEstimateUpToTheLimitIsAccepted(t *testing.T) {
	c := newShared(t)
	estimate := func(text string) uint64 {
		checked, issues := c.env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(text, ": ", issues.Err())
		}
		cost, err := c.env.EstimateCost(checked, &estimator{library.CostEstimator{SizeEstimator: computedSizes{usualSizes}}})
		if err != nil {
			t.Fatal(err)
		}
		return cost.Max
	}
	text := `1 == 2`
	for length := 900; length > 0; { // the cost is about the length of the literal times usualSizes.text
		if longer := text + ` || pod.metadata.name.indexOf("` + strings.Repeat("a", length) + `") == 1`; estimate(longer) <= costLimit {
			text = longer
		} else {
			length /= 2
		}
	}
	for estimate(text) < costLimit {
		text += ` || 1 == 2`
	}
	if cost := estimate(text); cost != costLimit {
		t.Fatalf("the cost of %s is %d, want %d", text, cost, costLimit)
	}
	if _, errs := c.compile(nil, text, ^deps(0), types.BoolType); len(errs) > 0 {
		t.Errorf("%s: %v", text, errs)
	}
	if _, errs := c.compile(nil, text+` || 1 == 2`, ^deps(0), types.BoolType); len(errs) == 0 {
		t.Errorf("a cost of %d is accepted", estimate(text+` || 1 == 2`))
	}
}

// The cost of all nodes together is bounded, for any number of rules, nodes and pods.
func TestSharesAreBounded(t *testing.T) {
	shared := newShared(t)
	least := limits[len(limits)-1].cost
	views := map[int]*snapshot.View{}
	rapid.Check(t, func(t *rapid.T) {
		var config Config
		for i := range rapid.IntRange(1, 20).Draw(t, "rules") {
			text := rapid.SampledFrom([]string{
				noClash,
				`pod.metadata.name != node.metadata.name`,
				`pod.metadata.annotations.all(k, node.metadata.labels.all(l, l != k))`,
				`node.metadata.labels.exists(k, node.metadata.labels[k] == pod.metadata.name)`,
			}).Draw(t, "expression")
			config.Filters = append(config.Filters, FilterRule{Name: fmt.Sprint("r", i), Expression: text})
		}
		config.WhenStale = policy.Neutral
		built, err := (&compiler{schema: shared.schema, env: shared.env}).build(config)
		if err != nil {
			t.Fatal(err)
		}
		p := built.(*rules)
		nodes := rapid.SampledFrom([]int{0, 1, 10, 100, 3000}).Draw(t, "nodes")
		if views[nodes] == nil {
			views[nodes] = labelledNodes(nodes)
		}
		c := &cycle{policy: p, view: views[nodes], request: make([]value, p.counts[ofRequest])}
		vars := p.request(annotated(rapid.SampledFrom([]int{0, 3, 60, 500}).Draw(t, "annotations")), c.view)
		all := make([]planned, len(p.filters))
		for i, f := range p.filters {
			if err := c.compute(t.Context(), f.expression, vars); err != nil {
				t.Fatal(err)
			}
			all[i] = planned{rule: f}
		}
		c.share(all)
		var sum uint64
		for _, e := range all {
			cost := limits[e.limit].cost
			if c.isUsual(e.expression, nil) {
				cost = min(cost, e.expression.usualCost)
			}
			sum += cost
		}
		if nodes == 0 {
			nodes = assumedNodes
		}
		if bound := max(viewCost, uint64(len(all)*nodes)*least); sum*uint64(nodes) > bound && sum > uint64(len(all))*least {
			t.Fatalf("%d rules may cost %d on each of %d nodes, more than %d in total", len(all), sum, nodes, bound)
		}
	})
}

// A request that ends while the policy computes its first part computes no other part.
func TestPartsEndWithTheRequest(t *testing.T) {
	p := compileOne(t, newShared(t), `pod.metadata.name == "a" && node.metadata.name == "a" && pod.metadata.namespace == "b"`)
	view := labelledNodes(1)
	c := &cycle{policy: p, view: view, request: make([]value, p.counts[ofRequest])}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("hung up"))
	if err := c.compute(ctx, p.filters[0].expression, p.request(annotated(1), view)); err == nil || err.Error() != "hung up" {
		t.Errorf("the error is %v, want the cause", err)
	}
}
