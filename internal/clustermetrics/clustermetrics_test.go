package clustermetrics_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/clustermetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/snapshot"
)

const (
	memory   = "aliyun.com/gpu-mem"
	perNode  = 64 // of memory, on 4 GPUs
	profiles = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- schedulerNames: [ours]
  policies: [{type: GPUMemory}]
`
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster in memory, with the Surveyor that looks at it.
type world struct {
	*clustermetrics.Surveyor
	builder  snapshot.Builder
	pods     map[types.UID]*corev1.Pod
	ledgers  map[string]*ledger.Object
	config   *config.Config
	rejected map[types.UID]string // POLICY.REASON
	registry *prometheus.Registry
	now      time.Time
}

func (w *world) View() *snapshot.View { return w.builder.View() }
func (w *world) Pods() (all []*corev1.Pod) {
	for pod := range maps.Values(w.pods) {
		all = append(all, pod)
	}
	return all
}
func (w *world) Ledgers() (all []*ledger.Object) {
	for o := range maps.Values(w.ledgers) {
		all = append(all, o)
	}
	return all
}

func newWorld(t testing.TB, text string) *world {
	t.Helper()
	w := &world{pods: map[types.UID]*corev1.Pod{}, ledgers: map[string]*ledger.Object{}, rejected: map[types.UID]string{}, registry: prometheus.NewRegistry(), now: now}
	w.configure(t, text)
	var err error
	w.Surveyor, err = clustermetrics.New(clustermetrics.Options{
		Cluster: w, Registerer: w.registry, Now: func() time.Time { return w.now },
		Source: pending.Source{Config: func() *config.Config { return w.config }, Places: (*config.Profile).Places, Rejected: func(_ string, uid types.UID) (requeue.Status, bool) {
			policy, code, ok := strings.Cut(w.rejected[uid], ".")
			return requeue.Status{Rejection: decision.Rejection{Policy: policy, Code: code, Nodes: 2}}, ok
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) configure(t testing.TB, text string) {
	t.Helper()
	c, err := config.Parse("test", []byte(text), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	w.config = c
}

func (w *world) node(name string) {
	list := corev1.ResourceList{memory: resource.MustParse(fmt.Sprint(perNode)), "aliyun.com/gpu-count": resource.MustParse("4")}
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: list, Allocatable: list}})
}

// pod adds or replaces a pod of scheduler "ours" that is a minute old.
func (w *world) pod(name, node string, amount int, change ...func(*corev1.Pod)) *corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: now.Add(-time.Minute)}},
		Spec: corev1.PodSpec{NodeName: node, SchedulerName: "ours", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{memory: resource.MustParse(fmt.Sprint(amount))},
		}}}},
	}
	for _, f := range change {
		f(pod)
	}
	w.pods[pod.UID] = pod
	w.builder.SetPod(pod)
	return pod
}

// allocation gives the pod an allocation on a GPU of its node, and the annotations of it.
func (w *world) allocation(pod *corev1.Pod, node string, gpu int, amount int64) {
	key := snapshot.LedgerKey{Resource: memory, Node: node}
	next := snapshot.Ledger{Resource: memory, Node: node}
	if o := w.ledgers[ledger.Name(key)]; o != nil {
		next.Pods = append(next.Pods, o.Spec.Pods...)
		next.Units = append(next.Units, o.Spec.Units...)
	} else {
		for i := range 4 {
			next.Units = append(next.Units, snapshot.LedgerUnit{Name: fmt.Sprint(i), Capacity: perNode / 4})
		}
	}
	next.Pods = append(next.Pods, snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, At: now, Annotations: pod.Annotations})
	allocations := &next.Units[gpu].Allocations
	*allocations = append(append([]snapshot.LedgerAllocation(nil), *allocations...), snapshot.LedgerAllocation{Pod: pod.UID, Amount: amount})
	w.ledgers[ledger.Name(key)] = &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name(key)}, Spec: next}
	w.builder.SetLedger(&next)
}

func (w *world) delete(name string) {
	delete(w.pods, types.UID(name))
	w.builder.DeletePod(types.UID(name))
}

// value returns the value of the metric with these label values; NaN if there is none.
func (w *world) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if family.GetName() == name && strings.Join(values, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return math.NaN()
}

func (w *world) expect(t testing.TB, step string, want float64, name string, labels ...string) {
	t.Helper()
	if got := w.value(t, name, labels...); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
		t.Errorf("%s: %s %v is %v, want %v", step, name, labels, got, want)
	}
}

func condition(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason}}
	}
}

func gated(pod *corev1.Pod) {
	condition(corev1.PodReasonSchedulingGated)(pod)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}}
}

func TestWaitingPods(t *testing.T) {
	w := newWorld(t, profiles)
	w.node("n")
	unschedulable := condition(corev1.PodReasonUnschedulable)
	w.pod("a/bound", "n", 1)
	w.pod("a/of-another-scheduler", "", 1, func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
	w.pod("a/ending", "", 1, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })
	w.pod("a/without-gpu", "", 1, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil })
	w.pod("a/untried", "", 1)
	w.pod("a/failed", "", 1, condition(corev1.PodReasonSchedulerError))
	w.pod("a/elsewhere", "", 1, unschedulable)
	w.pod("a/gated", "", 1, gated)
	for i, age := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour} {
		pod := w.pod(fmt.Sprint("a/rejected-", i), "", 1, unschedulable, func(p *corev1.Pod) { p.CreationTimestamp.Time = now.Add(-age) })
		if i < 2 { // the latest call about the other passed a node
			w.rejected[pod.UID] = "GPUMemory.InsufficientMemory"
		}
	}
	w.Pass()
	const want = `
# HELP outboard_waiting_pods Pods that wait for a node, by reason: POLICY.REASON of the most nodes if Outboard rejected them all, or gated, not_tried, scheduler_error, other_scheduler, policy_error or other.
# TYPE outboard_waiting_pods gauge
outboard_waiting_pods{reason="GPUMemory.InsufficientMemory"} 2
outboard_waiting_pods{reason="gated"} 1
outboard_waiting_pods{reason="not_tried"} 2
outboard_waiting_pods{reason="other"} 2
outboard_waiting_pods{reason="scheduler_error"} 1
# HELP outboard_waiting_pods_longest_seconds How long the pod waits that waits longest.
# TYPE outboard_waiting_pods_longest_seconds gauge
outboard_waiting_pods_longest_seconds{reason="GPUMemory.InsufficientMemory"} 7200
outboard_waiting_pods_longest_seconds{reason="gated"} 60
outboard_waiting_pods_longest_seconds{reason="not_tried"} 60
outboard_waiting_pods_longest_seconds{reason="other"} 10800
outboard_waiting_pods_longest_seconds{reason="scheduler_error"} 60
`
	if err := testutil.GatherAndCompare(w.registry, strings.NewReader(want), "outboard_waiting_pods", "outboard_waiting_pods_longest_seconds"); err != nil {
		t.Error(err)
	}
}

// A pod begins to wait when its gates are removed.
func TestPodsWithGatesDoNotWait(t *testing.T) {
	w := newWorld(t, profiles)
	w.pod("a/p", "", 1, gated)
	w.now = now.Add(10 * time.Hour)
	w.Pass()
	w.pod("a/p", "", 1, condition(corev1.PodReasonUnschedulable))
	w.now = now.Add(11 * time.Hour)
	w.Pass()
	w.now = now.Add(12 * time.Hour)
	w.Pass()
	w.expect(t, "two hours later", 7200, "outboard_waiting_pods_longest_seconds", "other")
	w.expect(t, "two hours later", math.NaN(), "outboard_waiting_pods", "gated")
}

// Pods count as bound recently whatever bound them, if Outboard would have been called for them.
func TestRecentlyBoundPods(t *testing.T) {
	w := newWorld(t, profiles)
	w.node("n")
	bound := func(age time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now.Add(-age)}}}
		}
	}
	of := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}
		}
	}
	w.pod("a/new", "n", 1, bound(time.Minute), of("ReplicaSet"))
	w.pod("a/newest", "n", 1, bound(0))
	w.pod("a/old", "n", 1, bound(16*time.Minute))
	w.pod("a/of-a-daemonset", "n", 1, bound(time.Minute), of("DaemonSet"))
	w.pod("a/static", "n", 1, bound(time.Minute), of("Node"))
	w.pod("a/without-gpu", "n", 1, bound(time.Minute), func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil })
	w.pod("a/of-another-scheduler", "n", 1, bound(time.Minute), func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
	w.pod("a/waits", "", 1, condition(corev1.PodReasonUnschedulable))
	w.Pass()
	w.expect(t, "two", 2, "outboard_recently_bound_pods")
}

// Pods that need an allocation and are bound without one are a metric after two passes. Only those
// that were bound since the start count as new.
func TestPodsWithoutAllocations(t *testing.T) {
	w := newWorld(t, profiles)
	w.node("n")
	step := func(name string, unconfirmed bool, pods, bindings float64) {
		t.Helper()
		if got := w.Pass(); got != unconfirmed {
			t.Errorf("%s: unconfirmed is %v", name, got)
		}
		w.expect(t, name, pods, "outboard_unallocated_pods", memory)
		w.expect(t, name, bindings, "outboard_unallocated_bindings_total")
	}
	given := func(p *corev1.Pod) { p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0"} }
	w.allocation(w.pod("a/allocated", "n", 1, given), "n", 0, 1)
	w.pod("a/waits", "", 1)
	w.pod("a/without-gpu", "n", 1, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil })
	w.pod("a/earlier", "n", 1, given)
	step("at the start", true, math.NaN(), 0)
	step("the earlier one is confirmed", false, 1, 0)
	late := w.pod("a/late", "n", 1, given)
	w.pod("a/past", "n", 1, given, func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
	step("two new ones", true, 1, 0)
	w.allocation(late, "n", 0, 1) // the watch of ledgers was behind
	step("one has an allocation", false, 2, 1)
	step("nothing is new", false, 2, 1)
	w.configure(t, profiles+"  shortlist: 5\n")
	w.pod("a/then", "n", 1, given)
	step("with another configuration", true, 2, 1)
	step("confirmed", false, 3, 1)
	w.delete("past")
	w.delete("then")
	w.delete("earlier")
	step("gone", false, 0, 1)
}

// What an audit finds is a metric after two passes, and the audit knows the sizes of GPUs from the
// policy.
func TestAudit(t *testing.T) {
	w := newWorld(t, profiles)
	w.node("n")
	w.allocation(w.pod("a/p", "n", 1, func(p *corev1.Pod) { p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "3"} }), "n", 3, 1)
	w.Pass()
	w.Pass()
	for _, kind := range []string{"overallocated", "overcommitted", "leaked", "unannotated", "unallocated"} {
		w.expect(t, "nothing is wrong", 0, "outboard_audit_findings", kind)
	}
	w.delete("p")
	if !w.Pass() {
		t.Error("a new finding needs no other pass")
	}
	w.expect(t, "found once", 0, "outboard_audit_findings", "leaked")
	w.Pass()
	w.expect(t, "found twice", 1, "outboard_audit_findings", "leaked")

	w = newWorld(t, strings.Replace(profiles, "GPUMemory", "GPUMemory, config: {sizesFrom: {label: sizes}}", 1))
	w.node("n")
	node := w.View().Node("n").Object.DeepCopy()
	node.Labels = map[string]string{"sizes": "40_24_24_24"}
	w.builder.SetNode(node)
	w.pod("a/large", "n", 40, func(p *corev1.Pod) { p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0"} })
	w.Pass()
	w.Pass()
	w.expect(t, "a GPU of 40", 0, "outboard_audit_findings", "overallocated")
	w.expect(t, "a pod of another tool", 1, "outboard_audit_findings", "unallocated")

	w = newWorld(t, strings.Replace(profiles, "GPUMemory", "GPUMemory, config: {simulatedGPUs: {count: 4, memory: 16}}", 1))
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	w.allocation(w.pod("a/p", "n", 12, func(p *corev1.Pod) { p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "3"} }), "n", 3, 12)
	w.Pass()
	w.Pass()
	for _, kind := range []string{"overallocated", "overcommitted", "unaudited"} {
		w.expect(t, "simulated GPUs", 0, "outboard_audit_findings", kind)
	}
}

func TestResources(t *testing.T) {
	w := newWorld(t, profiles)
	w.node("n")
	w.node("m")
	w.allocation(w.pod("a/p", "n", 12), "n", 0, 12)
	w.allocation(w.pod("b/q", "n", 8), "n", 1, 8)
	w.pod("b/of-another-tool", "m", 5)
	w.pod("c/waits", "", 5)
	w.Pass()
	w.expect(t, "two nodes", 2*perNode, "outboard_resource_capacity", memory)
	w.expect(t, "a", 12, "outboard_resource_allocated", "a", memory)
	w.expect(t, "b", 13, "outboard_resource_allocated", "b", memory)
	w.expect(t, "c", math.NaN(), "outboard_resource_allocated", "c", memory)
	// GPU 0 has 4 left, too little for both allocations; GPU 1 has 8 left, too little for one of
	// them.
	w.expect(t, "fragments", 4+8./2, "outboard_resource_unusable", memory)

	pool := &snapshot.Ledger{Resource: "licenses/x", Units: []snapshot.LedgerUnit{{Name: "seats", Capacity: 10, Allocations: []snapshot.LedgerAllocation{{Pod: "p", Amount: 3}}}},
		Pods: []snapshot.LedgerPod{{UID: "p", Namespace: "a", Name: "p"}}}
	w.builder.SetLedger(pool)
	for i := range 30 {
		w.pod(fmt.Sprintf("team-%02d/team-%02d", i, i), "m", i+1)
	}
	w.Pass()
	w.expect(t, "a pool", 10, "outboard_resource_capacity", "licenses/x")
	w.expect(t, "a pool", 3, "outboard_resource_allocated", "a", "licenses/x")
	w.expect(t, "the largest team", 30, "outboard_resource_allocated", "team-29", memory)
	w.expect(t, "a small team", math.NaN(), "outboard_resource_allocated", "team-00", memory)
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, sum := 0, 0.
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "outboard_resource_allocated" && m.GetLabel()[1].GetValue() == memory {
				series++
				sum += m.GetGauge().GetValue()
			}
		}
	}
	if series != 21 || sum != 12+13+30*31/2 {
		t.Errorf("%d series with the sum %v", series, sum)
	}
}

// What is unusable is what brute force finds: for each allocation, the sum of what is free on units
// where the allocation does not fit, and would if the unit were empty.
func TestUnusableIsWhatBruteForceFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		w := newWorld(t, profiles)
		left, amounts := []int64{}, []int64{}
		for n := range 1 + random.IntN(5) {
			node := fmt.Sprint("n", n)
			w.node(node)
			for gpu := range 4 {
				free := int64(perNode / 4)
				for p := 0; p < 3 && free > 0; p++ {
					amount := 1 + random.Int64N(free)
					w.allocation(w.pod(fmt.Sprintf("a/%d-%d-%d", n, gpu, p), node, int(amount)), node, gpu, amount)
					free -= amount
					amounts = append(amounts, amount)
				}
				left = append(left, free)
			}
		}
		want := 0.
		for _, amount := range amounts {
			for _, free := range left {
				if amount > free {
					want += float64(free) / float64(len(amounts))
				}
			}
		}
		w.Pass()
		if got := w.value(t, "outboard_resource_unusable", memory); math.Abs(got-want) > 1e-6 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// A pass over a large cluster: 5,000 nodes with 4 GPUs each, 20,000 pods with allocations, 5,000
// with other resources and 5,000 that wait.
func BenchmarkPass(b *testing.B) {
	w := newWorld(b, profiles)
	for i := range 5000 {
		node := fmt.Sprint("node-", i)
		w.node(node)
		for gpu := range 4 {
			pod := w.pod(fmt.Sprintf("team-%d/p-%d-%d", i%50, i, gpu), node, 8, func(p *corev1.Pod) {
				p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": fmt.Sprint(gpu), "ALIYUN_COM_GPU_MEM_POD": "8", "ALIYUN_COM_GPU_MEM_DEV": "16"}
			})
			w.allocation(pod, node, gpu, 8)
		}
		w.pod(fmt.Sprint("web/web-", i), node, 0, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil })
		w.pod(fmt.Sprint("web/waits-", i), "", 8, condition(corev1.PodReasonUnschedulable))
	}
	w.View()
	for b.Loop() {
		w.Pass()
	}
}

// Whoever may create ledgers chooses the resources in them. There are no more than a hundred in the
// metrics.
func TestResourcesAreBounded(t *testing.T) {
	w := newWorld(t, profiles)
	w.builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	for i := range 200 {
		w.builder.SetLedger(&snapshot.Ledger{Resource: fmt.Sprint("example.com/r", i), Node: "a", Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 1}}})
	}
	w.node("b")
	w.Pass()
	if series, err := testutil.GatherAndCount(w.registry, "outboard_resource_capacity"); err != nil || series != 100 {
		t.Errorf("%d series, %v", series, err)
	}
}
