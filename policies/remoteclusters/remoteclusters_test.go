package remoteclusters_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/remoteclusters"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, remoteclusters.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"reject":  "",
		"neutral": "whenStale: Neutral\nmetricDelay: 0s",
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New: policytest.FromYAML(remoteclusters.Type(), `
clusterLabel: cluster
clusters: [{name: west, signal: west, weight: 3}, {name: east, signal: east}]
`+config),
				Pods: policytest.Pods(`
- {metadata: {name: new}, spec: {containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi, example.com/gpu: 1}}}]}}
- {metadata: {name: small}}
- metadata: {name: sidecar}
  spec:
    overhead: {cpu: 100m}
    initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}]
    containers: [{name: c, resources: {requests: {cpu: 1}}}]
`),
				Nodes: policytest.Nodes(`
- metadata: {name: home}
- metadata: {name: west-1, labels: {cluster: west}}
- metadata: {name: west-2, labels: {cluster: west}}
- metadata: {name: east, labels: {cluster: east}}
- metadata: {name: south, labels: {cluster: south}}
`),
				Assigned: policytest.Pods(`
- metadata: {name: p1}
  spec: {nodeName: west-1, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}
  status: {conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-01-01T12:00:01Z"}]}
- metadata: {name: p2}
  spec: {nodeName: west-2, containers: [{name: c, resources: {requests: {cpu: 2}}}]}
- metadata: {name: p3}
  spec: {nodeName: west-1, containers: [{name: c, resources: {requests: {cpu: 4}}}]}
  status: {conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2025-01-01T12:00:01Z"}]}
- {metadata: {name: p4}, spec: {nodeName: home}}
`),
				Signals: policytest.Signals(`
west: {cpu/total: 10, cpu/free: 5.5, cpu/largest: 3, memory/total: 1e11, memory/free: 5e10, pods/total: 100, pods/free: 50, example.com/gpu/total: 4, example.com/gpu/free: 2, example.com/gpu/largest: 1}
east: {cpu/free: {number: 8, stale: true}, pods/free: {number: 8, stale: true}}
`),
			})
		})
	}
}

func podOf(name, node string, milli int64, bound time.Time) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
		}}}},
	}
	if !bound.IsZero() {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)}}
	}
	return pod
}

// TestPodsBetweenReadingsCount: between two readings of the signal, pods are placed on two nodes that
// represent one cluster, and are deleted again. They never request more than the cluster has free.
func TestPodsBetweenReadingsCount(t *testing.T) {
	p := policytest.Build(t, remoteclusters.Type(), "{clusterLabel: cluster, clusters: [{name: west, signal: west}]}")
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.Int64Range(0, 8000).Draw(t, "free")
		var b snapshot.Builder
		for _, name := range []string{"west-1", "west-2"} {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"cluster": "west"}}})
		}
		b.SetSignal(policytest.Signals(fmt.Sprintf("west: {cpu/free: %g, pods/free: 10}", float64(free)/1000))[0])
		placed := map[string]*corev1.Pod{}
		given := int64(0)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(placed) > 0 && rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
				names := slices.Sorted(func(yield func(string) bool) {
					for name := range placed {
						if !yield(name) {
							return
						}
					}
				})
				pod := placed[rapid.SampledFrom(names).Draw(t, "which")]
				b.DeletePod(pod.UID)
				delete(placed, pod.Name)
				given -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
				continue
			}
			milli := rapid.Int64Range(1, 3000).Draw(t, "asks")
			node := rapid.SampledFrom([]string{"west-1", "west-2"}).Draw(t, "node")
			pod := podOf(fmt.Sprint("p", i), "", milli, time.Time{})
			view := b.View()
			cycle := policytest.Prepare[policy.Filter](t, p, pod, view)
			fits := given+milli <= free && len(placed) < 10
			v := cycle.Filter(view.Node(node))
			if v.Fits() != fits {
				t.Fatalf("%d of %d are allocated to %d pods: for %d more the verdict is %+v", given, free, len(placed), milli, v)
			}
			if !fits {
				continue
			}
			bound := podOf(pod.Name, node, milli, policytest.Now.Add(time.Duration(rapid.IntRange(-1, 60).Draw(t, "later"))*time.Second))
			if rapid.Bool().Draw(t, "says when") {
				bound.Status.Conditions = nil
			}
			b.SetPod(bound)
			placed[pod.Name] = bound
			given += milli
		}
	})
}

// A node that starts to represent a cluster, or changes it, counts for that cluster from the next
// view, with its pods.
func TestNodesChangeTheirCluster(t *testing.T) {
	p := policytest.Build(t, remoteclusters.Type(), "{clusterLabel: cluster, clusters: [{name: west, signal: west}, {name: east, signal: east}]}")
	var b snapshot.Builder
	for _, column := range policytest.Signals("west: {pods/free: 1}\neast: {pods/free: 1}") {
		b.SetSignal(column)
	}
	node := func(name, cluster string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if cluster != "" {
			n.Labels["cluster"] = cluster
		}
		b.SetNode(n)
	}
	for _, name := range []string{"west", "east"} {
		node(name, name)
	}
	b.SetPod(podOf("p", "moves", 0, time.Time{}))
	for i, step := range []struct {
		change     func()
		west, east bool // whether a pod fits there
	}{
		{func() {}, true, true},
		{func() { node("moves", "") }, true, true},
		{func() { node("moves", "west") }, false, true},
		{func() { node("moves", "east") }, true, false},
		{func() { b.DeletePod("p") }, true, true},
		{func() { b.SetPod(podOf("p", "moves", 0, time.Time{})) }, true, false},
		{func() { b.DeleteNode("moves") }, true, true},
		{func() { node("new", ""); node("moves", "west") }, false, true},
	} {
		step.change()
		view := b.View()
		cycle := policytest.Prepare[policy.Filter](t, p, podOf("q", "", 0, time.Time{}), view)
		west, east := cycle.Filter(view.Node("west")), cycle.Filter(view.Node("east"))
		if west.Fits() != step.west || east.Fits() != step.east {
			t.Errorf("step %d: the verdicts are %+v on west and %+v on east", i, west, east)
		}
	}
}

func TestExplain(t *testing.T) {
	p := policytest.Build(t, remoteclusters.Type(), `{clusterLabel: cluster, clusters: [{name: west, signal: west, weight: 2}, {name: east, signal: east, weight: 4}, {name: north, signal: north}]}`)
	view := policytest.View(policytest.Nodes(`
- metadata: {name: west, labels: {cluster: west}}
- metadata: {name: east, labels: {cluster: east}}
- metadata: {name: south, labels: {cluster: south}}
- metadata: {name: home}
`), []*corev1.Pod{podOf("new", "west", 1500, policytest.Now)}, policytest.Signals(`
west: {cpu/total: 16, cpu/free: 10, cpu/largest: 4, pods/total: 100, pods/free: 90}
east: {pods/free: {number: 3, stale: true, at: "2026-01-01T11:00:00Z"}}
`))
	cycle := policytest.Prepare[policy.Explainer](t, p, podOf("asks", "", 500, time.Time{}), view)
	for node, want := range map[string][]string{
		"": {
			"cluster east: unknown (signal east is stale for pods/free, 3 at 2026-01-01T11:00:00Z)",
			"cluster north: unknown (signal north has no value for pods/free)",
		},
		"home":  nil,
		"east":  {"cluster east: unknown (signal east is stale for pods/free, 3 at 2026-01-01T11:00:00Z)"},
		"south": {`cluster: "south" is not configured (label cluster)`},
		"west": {
			"cluster west: as of 2026-01-01T12:00:00Z; pods bound to it since 2026-01-01T11:59:50Z: 1",
			"cpu: 10 free of 16 - 1500m for these pods = 8500m, at most 4 on one node; the pod requests 500m",
			"pods: 90 free of 100 - 1 for these pods = 89; the pod requests 1",
			"score: by 50% of the cluster's cpu left with the pod; weight 2 of at most 4",
		},
	} {
		if got := cycle.Explain(view.Node(node)); !slices.Equal(got, want) {
			t.Errorf("%q: got\n%s\nwant\n%s", node, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestSignals(t *testing.T) {
	p := policytest.Build(t, remoteclusters.Type(), `{clusterLabel: cluster, clusters: [{name: west, signal: a}, {name: east, signal: b}]}`)
	want := []policy.Signal{{Field: "clusters[0].signal", Name: "a", About: policy.AboutKeys}, {Field: "clusters[1].signal", Name: "b", About: policy.AboutKeys}}
	if got := p.(policy.InputReader).Inputs().Signals; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// BenchmarkRemoteClusters has 5,000 nodes, of which ten represent clusters, with 500 pods each.
func BenchmarkRemoteClusters(b *testing.B) {
	var builder snapshot.Builder
	var config, signals strings.Builder
	config.WriteString("clusterLabel: cluster\nclusters:\n")
	for i := range 10 {
		name := fmt.Sprint("cluster-", i)
		fmt.Fprintf(&config, "- {name: %s, signal: %s}\n", name, name)
		fmt.Fprintf(&signals, "%s: {cpu/total: 4000, cpu/free: 1000, cpu/largest: 60, pods/total: 9000, pods/free: 900, pods/largest: 90}\n", name)
		builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"cluster": name}}})
		for j := range 500 {
			builder.SetPod(podOf(fmt.Sprint(name, "-", j), name, 100, policytest.Now.Add(-time.Duration(j)*time.Second)))
		}
	}
	for i := range 4990 {
		builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{"kubernetes.io/os": "linux"}}})
	}
	for _, column := range policytest.Signals(signals.String()) {
		builder.SetSignal(column)
	}
	policytest.Benchmark(b, policytest.Build(b, remoteclusters.Type(), config.String()), podOf("new", "", 500, time.Time{}), builder.View())
}
