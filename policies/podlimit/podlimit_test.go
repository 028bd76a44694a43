package podlimit_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, podlimit.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"own namespace":     `{max: 2, selector: {matchLabels: {app: web}}}`,
		"listed namespaces": `{max: 2, selector: {matchLabels: {app: web}}, namespaces: [default, other]}`,
		"every pod":         `{max: 1, selector: {}, namespaces: ["*"]}`,
		"own limits":        `{max: 2, selector: {matchLabels: {app: web}}, maxFrom: {label: example.com/max}}`,
		"own counts":        `{max: 2, selector: {}, each: {label: app}, maxFromPod: {annotation: example.com/most}}`,
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(podlimit.Type(), config),
				Pods: policytest.Pods(`
- metadata: {name: new, labels: {app: web}, annotations: {example.com/most: "1"}}
- metadata: {name: new-2, namespace: other, labels: {app: web}}
- metadata: {name: new-3}
`),
				Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {example.com/max: "5"}}
- metadata: {name: b, labels: {example.com/max: many}}
- metadata: {name: c}
`),
				Assigned: policytest.Pods(`
- {metadata: {name: w1, labels: {app: web}}, spec: {nodeName: a}}
- {metadata: {name: w2, labels: {app: web}}, spec: {nodeName: a}}
- {metadata: {name: w3, namespace: other, labels: {app: web}}, spec: {nodeName: a}}
- {metadata: {name: w4, labels: {app: web}}, spec: {nodeName: b}}
- {metadata: {name: db}, spec: {nodeName: b}}
`),
			})
		})
	}
}

func TestExplain(t *testing.T) {
	p := policytest.Build(t, podlimit.Type(), `{max: 2, selector: {matchLabels: {app: web}}, maxFrom: {annotation: example.com/max}}`)
	shared := policytest.Build(t, podlimit.Type(), `{max: 9, selector: {}, namespaces: ["*"]}`)
	view := policytest.View(policytest.Nodes(`
- metadata: {name: own, annotations: {example.com/max: "5"}}
- metadata: {name: wrong, annotations: {example.com/max: many}}
- metadata: {name: none}
`), policytest.Pods(`
- {metadata: {name: w1, labels: {app: web}}, spec: {nodeName: own}}
- {metadata: {name: w2, namespace: other, labels: {app: web}}, spec: {nodeName: own}}
- {metadata: {name: db}, spec: {nodeName: own}}
`), nil)
	each := policytest.Build(t, podlimit.Type(), `{max: 9, selector: {}, each: {label: app}, maxFromPod: {annotation: example.com/most}}`)
	pod := policytest.Pods(`metadata: {name: new, labels: {app: web}, annotations: {example.com/most: "3"}}`)[0]
	for _, tt := range []struct {
		policy policy.Policy
		node   string
		want   string
	}{
		{p, "", ""},
		{p, "own", "matching pods of namespace default: 1 of 5 (limit from annotation example.com/max)"},
		{p, "wrong", `limit: "many" is not a whole number from 0 (annotation example.com/max)`},
		{p, "none", "matching pods of namespace default: 0 of 2 (limit from max)"},
		{each, "own", `matching pods of namespace default: 1 of 3 (app is "web", limit from annotation example.com/most of the pod)`},
		{shared, "own", "matching pods: 3 of 9 (limit from max)"},
	} {
		cycle := policytest.Prepare[policy.Explainer](t, tt.policy, pod, view)
		if got := strings.Join(cycle.Explain(view.Node(tt.node)), "|"); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.node, got, tt.want)
		}
	}
}

// TestPreemption: with any pods on a node, the pod fits as soon as enough matching pods have left,
// and not before.
func TestPreemption(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int32Range(1, 5).Draw(t, "limit")
		p, err := podlimit.New(podlimit.Config{
			Max:      limit,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		pod := func(i int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprint("p", i),
				UID:       types.UID(fmt.Sprint(i)),
				Namespace: rapid.SampledFrom([]string{"default", "other"}).Draw(t, "namespace"),
				Labels:    map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(t, "app")},
			}}
		}
		pods := make([]*corev1.Pod, rapid.IntRange(0, 12).Draw(t, "pods"))
		for i := range pods {
			pods[i] = pod(i)
		}
		leaving := rapid.SliceOfN(rapid.Bool(), len(pods), len(pods)).Draw(t, "leaving")
		left := map[types.UID]bool{}
		staying := 0
		for i, pod := range pods {
			left[pod.UID] = leaving[i]
			if !leaving[i] && pod.Namespace == "default" && pod.Labels["app"] == "web" {
				staying++
			}
		}
		asked := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "default", Labels: map[string]string{"app": "web"}}}
		cycle := policytest.Prepare[policy.Cycle](t, p, asked, new(snapshot.View))
		full := snapshot.NewNode(&corev1.Node{}, pods...)
		cycle.(policy.Filter).Filter(full)
		node := full.Without(func(p *corev1.Pod) bool { return left[p.UID] })
		verdict, score := cycle.(policy.Filter).Filter(node), cycle.(policy.Score).Score(node)
		if fits := staying < int(limit); verdict.Fits() != fits || verdict.Unresolvable {
			t.Errorf("%d matching pods of at most %d: got %+v", staying, limit, verdict)
		}
		if !verdict.Fits() && verdict.Have != int64(limit)-int64(staying) {
			t.Errorf("%d matching pods of at most %d: %d are left", staying, limit, verdict.Have)
		}
		if want := max(0, 100*(int64(limit)-int64(staying))/int64(limit)); score != want {
			t.Errorf("%d matching pods of at most %d: score %d, want %d", staying, limit, score, want)
		}
	})
}

func BenchmarkPodLimit(b *testing.B) {
	p, err := policytest.FromYAML(podlimit.Type(), `{max: 20, selector: {matchLabels: {app: web}}}`)()
	if err != nil {
		b.Fatal(err)
	}
	var builder snapshot.Builder
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for j := range 30 {
			builder.SetPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: fmt.Sprint("team-", j%5),
					Name:      fmt.Sprint("pod-", j),
					UID:       types.UID(fmt.Sprint(i, "/", j)),
					Labels:    map[string]string{"app": []string{"web", "db"}[j%2], "version": "7"},
				},
				Spec: corev1.PodSpec{NodeName: name},
			})
		}
	}
	policytest.Benchmark(b, p, policytest.Pods(`metadata: {name: new, namespace: team-1, labels: {app: web}}`)[0], builder.View())
}
