package utilization_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policies/utilization"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, utilization.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"filters": `{cpu: {signal: cpu, unit: Percent, max: 80}, memory: {signal: memory, unit: Absolute, max: 90}, whenStale: Reject}`,
		"scores":  `{cpu: {signal: cpu, unit: Percent}, metricDelay: 0s}`,
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(utilization.Type(), config),
				Pods: policytest.Pods(`
- {metadata: {name: limits}, spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}
- {metadata: {name: requests}, spec: {containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}, {name: d}]}}
- {metadata: {name: whole}, spec: {resources: {limits: {cpu: 1}}, overhead: {cpu: 100m}, containers: [{name: c}]}}
`),
				Nodes: policytest.Nodes(`
- {metadata: {name: a}, status: {allocatable: {cpu: 8, memory: 32Gi}}}
- {metadata: {name: b}, status: {allocatable: {cpu: 16, memory: 8Gi}}}
- {metadata: {name: c}, status: {allocatable: {cpu: 100m, memory: 1Mi}}}
- {metadata: {name: d}}
`),
				Assigned: policytest.Pods(`
- {metadata: {name: p1}, spec: {nodeName: a, containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}
- metadata: {name: p2}
  spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}
  status: {conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-01-01T11:59:30Z"}]}
- metadata: {name: p3}
  spec: {nodeName: b, containers: [{name: c}]}
  status: {conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2025-01-01T00:00:00Z"}]}
`),
				Signals: policytest.Signals(`
cpu: {a: 20, b: {number: 70, at: "2026-01-01T11:50:00Z"}, c: 10, d: 10}
deviation: {a: 5, b: 30, c: 0}
memory: {a: 12000000000, b: 5000000000, c: 1000}
`),
			})
		})
	}
}

// Nodes and pods of the tests below.

func node(name, cpu, memory string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: amounts(cpu, memory)}}
}

// amounts leaves out empty values.
func amounts(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			list[name] = resource.MustParse(q)
		}
	}
	return list
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new", UID: "new"}, Spec: corev1.PodSpec{Containers: containers}}
}

// prepared returns the policy prepared for the pod, and the node in a view with the signals.
func prepared(t testing.TB, p policy.Policy, pod *corev1.Pod, n *corev1.Node, signals string, on ...*corev1.Pod) (cycle, *snapshot.Node) {
	t.Helper()
	view := policytest.View([]*corev1.Node{n}, on, policytest.Signals(signals))
	return policytest.Prepare[cycle](t, p, pod, view), view.Node(n.Name)
}

type cycle interface {
	policy.Score
	policy.Explainer
}

// A policy that can reject no node only scores, so that kube-scheduler need not call filter for it.
func TestScoreOnly(t *testing.T) {
	for config, want := range map[string]bool{
		"cpu: {signal: cpu, unit: Percent}":                                                   true,
		"cpu: {signal: cpu, unit: Percent}, memory: {signal: memory, unit: Percent, max: 90}": false,
		"cpu: {signal: cpu, unit: Percent}, whenStale: Reject":                                false,
	} {
		p := policytest.Build(t, utilization.Type(), "{"+config+"}")
		c, _ := prepared(t, p, podOf(), node("x", "1", "1Gi"), "")
		_, filters := c.(policy.Filter)
		if got := p.(policy.InputReader).Inputs().ScoreOnly; got != want || filters == want {
			t.Errorf("%s: ScoreOnly is %t, want %t; the Cycle filters: %t", config, got, want, filters)
		}
	}
}

// TestPrediction: the predicted use of a pod, from what an idle node of 100 cores and 100 GiB has
// left.
func TestPrediction(t *testing.T) {
	p := policytest.Build(t, utilization.Type(), `{cpu: {signal: use, unit: Fraction}, memory: {signal: use, unit: Fraction}}`)
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container(amounts("4", "4Gi"), nil)
	sidecar.RestartPolicy = &always
	withInit := podOf(container(nil, amounts("5", "5Gi")))
	withInit.Spec.InitContainers = []corev1.Container{container(nil, amounts("50", "50Gi")), sidecar}
	withOverhead := podOf(container(nil, amounts("5", "5Gi")))
	withOverhead.Spec.Overhead = amounts("2", "2Gi")
	whole := func(requests, limits corev1.ResourceList) *corev1.Pod {
		pod := podOf(container(nil, nil), container(nil, amounts("90", "90Gi")))
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
		return pod
	}
	for what, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no containers":              {podOf(), "0 0"},
		"limit":                      {podOf(container(amounts("1", "1Gi"), amounts("9", "8Gi"))), "9 8Gi"},
		"request":                    {podOf(container(amounts("4", "6Gi"), nil)), "6 9Gi"},
		"neither":                    {podOf(container(nil, nil)), "1 200Mi"},
		"one of each":                {podOf(container(amounts("4", ""), amounts("", "5Gi"))), "6 5Gi"},
		"each on its own":            {podOf(container(nil, amounts("9", "")), container(nil, nil)), "10 400Mi"},
		"0 is no limit":              {podOf(container(amounts("4", "4Gi"), amounts("0", "0"))), "6 6Gi"},
		"less than 0 is nothing":     {podOf(container(amounts("-4", "-4Gi"), amounts("-1", "-1"))), "1 200Mi"},
		"sidecar and init container": {withInit, "11 11Gi"},
		"overhead":                   {withOverhead, "7 7Gi"},
		"limit of the whole pod":     {whole(amounts("1", "1Gi"), amounts("20", "20Gi")), "20 20Gi"},
		"request of the whole pod":   {whole(amounts("10", "10Gi"), nil), "15 15Gi"},
		"nothing of the whole pod":   {whole(nil, nil), "91 92360Mi"},
	} {
		c, n := prepared(t, p, tc.pod, node("x", "100", "100Gi"), "use: {x: 0}")
		said := c.Explain(nil)
		got := strings.TrimPrefix(said[0], "CPU: the pod is predicted to use ") + " " + strings.TrimPrefix(said[1], "memory: the pod is predicted to use ")
		if got != tc.want {
			t.Errorf("%s: predicted %s, want %s", what, got, tc.want)
		}
		cores, bytes := resource.MustParse(strings.Fields(tc.want)[0]), resource.MustParse(strings.Fields(tc.want)[1])
		if score := c.Score(n); score != 100-max(cores.Value(), bytes.Value()>>30) {
			t.Errorf("%s: score %d", what, score)
		}
	}
}

// TestRemovingPods: removing a pod frees room only if the measurement does not include the pod.
func TestRemovingPods(t *testing.T) {
	p := policytest.Build(t, utilization.Type(), `{cpu: {signal: cpu, unit: Percent, max: 80}}`)
	fresh := bound("fresh", time.Time{})
	measured := bound("measured", policytest.Now.Add(-time.Hour))
	pod := podOf(container(nil, amounts("2", "")))
	for used, want := range map[int]string{50: "fits", 55: "fits without fresh", 65: "never fits"} {
		c, n := prepared(t, p, pod, node("x", "10", ""), fmt.Sprintf("cpu: {x: %d}", used), fresh, measured)
		without := func(name string) bool {
			return c.(policy.Filter).Filter(n.Without(func(p *corev1.Pod) bool { return p.Name == name })).Fits()
		}
		got, v := "never fits", c.(policy.Filter).Filter(n)
		switch {
		case v.Fits():
			got = "fits"
		case without("fresh"):
			got = "fits without fresh"
		}
		if got != want || without("measured") != v.Fits() || v.Unresolvable != (want == "never fits") {
			t.Errorf("%d%% used: %s, want %s; without the measured pod: %t; unresolvable: %t", used, got, want, without("measured"), v.Unresolvable)
		}
	}
}

// bound is a pod on node x with limits of one core and 1Gi; the zero time is a pod that the view
// does not show yet.
func bound(name string, at time.Time) *corev1.Pod {
	pod := podOf(container(nil, amounts("1", "1Gi")))
	pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID(name), "x"
	if !at.IsZero() {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
	}
	return pod
}

func TestExplain(t *testing.T) {
	p := policytest.Build(t, utilization.Type(), `{cpu: {signal: cpu, unit: Percent, window: 6h}, memory: {signal: memory, unit: Absolute}}`)
	const signals = `{cpu: {x: 30, old: {number: 7, stale: true}}, memory: {bare: 1}}`
	pod := podOf(container(nil, amounts("500m", "1Gi")))
	for _, tc := range []struct {
		node *corev1.Node
		want []string
	}{
		{node("x", "10", "8Gi"), []string{
			"CPU: 30% used of 10 at 2026-01-01T12:00:00Z + 28.36% by 3 pods bound since 2026-01-01T05:59:00Z, " +
				"without what a mean over 6h0m0s has of it + 5% by this pod = 63.36%; scores 37",
			"memory: unknown (signal memory has no value for the node)",
		}},
		{node("old", "10", "8Gi"), []string{
			"CPU: unknown (signal cpu is stale for the node, 7 at 2026-01-01T12:00:00Z)",
			"memory: unknown (signal memory has no value for the node)",
		}},
		{node("bare", "", ""), []string{
			"CPU: unknown (signal cpu has no value for the node)",
			"memory: unknown (the node reports none in status.allocatable)",
		}},
	} {
		c, n := prepared(t, p, pod, tc.node, signals, bound("a", time.Time{}), bound("b", policytest.Now), bound("c", policytest.Now.Add(-time.Hour)))
		if got := c.Explain(n); strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", tc.node.Name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

func BenchmarkUtilization(b *testing.B) {
	var builder snapshot.Builder
	use := map[string]snapshot.Value{}
	for i := range 5000 {
		n := node(fmt.Sprint("node-", i), "32", "128Gi")
		builder.SetNode(n)
		use[n.Name] = snapshot.Value{Number: float64(i%90) / 100, At: policytest.Now}
		for j := range 30 {
			pod := bound(fmt.Sprint("pod-", i, "-", j), policytest.Now.Add(time.Duration(j-25)*time.Minute))
			pod.Spec.NodeName = n.Name
			builder.SetPod(pod)
		}
	}
	builder.SetSignal(snapshot.NewSignal("use", use))
	view := builder.View()
	config := `{cpu: {signal: use, unit: Fraction, max: 90}, memory: {signal: use, unit: Fraction}}`
	policytest.Benchmark(b, policytest.Build(b, utilization.Type(), config), podOf(container(amounts("1", "1Gi"), nil)), view)
}
