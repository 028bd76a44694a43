package standard_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// indexed are the configurations whose pods share results, by signature.
var indexed = []struct{ kind, config string }{
	{"GPUMemory", `{multiGPU: true}`},
	{"GPUMemory", `{scoringStrategy: {type: LeastWaste}}`},
	{"GPUMemory", `{multiContainer: true, gpuSelection: Spread, scoringStrategy: {type: Spread}}`},
	{"Devices", `{resource: example.com/nic}`},
	{"Devices", `{resource: example.com/nic, allocationMode: Shares, units: Numbered, sharesPerUnit: 4, scoringStrategy: {type: Spread}}`},
	{"Rules", `{whenStale: Neutral,
		filters: [{name: room, expression: 'usage.free["cpu"].compareTo(podRequests["cpu"]) >= 0'}, {name: tier, expression: '!("tier" in pod.metadata.labels) || pod.metadata.labels["tier"] == node.metadata.?labels[?"tier"].orValue("")'}],
		scores: [{name: few, expression: '100 - 9 * usage.pods'}, {name: cool, expression: '100.0 - signals["heat"] - double(size(pod.metadata.?labels.orValue({})))'}]}`},
	{"Rules", `{scores: [{name: tolerates, expression: 'pod.spec.?tolerations.orValue([]).exists(t, t.key == node.metadata.?labels[?"tier"].orValue("")) ? 80 : 20'}]}`},
	{"HardwareHealth", `{tolerationAnnotation: tolerates, rules: [
		{name: hot, signal: {name: heat, above: 60}, penalty: 30}, {name: broken, nodeLabel: {key: broken}, reject: true}, {name: gpu, resources: [aliyun.com/gpu-mem], signal: {name: heat, above: 90}, reject: true}]}`},
	{"Utilization", `{cpu: {signal: heat, unit: Percent, max: 95}}`},
	{"Cost", `{prices: [{signal: heat}, {priceFrom: {label: price}}], maxPrice: 80}`},
	{"Cost", `{scoringStrategy: {type: PodCost, sunkCost: true}, prices: [{priceFrom: {label: price}}]}`},
	{"Licenses", `{features: [{name: solver, seats: 9}, {name: cad, seatsPerNode: 2}]}`},
	{"PodLimit", `{max: 6, selector: {}}`},
	{"ImageLocality", `{}`},
}

// unsigned hides from the engine that pods can share results, so that it calls the policy for each node.
type unsigned struct{ policy.Policy }

func (u unsigned) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	cycle, err := u.Policy.Prepare(ctx, pod, view)
	f, filters := cycle.(policy.Filter)
	s, scores := cycle.(policy.Score)
	n, normalizes := cycle.(policy.NormalizeScore)
	switch {
	case filters && normalizes:
		return struct {
			onlyFilter
			onlyScore
			onlyNormalize
		}{onlyFilter{f}, onlyScore{s}, onlyNormalize{n}}, err
	case filters && scores:
		return struct {
			onlyFilter
			onlyScore
		}{onlyFilter{f}, onlyScore{s}}, err
	case normalizes:
		return struct {
			onlyScore
			onlyNormalize
		}{onlyScore{s}, onlyNormalize{n}}, err
	case scores:
		return onlyScore{s}, err
	case filters:
		return onlyFilter{f}, err
	}
	return nil, err
}

type (
	onlyFilter    struct{ of policy.Filter }
	onlyScore     struct{ of policy.Score }
	onlyNormalize struct{ of policy.NormalizeScore }
)

func (o onlyFilter) Filter(n *snapshot.Node) policy.Verdict { return o.of.Filter(n) }
func (o onlyScore) Score(n *snapshot.Node) int64            { return o.of.Score(n) }
func (o onlyNormalize) NormalizeScore(scores []int64)       { o.of.NormalizeScore(scores) }

type unsignedReserver struct {
	unsigned
	policy.Reserver
}

// compared has two engines with the same policies, of which the second has no index and no cache.
type compared struct{ index, plain *engine.Engine }

func compare(t policytest.T, which ...int) compared {
	var with, without []engine.WeightedPolicy
	for _, i := range which {
		kind := standard.Types()[slices.IndexFunc(standard.Types(), func(t policy.Type) bool { return t.Name == indexed[i].kind })]
		p := policytest.Build(t, kind, indexed[i].config)
		m := engine.WeightedPolicy{Name: strconv.Itoa(i), Weight: int64(1 + i%3), Policy: p}
		with = append(with, m)
		m.Policy = unsigned{p}
		if r, ok := p.(policy.Reserver); ok {
			m.Policy = unsignedReserver{unsigned{p}, r}
		}
		without = append(without, m)
	}
	var c compared
	var err error
	if c.index, err = engine.New(engine.Options{Policies: with}); err == nil {
		c.plain, err = engine.New(engine.Options{Policies: without})
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// best returns the best n nodes for the pod by the index. Of equally good ones, those from the first on are better.
func (c compared) best(t policytest.T, view *snapshot.View, nodes []*snapshot.Node, pod *corev1.Pod, n, first int) (result engine.Result) {
	choice := engine.Choice{N: n, First: first, Usable: func(int32) (bool, bool) { return true, false }}
	for _, node := range nodes {
		choice.Rows = append(choice.Rows, int32(node.Row()))
	}
	a, err := c.index.Begin(t.Context(), pod, view)
	if err != nil {
		t.Fatalf("%v", err)
	}
	a.TakeNodeCache()
	defer a.ReturnNodeCache()
	if err := a.Best(t.Context(), choice, &result); err != nil {
		t.Fatalf("%v", err)
	}
	return result
}

// check compares the best n nodes for the pod by the index with those of Filter and Score for all nodes, and returns the best one, or nil.
func (c compared) check(t policytest.T, view *snapshot.View, pod *corev1.Pod, n, first int) *snapshot.Node {
	nodes := slices.Collect(view.All())
	if len(nodes) == 0 {
		return nil
	}
	first %= len(nodes)
	got := c.best(t, view, nodes, pod, n, first)
	var filtered, scored engine.Result
	if err := c.plain.Filter(t.Context(), engine.Request{Pod: pod, View: view, Nodes: nodes}, &filtered); err != nil {
		t.Fatalf("%v", err)
	}
	var fit []*snapshot.Node
	for _, i := range filtered.Kept {
		fit = append(fit, nodes[i])
	}
	if err := c.plain.Score(t.Context(), engine.Request{Pod: pod, View: view, Nodes: fit}, &scored); err != nil {
		t.Fatalf("%v", err)
	}
	ranked := make([]int, len(fit))
	for j := range ranked {
		ranked[j] = j
	}
	behind := func(j int) int { return (int(filtered.Kept[j]) - first + len(nodes)) % len(nodes) }
	slices.SortFunc(ranked, func(a, b int) int {
		return cmp.Or(cmp.Compare(scored.Totals[b], scored.Totals[a]), cmp.Compare(behind(a), behind(b)))
	})
	var want []int32
	for _, j := range ranked[:min(n, len(ranked))] {
		want = append(want, filtered.Kept[j])
	}
	if !slices.Equal(got.Kept, want) || got.Record.Fit != len(fit) {
		t.Fatalf("the best nodes for pod %s are %v of %d, by Filter and Score %v of %d with the totals %v", pod.Name, got.Kept, got.Record.Fit, want, len(fit), scored.Totals)
	}
	for at, top := range got.Record.Top {
		if top.Total != scored.Totals[ranked[at]] {
			t.Fatalf("the total of %s for pod %s is %d, by Filter and Score %d", top.Node, pod.Name, top.Total, scored.Totals[ranked[at]])
		}
	}
	if len(want) == 0 {
		return nil
	}
	return nodes[want[0]]
}

// TestIndexEqualsFilterAndScore places pods in small clusters in which everything changes that the policies read.
func TestIndexEqualsFilterAndScore(t *testing.T) {
	for i := range indexed {
		compare(t, i)
	}
	cases := 0
	rapid.Check(t, func(t *rapid.T) {
		d := clusterDraw{T: t, nodes: rapid.IntRange(1, 24).Draw(t, "nodes")}
		c := compare(t, rapid.SliceOfNDistinct(rapid.IntRange(0, len(indexed)-1), 1, 3, func(i int) string { return indexed[i].kind }).Draw(t, "policies")...)
		for i := range d.nodes {
			d.setNode(i)
		}
		for step := range 30 {
			d.change()
			view := d.builder.View()
			for i := range 4 {
				pod := d.pod(fmt.Sprintf("pod-%d-%d", step, i))
				if d.chance(8) { // one that may hold an allocation, or is on a node
					pod.UID = d.someUID()
				}
				cases++
				best := c.check(t, view, pod, rapid.IntRange(1, 9).Draw(t, "n"), rapid.IntRange(0, 99).Draw(t, "first"))
				if best == nil || i > 0 {
					continue
				}
				planned, _ := c.index.Planned(view, pod, best, time.Unix(int64(step), 0))
				planned = planned.DeepCopy()
				planned.Spec.NodeName = best.Name
				d.builder.SetPod(planned)
				d.uids = append(d.uids, pod.UID)
			}
		}
	})
	t.Logf("%d cases", cases)
}

type clusterDraw struct {
	*rapid.T
	nodes   int
	builder snapshot.Builder
	uids    []types.UID
}

func (d *clusterDraw) chance(percent int) bool {
	return rapid.IntRange(0, 99).Draw(d.T, "chance") < percent
}

func (d *clusterDraw) someUID() types.UID {
	if len(d.uids) == 0 {
		return "nobody"
	}
	return rapid.SampledFrom(d.uids).Draw(d.T, "uid")
}

func (d *clusterDraw) setNode(i int) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", i), UID: types.UID(fmt.Sprint("n", i)), Labels: map[string]string{}}}
	d.some(n.Labels, "tier", "", "a", "b")
	d.some(n.Labels, "broken", "", "", "", "yes")
	d.some(n.Labels, "price", "", "1", "2", "3")
	d.some(n.Labels, "nvidia.com/gpu.product", "T4", "A100")
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("20")}
	if d.chance(80) {
		n.Status.Capacity["aliyun.com/gpu-mem"], n.Status.Capacity["aliyun.com/gpu-count"] = resource.MustParse("32"), rapid.SampledFrom([]resource.Quantity{resource.MustParse("2"), resource.MustParse("4")}).Draw(d.T, "gpus")
	}
	if d.chance(80) {
		n.Status.Capacity["example.com/nic"] = *resource.NewQuantity(int64(rapid.IntRange(0, 8).Draw(d.T, "nics")), resource.DecimalSI)
	}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Images = []corev1.ContainerImage{{Names: []string{rapid.SampledFrom([]string{"app:1", "app:2"}).Draw(d.T, "image")}, SizeBytes: 1 << 30}}
	snapshot.TrimNode(n)
	d.builder.SetNode(n)
}

// some sets the key to one of the values, or leaves it out for "".
func (d *clusterDraw) some(all map[string]string, key string, values ...string) {
	if value := rapid.SampledFrom(values).Draw(d.T, key); value != "" {
		all[key] = value
	}
}

// change changes what some policy reads.
func (d *clusterDraw) change() {
	i := rapid.IntRange(0, d.nodes-1).Draw(d.T, "node")
	name := fmt.Sprintf("n%02d", i)
	switch rapid.IntRange(0, 9).Draw(d.T, "change") {
	case 0:
		d.setNode(i)
	case 1:
		d.builder.DeleteNode(name)
	case 2:
		values := map[string]snapshot.Value{}
		for i := range d.nodes {
			if !d.chance(10) {
				values[fmt.Sprintf("n%02d", i)] = snapshot.Value{Number: float64(rapid.IntRange(0, 99).Draw(d.T, "heat")), At: time.Unix(1, 0), Stale: d.chance(5)}
			}
		}
		d.builder.SetSignal(snapshot.NewSignal("heat", values))
	case 3:
		d.builder.DeletePod(d.someUID())
	case 4, 5:
		uid := d.someUID()
		key := rapid.SampledFrom([]string{"aliyun.com/gpu-mem", "example.com/nic", "licenses/cad", "licenses/solver"}).Draw(d.T, "resource")
		amount := int64(rapid.IntRange(1, 4).Draw(d.T, "amount"))
		l := &snapshot.Ledger{Resource: key, Node: name, Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 16, Allocations: []snapshot.LedgerAllocation{{Pod: uid, Amount: amount}}}},
			Pods: []snapshot.LedgerPod{{UID: uid, Namespace: "default", Name: string(uid), Node: name, At: time.Unix(1, 0)}}}
		if key == "licenses/solver" {
			l.Node, l.Units[0].Name = "", "seats"
		}
		d.builder.SetLedger(l)
	case 6:
		d.builder.SetConfigMap(snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}, name, map[string]string{"gpus": rapid.SampledFrom([]string{"", "0", "1,3"}).Draw(d.T, "unhealthy")})
	case 7:
		pod := d.pod(fmt.Sprint("nominated-", i))
		pod.Status.NominatedNodeName = name
		pod.Spec.Priority = new(int32(rapid.IntRange(-1, 1).Draw(d.T, "priority")))
		d.builder.SetPod(pod)
	case 8:
		d.builder.DeleteLedger(snapshot.LedgerKey{Resource: "aliyun.com/gpu-mem", Node: name})
	}
}

// pod returns one of a few kinds of pods.
func (d *clusterDraw) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	d.some(pod.Labels, "tier", "", "", "a")
	d.some(pod.Labels, "app", "", "x")
	d.some(pod.Annotations, "tolerates", "", "", "hot", "*")
	d.some(pod.Annotations, "outboard.dev/licenses", "", "", "solver", "solver=2,cad", "cad")
	d.some(pod.Annotations, "outboard.dev/gpu-models", "", "", "T4", "A100,V100")
	r := corev1.ResourceList{"cpu": rapid.SampledFrom([]resource.Quantity{resource.MustParse("1"), resource.MustParse("1500m"), resource.MustParse("4")}).Draw(d.T, "cpu"), "memory": resource.MustParse("1Gi")}
	if memory := rapid.IntRange(0, 9).Draw(d.T, "gpu memory"); memory > 0 {
		r["aliyun.com/gpu-mem"] = *resource.NewQuantity(int64(memory), resource.DecimalSI)
	}
	if nics := rapid.IntRange(0, 3).Draw(d.T, "nics"); nics > 0 {
		r["example.com/nic"] = *resource.NewQuantity(int64(nics), resource.DecimalSI)
	}
	if d.chance(25) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(d.T, "tolerated")}}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: rapid.SampledFrom([]string{"app:1", "app:2"}).Draw(d.T, "image"), Resources: corev1.ResourceRequirements{Requests: r, Limits: r}}}
	snapshot.TrimPod(pod)
	return pod
}
