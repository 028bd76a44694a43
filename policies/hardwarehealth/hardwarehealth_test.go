package hardwarehealth_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/hardwarehealth"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, hardwarehealth.Type(), "testdata/*.txtar")
}

// everySource has a rule of each kind, some for some pods only.
const everySource = `
tolerationAnnotation: example.com/tolerate-degraded
rules:
- {name: xid, nodeCondition: {type: XidCriticalError}, reject: true, resources: [nvidia.com/gpu]}
- {name: kernel, nodeCondition: {type: KernelDeadlock}, penalty: 20}
- {name: repair, nodeLabel: {key: example.com/repair, values: ["yes"]}, reject: true}
- {name: noted, nodeLabel: {key: example.com/noise}, penalty: 30}
- {name: hot, signal: {name: temperature, above: 85}, reject: true}
- {name: fan, signal: {name: fan, below: 500}, penalty: 60}
- {name: ecc, signal: {name: ecc}, penalty: 50}
`

const conformancePods = `
- metadata: {name: gpu, annotations: {example.com/tolerate-degraded: "hot, ecc"}}
  spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}}}]}
- metadata: {name: web, labels: {app: web}}
`

const conformanceNodes = `
- metadata: {name: a, labels: {example.com/repair: "yes"}}
- metadata: {name: b, labels: {example.com/noise: "1"}}
  status: {conditions: [{type: XidCriticalError, status: "True", lastTransitionTime: "2026-01-01T10:00:00Z", reason: Xid79}]}
- metadata: {name: c}
  status: {conditions: [{type: KernelDeadlock, status: "True"}]}
- metadata: {name: d}
`

const conformanceSignals = `
temperature: {a: 20, b: 90, c: 20, d: {number: 20, stale: true}}
fan: {a: 20, b: 900, c: 900}
ecc: {a: 1, b: 0, c: {number: 1, at: "2026-01-01T11:00:00Z"}, d: 0}
`

func TestConformance(t *testing.T) {
	for _, whenStale := range []policy.UnknownAction{policy.Neutral, policy.Reject} {
		t.Run(string(whenStale), func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New:      policytest.FromYAML(hardwarehealth.Type(), everySource+"whenStale: "+string(whenStale)),
				Pods:     policytest.Pods(conformancePods),
				Nodes:    policytest.Nodes(conformanceNodes),
				Assigned: policytest.Pods(`{metadata: {name: w}, spec: {nodeName: c}}`),
				Signals:  policytest.Signals(conformanceSignals),
			})
		})
	}
}

func TestExplain(t *testing.T) {
	view, pods := policytest.View(policytest.Nodes(conformanceNodes), nil, policytest.Signals(conformanceSignals)), policytest.Pods(conformancePods)
	for _, tt := range []struct {
		pod  *corev1.Pod
		node string // "" for the pod as a whole
		want []string
	}{
		{pods[0], "", []string{"tolerated rules: hot, ecc (annotation example.com/tolerate-degraded)"}},
		{pods[0], "b", []string{
			"rule xid: rejects (condition XidCriticalError is True since 2026-01-01T10:00:00Z, Xid79)",
			`rule noted: subtracts 30 points (label example.com/noise is "1")`,
		}},
		{pods[1], "", nil},
		{pods[1], "a", []string{
			`rule repair: rejects (label example.com/repair is "yes")`,
			"rule fan: subtracts 60 points (signal fan was 20, below 500, at 2026-01-01T12:00:00Z)",
			"rule ecc: subtracts 50 points (signal ecc is 1 since 2026-01-01T12:00:00Z)",
		}},
		{pods[1], "b", []string{
			`rule noted: subtracts 30 points (label example.com/noise is "1")`,
			"rule hot: rejects (signal temperature was 90, above 85, at 2026-01-01T12:00:00Z)",
		}},
		{pods[1], "c", []string{
			"rule kernel: subtracts 20 points (condition KernelDeadlock is True)",
			"rule ecc: subtracts 50 points (signal ecc is 1 since 2026-01-01T11:00:00Z)",
		}},
		{pods[1], "d", []string{
			"rule hot: unknown (signal temperature is stale for the node, 20 at 2026-01-01T12:00:00Z)",
			"rule fan: unknown (signal fan has no value for the node)",
		}},
	} {
		cycle := policytest.Prepare[policy.Explainer](t, policytest.Build(t, hardwarehealth.Type(), everySource), tt.pod, view)
		if got := cycle.Explain(view.Node(tt.node)); !slices.Equal(got, tt.want) {
			t.Errorf("%s on %q: got %q, want %q", tt.pod.Name, tt.node, got, tt.want)
		}
	}
}

// TestUnknownIsNoBetter: unknown values never make a node better than its known values do, and
// never worse than the other nodes on average.
func TestUnknownIsNoBetter(t *testing.T) {
	const config = `
rules:
- {name: p, signal: {name: p}, penalty: 30}
- {name: q, signal: {name: q}, penalty: 45}
- {name: r, signal: {name: r}, penalty: 60}
`
	penalties := map[string]int64{"p": 30, "q": 45, "r": 60}
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		values := map[string]map[string]snapshot.Value{"p": {}, "q": {}, "r": {}}
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		left, complete := make([]int64, n), make([]bool, n)
		nodes := make([]*snapshot.Node, n)
		for i := range n {
			name := fmt.Sprint("n", i)
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			left[i], complete[i] = policy.MaxScore, true
			for _, signal := range []string{"p", "q", "r"} {
				switch rapid.SampledFrom([]string{"healthy", "degraded", "stale", "missing"}).Draw(t, signal) {
				case "healthy":
					values[signal][name] = snapshot.Value{At: policytest.Now}
				case "degraded":
					values[signal][name] = snapshot.Value{Number: 1, At: policytest.Now}
					left[i] = max(0, left[i]-penalties[signal])
				case "stale":
					values[signal][name] = snapshot.Value{Number: 1, At: policytest.Now, Stale: true}
					complete[i] = false
				default:
					complete[i] = false
				}
			}
		}
		for name, v := range values {
			b.SetSignal(snapshot.NewSignal(name, v))
		}
		view := b.View()
		p := policytest.Build(t, hardwarehealth.Type(), config)
		cycle := policytest.Prepare[policy.Cycle](t, p, new(corev1.Pod), view)
		scores := make([]int64, n)
		var sum, known int64
		for i := range n {
			nodes[i] = view.Node(fmt.Sprint("n", i))
			scores[i] = cycle.(policy.Score).Score(nodes[i])
			if complete[i] {
				sum, known = sum+left[i], known+1
			}
		}
		mean := policy.MaxScore / 2
		if known > 0 {
			mean = sum / known
		}
		cycle.(policy.NormalizeScore).NormalizeScore(scores)
		for i := range n {
			want := left[i]
			if !complete[i] {
				want = min(want, mean)
			}
			if scores[i] != want {
				t.Errorf("node %d of %d: score %d, want %d", i, n, scores[i], want)
			}
		}
	})
}

func TestSignals(t *testing.T) {
	want := []policy.Signal{
		{Field: "rules[4].signal.name", Name: "temperature", About: policy.AboutNodes},
		{Field: "rules[5].signal.name", Name: "fan", About: policy.AboutNodes},
		{Field: "rules[6].signal.name", Name: "ecc", About: policy.AboutNodes},
	}
	if got := policytest.Build(t, hardwarehealth.Type(), everySource).(policy.InputReader).Inputs().Signals; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbersThatNoFileHas(t *testing.T) {
	config := hardwarehealth.Defaults()
	config.Rules = []hardwarehealth.Rule{
		{Name: "a", Reject: true, Signal: &hardwarehealth.Signal{Name: "a", Above: new(math.NaN())}},
		{Name: "b", Reject: true, Signal: &hardwarehealth.Signal{Name: "b", Below: new(math.Inf(1))}},
	}
	_, err := hardwarehealth.New(config)
	for _, name := range []string{"rules[0].signal.above", "rules[1].signal.below"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error about %s", err, name)
		}
	}
	config.Rules = []hardwarehealth.Rule{{Name: "a", Reject: true, Signal: &hardwarehealth.Signal{Name: "a", Above: new(math.NaN()), Below: new(math.NaN())}}}
	_, err = hardwarehealth.New(config)
	for range 20 {
		if _, again := hardwarehealth.New(config); err == nil || again == nil || again.Error() != err.Error() {
			t.Fatalf("got %v, and then %v", err, again)
		}
	}
	if config.Rules = make([]hardwarehealth.Rule, 101); true {
		if _, err := hardwarehealth.New(config); err == nil || !strings.Contains(err.Error(), "at most 100") {
			t.Errorf("got %v for 101 rules", err)
		}
	}
}

func BenchmarkHardwareHealth(b *testing.B) {
	var builder snapshot.Builder
	temperature, ecc := map[string]snapshot.Value{}, map[string]snapshot.Value{}
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/repair": "no", "kubernetes.io/hostname": name}}}
		for _, kind := range []corev1.NodeConditionType{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "KernelDeadlock", "ReadonlyFilesystem", "FrequentKubeletRestart", "XidCriticalError"} {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
		}
		builder.SetNode(node)
		temperature[name] = snapshot.Value{Number: float64(i % 97), At: policytest.Now}
		ecc[name] = snapshot.Value{Number: float64(i % 2), At: policytest.Now}
	}
	builder.SetSignal(snapshot.NewSignal("temperature", temperature))
	builder.SetSignal(snapshot.NewSignal("ecc", ecc))
	view := builder.View()
	pod := policytest.Pods(conformancePods)[1]
	for name, config := range map[string]string{
		"object":  "rules: [{name: a, nodeCondition: {type: XidCriticalError}, reject: true}, {name: b, nodeLabel: {key: example.com/repair, values: [\"yes\"]}, penalty: 5}]",
		"signals": "rules: [{name: a, signal: {name: temperature, above: 85}, reject: true}, {name: b, signal: {name: ecc}, penalty: 5}]",
	} {
		b.Run(name, func(b *testing.B) {
			policytest.Benchmark(b, policytest.Build(b, hardwarehealth.Type(), config), pod, view)
		})
	}
}

// kube-scheduler need not call filter or prioritize for rules without that effect.
func TestOnly(t *testing.T) {
	for config, want := range map[string][2]bool{ // ScoreOnly, FilterOnly
		"rules: [{name: a, nodeLabel: {key: x}, reject: true}]":                                             {false, true},
		"rules: [{name: a, nodeLabel: {key: x}, penalty: 5}]":                                               {true, false},
		"rules: [{name: a, signal: {name: s}, penalty: 5}], whenStale: Reject":                              {false, false},
		"rules: [{name: a, nodeLabel: {key: x}, reject: true}, {name: b, nodeLabel: {key: z}, penalty: 5}]": {false, false},
	} {
		p := policytest.Build(t, hardwarehealth.Type(), "{"+config+"}")
		inputs := p.(policy.InputReader).Inputs()
		cycle, err := p.Prepare(t.Context(), &corev1.Pod{}, policytest.View(nil, nil, nil))
		_, filters := cycle.(policy.Filter)
		_, scores := cycle.(policy.Score)
		if got := [2]bool{inputs.ScoreOnly, inputs.FilterOnly}; err != nil || got != want || filters == want[0] || scores == want[1] {
			t.Errorf("%s: ScoreOnly and FilterOnly are %v, want %v; the Cycle filters: %t, scores: %t, %v", config, got, want, filters, scores, err)
		}
	}
}
