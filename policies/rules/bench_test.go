package rules_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// byHand is Go code that is equivalent to three rules.
type byHand struct {
	free   *snapshot.Fact[resource.Quantity]
	passes func(p *byHand, pod *corev1.Pod, n *snapshot.Node, load *snapshot.Signal) bool
}

type byHandCycle struct {
	policy *byHand
	pod    *corev1.Pod
	load   *snapshot.Signal
}

var no = &policy.Reason{Code: "No", Text: "no"}

func (p *byHand) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	return &byHandCycle{p, pod, view.Signal("load")}, nil
}

func (c *byHandCycle) Filter(n *snapshot.Node) policy.Verdict {
	if c.policy.passes(c.policy, c.pod, n, c.load) {
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: no}
}

const signalRules = `
- {name: a, expression: 'signals.load < 0.9'}
- {name: b, expression: 'signals.load >= 0'}
- {name: c, expression: 'signals.load <= 0.5'}
`

func lowLoad(_ *byHand, _ *corev1.Pod, n *snapshot.Node, load *snapshot.Signal) bool {
	v := load.Of(n)
	return v.Current() && v.Number < 0.9 && v.Number >= 0 && v.Number <= 0.5
}

// arms are the same three rules in CEL and in Go.
var arms = []struct {
	name   string
	rules  string
	byHand func(p *byHand, pod *corev1.Pod, n *snapshot.Node, load *snapshot.Signal) bool
	renew  bool // the signal of each node has a new number at each request
}{
	{name: "pod", rules: `
- {name: a, expression: 'pod.spec.containers.all(c, c.image.startsWith("registry.example.com/"))'}
- {name: b, expression: 'pod.metadata.labels["team"] != "green"'}
- {name: c, expression: 'pod.spec.containers.size() < 2'}
`, byHand: func(_ *byHand, pod *corev1.Pod, _ *snapshot.Node, _ *snapshot.Signal) bool {
		for i := range pod.Spec.Containers {
			if !strings.HasPrefix(pod.Spec.Containers[i].Image, "registry.example.com/") {
				return false
			}
		}
		return pod.Labels["team"] != "green" && len(pod.Spec.Containers) < 2
	}},
	{name: "node", rules: `
- {name: a, expression: 'node.metadata.labels["team"] == "red"'}
- {name: b, expression: 'node.status.nodeInfo.kubeletVersion.startsWith("v1.36.")'}
- {name: c, expression: 'node.status.allocatable["cpu"].compareTo(quantity("8")) >= 0'}
`, byHand: func(_ *byHand, _ *corev1.Pod, n *snapshot.Node, _ *snapshot.Signal) bool {
		return n.Object.Labels["team"] == "red" && strings.HasPrefix(n.Object.Status.NodeInfo.KubeletVersion, "v1.36.") &&
			n.Object.Status.Allocatable.Cpu().Cmp(eight) >= 0
	}},
	{name: "signal", rules: signalRules, byHand: lowLoad},
	{name: "signal-renewed", rules: signalRules, byHand: lowLoad, renew: true},
	{name: "pod-and-signal", rules: `
- {name: a, expression: 'signals.load < 0.9 || pod.metadata.labels["team"] == "green"'}
- {name: b, expression: 'signals.load * double(pod.spec.containers.size()) <= 1.0'}
- {name: c, expression: 'signals.load >= 0.0 && pod.metadata.labels["team"] == "red"'}
`, byHand: func(_ *byHand, pod *corev1.Pod, n *snapshot.Node, load *snapshot.Signal) bool {
		v := load.Of(n)
		return v.Current() && (v.Number < 0.9 || pod.Labels["team"] == "green") && v.Number*float64(len(pod.Spec.Containers)) <= 1 &&
			v.Number >= 0 && pod.Labels["team"] == "red"
	}},
	{name: "mixed", rules: `
- {name: a, expression: 'node.metadata.labels["team"] == pod.metadata.labels["team"]'}
- {name: b, expression: 'usage.free["cpu"].compareTo(podRequests["cpu"]) >= 0'}
- {name: c, expression: 'pod.metadata.name != node.metadata.labels["zone"]'}
`, byHand: func(p *byHand, pod *corev1.Pod, n *snapshot.Node, _ *snapshot.Signal) bool {
		free := *p.free.Of(n)
		return n.Object.Labels["team"] == pod.Labels["team"] && free.Cmp(pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]) >= 0 &&
			pod.Name != n.Object.Labels["zone"]
	}},
	{name: "loop", rules: `
- {name: a, expression: 'pod.spec.containers.all(c, c.image != node.metadata.name)'}
- {name: b, expression: 'pod.spec.containers.exists(c, c.name != node.metadata.labels["zone"])'}
- {name: c, expression: 'node.metadata.labels.exists(k, node.metadata.labels[k] == pod.metadata.labels["team"])'}
`, byHand: func(_ *byHand, pod *corev1.Pod, n *snapshot.Node, _ *snapshot.Signal) bool {
		other := false
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Image == n.Name {
				return false
			}
			other = other || pod.Spec.Containers[i].Name != n.Object.Labels["zone"]
		}
		for _, v := range n.Object.Labels {
			if v == pod.Labels["team"] {
				return other
			}
		}
		return false
	}},
}

var eight = resource.MustParse("8")

func newByHand(passes func(*byHand, *corev1.Pod, *snapshot.Node, *snapshot.Signal) bool) *byHand {
	return &byHand{passes: passes, free: snapshot.NewFact(func(n *snapshot.Node) resource.Quantity {
		free := n.Object.Status.Allocatable.Cpu().DeepCopy()
		for _, pod := range n.Pods {
			for i := range pod.Spec.Containers {
				free.Sub(pod.Spec.Containers[i].Resources.Requests[corev1.ResourceCPU])
			}
		}
		return free
	})}
}

// request calls Prepare, and Filter for every node, and returns how many nodes fit.
func request(tb testing.TB, p policy.Policy, pod *corev1.Pod, view *snapshot.View) (fit int) {
	cycle, err := p.Prepare(tb.Context(), pod, view)
	if err != nil {
		tb.Fatal(err)
	}
	f, filters := cycle.(policy.Filter)
	for row := range view.Rows() {
		if !filters || f.Filter(view.At(row)).Fits() {
			fit++
		}
	}
	return fit
}

func TestRulesAndGoAgree(t *testing.T) {
	pod, view := crowd()
	for _, arm := range arms {
		cel, byHand := request(t, policytest.Build(t, rules.Type(), "filters:"+arm.rules), pod, view), request(t, newByHand(arm.byHand), pod, view)
		if cel != byHand || cel == view.Len() {
			t.Errorf("%s: on %d nodes by rules, on %d by Go", arm.name, cel, byHand)
		}
	}
}

// BenchmarkAgainstGo is requests for 5,000 nodes by three rules, and by the same in Go, in turn:
// the cost of a node, and the ratio of rules to Go.
func BenchmarkAgainstGo(b *testing.B) {
	pod, view, later := crowds()
	for _, arm := range arms {
		b.Run(arm.name, func(b *testing.B) {
			cel, byHand := policytest.Build(b, rules.Type(), "filters:"+arm.rules), newByHand(arm.byHand)
			views := []*snapshot.View{view}
			if arm.renew {
				views = append(views, later)
			}
			request(b, cel, pod, view) // fills the caches of the nodes
			request(b, byHand, pod, view)
			calls := 0
			b.ReportAllocs()
			var took [2]time.Duration
			for b.Loop() {
				view := views[calls%len(views)]
				calls++
				for i, p := range []policy.Policy{cel, byHand} {
					start := time.Now()
					request(b, p, pod, view)
					took[i] += time.Since(start)
				}
			}
			perNode := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N) / float64(view.Len()) }
			b.ReportMetric(perNode(took[0]), "cel-ns/node")
			b.ReportMetric(perNode(took[1]), "go-ns/node")
			b.ReportMetric(float64(took[0])/float64(took[1]), "cel/go")
		})
	}
}
