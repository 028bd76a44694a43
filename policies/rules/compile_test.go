package rules

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

var (
	somePods = policytest.Pods(`
- metadata: {name: a, labels: {team: red, n: "3"}}
  spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: nginx, resources: {requests: {cpu: 500m, memory: 1Gi}}}, {name: d}]}
- {metadata: {name: b, labels: {team: blue, n: x}}, spec: {priority: 7, hostNetwork: true, containers: [{name: c, image: nginx}]}}
- metadata: {name: c}
- metadata: {name: d, labels: {team: ""}}
  spec: {containers: [{name: c, resources: {requests: {cpu: "9223372036854775808", memory: "1e30"}}}]}
`)
	someNodes = policytest.Nodes(`
- metadata: {name: a, labels: {team: red, n: "5"}}
  spec: {taints: [{key: k, value: v, effect: NoSchedule}], unschedulable: true}
  status: {allocatable: {cpu: "4", memory: 8Gi}, nodeInfo: {kubeletVersion: v1.36.3}}
- {metadata: {name: b, labels: {team: blue}}, status: {allocatable: {cpu: 100m, memory: "9223372036854775808"}}}
- metadata: {name: c}
`)
	onNodes = policytest.Pods(`
- {metadata: {name: p}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}
- {metadata: {name: q}, spec: {nodeName: b, containers: [{name: c, resources: {requests: {memory: "1e30"}}}]}}
`)
	someSignals = policytest.Signals("load: {a: 0.5, b: {number: 0.25, stale: true}}\nseats: {red: 1, blue: {number: 2, stale: true}}")
)

// conditions returns boolean expressions of atoms, some of which fail on some pods and nodes.
func conditions() *rapid.Generator[string] {
	atoms := rapid.SampledFrom([]string{
		`true`, `false`, `1 / size(pod.metadata.name) > 0`,
		`pod.metadata.labels["team"] == "red"`, `has(pod.metadata.labels)`, `pod.spec.priority > 5`,
		`node.metadata.labels["team"] == "red"`, `has(node.spec.taints)`, `node.spec.unschedulable`,
		`usage.pods == 1`, `usage.free["cpu"].isGreaterThan(quantity("1"))`,
		`signals.load < 0.3`, `0.3 < signals.load`, `signals["load"] >= 0`, `has(signals.load)`, `"load" in signals`, `signals[?"load"].orValue(1.0) > 0.4`,
		`keyed["seats"]["red"] == 1.0`, `keyed["seats"]["blue"] == 2.0`, `keyed["seats"].size() == 1`,
		`pod.metadata.labels["team"] == node.metadata.labels["team"]`,
		`pod.metadata.labels["team"] in node.metadata.labels`,
		`podRequests["cpu"].isLessThan(usage.free["cpu"])`,
		`podRequests["memory"].add(usage.requested["memory"]).compareTo(node.status.allocatable["memory"]) > 0`,
		`usage.free["memory"].sub(podRequests["memory"]).sub(quantity("1Gi")).isLessThan(quantity("0"))`,
		`keyed["seats"][node.metadata.labels["team"]] > 0.0`,
		`pod.spec.containers.exists(c, c.image == "nginx" && node.metadata.name == "a")`,
		`pod.spec.containers.all(node, node.name != "d")`,
		`pod.spec.containers.map(c, c.name + node.metadata.name).exists(n, n == "cb")`,
		`node.status.allocatable.all(r, q, q.compareTo(podRequests[?r].orValue(q)) >= 0)`,
		`[1, 2].exists(x, pod.spec.containers.exists(c, size(c.name) == x && usage.pods < x))`,
		`[1, 2].exists(x, pod.spec.containers.exists(c, size(c.name) == x) && usage.pods < x)`,
		`pod.metadata.?labels[?"n"].optMap(n, int(n) > usage.pods).orValue(signals.load > 0.1)`,
		`int(pod.metadata.labels["n"]) + int(node.metadata.labels["n"]) == 8`,
		`[pod.metadata.name, node.metadata.name, "b"].distinct().size() == 2`,
	})
	var nested func(depth int) *rapid.Generator[string]
	nested = func(depth int) *rapid.Generator[string] {
		if depth == 0 {
			return atoms
		}
		return rapid.Custom(func(t *rapid.T) string {
			part := func(name string) string {
				return nested(rapid.IntRange(0, depth-1).Draw(t, name+" depth")).Draw(t, name)
			}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				return fmt.Sprintf("(%s && %s)", part("left"), part("right"))
			case 1:
				return fmt.Sprintf("(%s || %s)", part("left"), part("right"))
			case 2:
				return fmt.Sprintf("!(%s)", part("one"))
			case 3:
				return fmt.Sprintf("(%s ? %s : %s)", part("test"), part("then"), part("else"))
			}
			return fmt.Sprintf("[%s, %s].all(b, b)", part("first"), part("second"))
		})
	}
	return nested(3)
}

// TestPartsMakeTheWhole: an expression that is split into parts has the result of the whole
// expression, for every pod and node, also the second time.
func TestPartsMakeTheWhole(t *testing.T) {
	view := policytest.View(someNodes, onNodes, someSignals)
	shared := newShared(t)
	rapid.Check(t, func(t *rapid.T) {
		text := conditions().Draw(t, "expression")
		p := compileOne(t, text)
		whole := asWhole(t, shared.env, text)
		for _, pod := range somePods {
			c := prepared(p, pod, view)
			for n := range view.All() {
				want, _, wantErr := whole.Eval(allVars(p, pod, n, view))
				for range 2 {
					got, err := c.eval(p.filters[0].expression, n)
					if (err == nil) != (wantErr == nil) || err == nil && got != want {
						t.Fatalf("%s\npod %s, node %s: %v, %v; as a whole %v, %v", text, pod.Name, n.Name, got, err, want, wantErr)
					}
				}
			}
		}
	})
}

type fataler interface{ Fatal(args ...any) }

func newShared(t fataler) *compiler {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compileOne(t fataler, text string) *rules {
	p, err := New(Config{WhenStale: policy.Neutral, Filters: []FilterRule{{Name: "one", Expression: text}}})
	if err != nil {
		t.Fatal(text, ": ", err)
	}
	return p.(*rules)
}

// asWhole compiles the expression without splitting it.
func asWhole(t fataler, env *cel.Env, text string) cel.Program {
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostTracking(&library.CostEstimator{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// prepared is the cycle with the one rule, whether or not Prepare has found it satisfied.
func prepared(p *rules, pod *corev1.Pod, view *snapshot.View) *cycle {
	c, vars := p.begin(pod, view)
	if err := c.compute(context.Background(), p.filters[0].expression, vars); err != nil {
		panic(err)
	}
	return c
}

// allVars are the documented variables.
func allVars(p *rules, pod *corev1.Pod, n *snapshot.Node, view *snapshot.View) map[string]any {
	load := map[string]float64{}
	if v := view.Signal("load").Of(n); v.Current() {
		load["load"] = v.Number
	}
	seats := map[string]float64{}
	for key, v := range view.Signal("seats").All() {
		if v.Current() {
			seats[key] = v.Number
		}
	}
	valueOf := p.compiled.schema.valueOf
	return map[string]any{
		podVar:      valueOf(reflect.ValueOf(pod)),
		requestsVar: request(pod),
		nodeVar:     valueOf(reflect.ValueOf(n.Object)),
		usageVar:    valueOf(reflect.ValueOf(usageOf(n))),
		signalsVar:  load,
		keyedVar:    map[string]map[string]float64{"seats": seats},
	}
}

// TestSameAsInAdmission: an expression about objects has the same result and the same cost as in
// Kubernetes, where objects are decoded from JSON.
func TestSameAsInAdmission(t *testing.T) {
	shared := newShared(t)
	s := shared.schema
	theirs, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).NewExpressionsEnv().Extend(
		cel.Variable(podVar, cel.DynType), cel.Variable(nodeVar, cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`pod.metadata.labels["team"] == node.metadata.labels["team"]`,
		`"team" in pod.metadata.labels`,
		`has(pod.metadata.labels) && has(pod.metadata.labels.team)`,
		`pod.metadata.?labels[?"team"].orValue("none") == "none"`,
		`pod.spec.priority == 7`, `has(pod.spec.priority)`, `pod.spec.hostNetwork`, `has(pod.spec.hostNetwork)`,
		`pod.spec.?priority.orValue(0) < 5`,
		`pod.spec.nodeSelector.exists(k, k == "disk")`, `pod.spec.nodeSelector.disk == "ssd"`,
		`pod.spec.containers.exists(c, c.image == "nginx")`, `pod.spec.containers.all(c, has(c.resources.requests))`,
		`pod.spec.containers.exists(c, quantity(c.resources.requests["cpu"]).isLessThan(quantity("1")))`,
		`pod.spec.containers.exists_one(c, c.name.matches("^[c]$"))`,
		`pod.spec.containers.filter(c, "cpu" in c.resources.?requests.orValue({})).size() == 1`,
		`node.spec.taints.exists(t, t.key == "k" && t.effect == "NoSchedule")`,
		`node.spec.unschedulable`, `!has(node.spec.unschedulable)`,
		`semver(node.status.nodeInfo.kubeletVersion, true).isGreaterThan(semver("1.30.0"))`,
		`node.status.nodeInfo.kubeletVersion.startsWith("v1.36")`,
		`quantity(node.status.allocatable["cpu"]).isInteger()`,
		`quantity(node.status.allocatable.memory).compareTo(quantity("8Gi")) == 0`,
		`node.status.allocatable.size() == 2`, `node.metadata.name in ["a", "b"]`,
		`pod.spec.containers[1].name == "d"`, `pod.spec.containers[0] == pod.spec.containers[0]`,
	} {
		checked, issues := theirs.Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := theirs.Program(checked)
		if err != nil {
			t.Fatal(err)
		}
		ours := asWhole(t, shared.env, text)
		answers := map[string]bool{}
		for _, pod := range somePods[:3] { // JSON changes a quantity of the last pod
			if pod.Spec.Containers == nil {
				pod.Spec.Containers = []corev1.Container{} // as the API server stores it
			}
			for _, node := range someNodes {
				want, wantCost, wantErr := program.Eval(map[string]any{podVar: asJSON(t, pod), nodeVar: asJSON(t, node)})
				got, cost, err := ours.Eval(map[string]any{podVar: s.valueOf(reflect.ValueOf(pod)), nodeVar: s.valueOf(reflect.ValueOf(node))})
				if (err == nil) != (wantErr == nil) || err == nil && got != want {
					t.Errorf("%s\npod %s, node %s: %v, %v; in Kubernetes %v, %v", text, pod.Name, node.Name, got, err, want, wantErr)
				}
				// There, quantities are texts.
				if c, w := *cost.ActualCost(), *wantCost.ActualCost(); c != w && !strings.Contains(text, "quantity") {
					t.Errorf("%s costs %d, in Kubernetes %d", text, c, w)
				}
				answers[fmt.Sprint(want, wantErr == nil)] = true
			}
		}
		if len(answers) == 1 && !strings.Contains(text, "== pod.spec.containers[0]") {
			t.Errorf("%s has the same result for all", text)
		}
	}
}

func asJSON(t *testing.T, object any) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An evaluation costs no more than the estimate for the largest objects, so that it need not be
// counted if the estimate is below the limit.
func TestEstimatesAreBounds(t *testing.T) {
	c := newShared(t)
	pod := somePods[0].DeepCopy()
	pod.Annotations = map[string]string{"long": strings.Repeat("a", 20_000)}
	for i := range 300 {
		pod.Annotations[fmt.Sprint(i)] = ""
	}
	for snapshot.PodSize(pod) < snapshot.MaxPod-16 {
		pod.Finalizers = append(pod.Finalizers, "")
	}
	view := policytest.View(someNodes, onNodes, someSignals)
	for text, most := range map[string]uint64{
		`pod.metadata.annotations["long"] == pod.metadata.annotations.long`:  10_000,
		`pod.metadata.annotations["long"].contains("b")`:                     10_000,
		`pod.metadata.annotations["long"].split(",").size() == 1`:            20_000,
		`pod.metadata.finalizers.all(f, f == "")`:                            50_000,
		`node.metadata.name in pod.metadata.finalizers`:                      5_000,
		`pod.metadata.annotations.exists(k, k == node.metadata.name)`:        20_000_000,
		`podRequests["cpu"].isLessThan(usage.free["cpu"])`:                   100,
		`[1, 2].all(x, pod.metadata.finalizers.exists(f, size(f) == x - 1))`: 200_000,
	} {
		checked, issues := c.env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := c.env.Program(checked, cel.CostTracking(&library.CostEstimator{}))
		if err != nil {
			t.Fatal(err)
		}
		vars := allVars(compileOne(t, text), pod, view.Node("a"), view)
		_, details, err := program.Eval(vars)
		estimate := c.estimate(checked, c.largest)
		if cost := details.ActualCost(); err != nil || *cost > estimate || estimate > most {
			t.Errorf("%s costs %d (%v), the estimate is %d, want at most %d", text, *cost, err, estimate, most)
		}
	}
}

// Comparing and adding quantities changes them internally. Cached quantities must not change.
func TestKeptQuantitiesStay(t *testing.T) {
	p := compileOne(t, `usage.free["memory"].add(podRequests["memory"]).add(quantity("1e20")).compareTo(quantity("1e20").add(usage.free["memory"]).add(podRequests["memory"])) == 0`)
	view := policytest.View(someNodes, onNodes, nil)
	c := prepared(p, somePods[3], view)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				for _, name := range []string{"a", "b"} {
					if v, err := c.eval(p.filters[0].expression, view.Node(name)); err != nil || v != types.True {
						t.Errorf("node %s: %v, %v", name, v, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// All policies have one environment: while some evaluate nodes, others compile expressions.
func TestPoliciesAreBuiltConcurrently(t *testing.T) {
	view := policytest.View(someNodes, onNodes, someSignals)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 3 {
				p, err := New(Config{WhenStale: policy.Neutral, Filters: []FilterRule{{
					Name: "room", Expression: `usage.free["memory"].sub(podRequests["memory"]).compareTo(quantity("-1Ei")) > 0 && signals["load"] >= 0.0 && node.metadata.name in ["a"]`,
				}}})
				if err != nil {
					t.Error(err)
					return
				}
				cycle, err := p.Prepare(t.Context(), somePods[3], view)
				if err != nil {
					t.Error(err)
					return
				}
				for n := range view.All() {
					cycle.(policy.Filter).Filter(n)
				}
			}
		})
	}
	all.Wait()
}

// FuzzExpression: any expression results in an error with its position, or in a policy that
// evaluates any pod and node.
func FuzzExpression(f *testing.F) {
	f.Add(`pod.metadata.labels["team"] == node.metadata.labels["team"]`)
	f.Add(`has(signals.load) && signals.load < 0.8 || keyed["a"][?"b"].orValue(1.0) > 0.0`)
	f.Add(`pod.spec.containers.all(c, node.status.images.exists(i, c.image in i.names))`)
	f.Add("usage.free[\"cpu\"].sub(quantity(\"1\")).isInteger() &&\n [1, 2].map(x, x * 2).exists(y, y == usage.pods)")
	f.Add(`semver("1.2.3").isGreaterThan(semver("1.0.0")) && ip("10.0.0.1").family() == 4 && cidr("10.0.0.0/8").containsIP("10.1.2.3")`)
	f.Add(`{"a": node}.transformMap(k, v, v.metadata.name).a == optional.of(pod).?metadata.name.orValue("")`)
	f.Add(`v1.Pod{metadata: 1} == pod || signals["x"] in signals`)
	f.Add(`@0 == '' ? "é\n" : b"x"`)
	view := policytest.View(someNodes, onNodes, someSignals)
	f.Fuzz(func(t *testing.T, text string) {
		for _, config := range []Config{
			{WhenStale: policy.Reject, Filters: []FilterRule{{Name: "one", Expression: text}}},
			{WhenStale: policy.Neutral, Scores: []ScoreRule{{Name: "one", Expression: text, MatchConditions: []MatchCondition{{Name: "has-labels", Expression: `has(pod.metadata.labels)`}}}}},
		} {
			p, err := New(config)
			if err != nil {
				requireFieldErrors(t, text, err)
				continue
			}
			for _, pod := range somePods {
				judgeAll(t, p, pod, view)
			}
		}
	})
}

func requireFieldErrors(t *testing.T, text string, err error) {
	var several utilerrors.Aggregate
	if !errors.As(err, &several) {
		t.Fatalf("%q: %v is no aggregate", text, err)
	}
	for _, e := range several.Errors() {
		var at *field.Error
		if !errors.As(e, &at) || at.Type == field.ErrorTypeInternal || strings.Contains(e.Error(), "\n") {
			t.Fatalf("%q: %v", text, e)
		}
	}
}

func judgeAll(t *testing.T, p policy.Policy, pod *corev1.Pod, view *snapshot.View) {
	cycle, err := p.Prepare(t.Context(), pod, view)
	if err != nil || cycle == nil {
		return
	}
	for n := range view.All() {
		if f, ok := cycle.(policy.Filter); ok {
			if first, second := f.Filter(n), f.Filter(n); first != second {
				t.Fatalf("the verdict is %+v, and then %+v", first, second)
			}
		}
		if s, ok := cycle.(policy.Score); ok {
			if score := s.Score(n); score < policy.NoOpinion || score > policy.MaxScore || score != s.Score(n) {
				t.Fatalf("the score is %d, and then %d", score, s.Score(n))
			}
		}
		for _, told := range cycle.(policy.Explainer).Explain(n) {
			if strings.Contains(told, "\n") {
				t.Fatalf("the explanation is %q", told)
			}
		}
	}
}
