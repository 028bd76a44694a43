package devices_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const (
	fpga      = "example.com/fpga"
	fpgaKey   = "outboard.dev/example.com.fpga" // the annotation with a pod's units
	unitsKey  = "example.com/units"
	groupsKey = "example.com/groups"
)

// The configurations of most tests.
const (
	counted  = `{resource: example.com/fpga}`
	numbered = `{resource: example.com/fpga, units: Numbered}`
	named    = `{resource: example.com/fpga, units: Named, unitsFrom: {annotation: example.com/units}}`
	shared   = `{resource: example.com/fpga, units: Named, unitsFrom: {annotation: example.com/units}, allocationMode: Shares, sharesPerUnit: 4}`
	grouped  = `{resource: example.com/fpga, units: Named, unitsFrom: {annotation: example.com/units}, groupsFrom: {annotation: example.com/groups}, sameGroup: Required}`
)

// counting is node n with an amount in status.allocatable.
func counting(n int64) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: list(n)}}
}

// naming is node n with units and groups, "" for none.
func naming(units, groups string) *corev1.Node {
	told := map[string]string{unitsKey: units, groupsKey: groups}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: told}}
}

func list(n int64) corev1.ResourceList {
	return corev1.ResourceList{fpga: *resource.NewQuantity(n, resource.DecimalSI)}
}

// asking is a pod that requests n in one container.
func asking(name string, n int64) *corev1.Pod {
	main := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Limits: list(n)}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{main}},
	}
}

// bound is a pod on node n without an allocation. With units "-" it also has no annotation.
func bound(name string, n int64, units string) *corev1.Pod {
	pod := asking(name, n)
	pod.Spec.NodeName = "n"
	if units != "-" {
		pod.Annotations = map[string]string{fpgaKey: units}
	}
	return pod
}

// world is what the view shows of node n.
type world struct {
	node   *corev1.Node
	pods   []*corev1.Pod
	ledger *snapshot.Ledger
}

func (w *world) snapshot() *snapshot.Node {
	var b snapshot.Builder
	b.SetNode(w.node)
	for _, pod := range w.pods {
		b.SetPod(pod)
	}
	if w.ledger != nil {
		b.SetLedger(w.ledger)
	}
	return b.View().Node(w.node.Name)
}

// reserve requests an allocation of the pod in the current world.
func (w *world) reserve(p policy.Policy, pod *corev1.Pod) (policy.Allocation, policy.Verdict) {
	if w.ledger == nil {
		w.ledger = &snapshot.Ledger{Resource: fpga, Node: "n"}
	}
	ask := policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.LastAt.Add(time.Second)}
	return p.(policy.Reserver).Reserve(ask)
}

// told returns the annotation that a pod would get, or the reason for a rejection.
func (w *world) told(p policy.Policy, pod *corev1.Pod) string {
	allocation, verdict := w.reserve(p, pod)
	if !verdict.Fits() {
		return policytest.Says(verdict)
	}
	return allocation.Annotations[fpgaKey]
}

// allocation makes the pod's allocation.
func (w *world) allocation(t testing.TB, p policy.Policy, pod *corev1.Pod) policy.Allocation {
	t.Helper()
	allocation, verdict := w.reserve(p, pod)
	if !verdict.Fits() {
		t.Fatalf("no allocation for %s: %s", pod.Name, policytest.Says(verdict))
	}
	if err := w.write(pod, allocation); err != nil {
		t.Fatal(err)
	}
	return allocation
}

// write adds the allocation to the ledger as its keeper does, and fails on an allocation that the keeper
// rejects.
func (w *world) write(pod *corev1.Pod, allocation policy.Allocation) error {
	chosen := func(*snapshot.Ledger, time.Time) (policy.Allocation, error) { return allocation, nil }
	holder := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: "n"}
	next, _, err := ledger.Allocate(*w.ledger, holder, chosen, w.ledger.LastAt.Add(time.Second))
	if err == nil {
		w.ledger = &next
	}
	return err
}

// bind puts a pod with an allocation on the node.
func (w *world) bind(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = "n"
	pod.Annotations = w.ledger.Pod(pod.UID).Annotations
	w.pods = append(w.pods, pod)
	return pod
}

type cycle interface {
	policy.Filter
	policy.Score
}

func prepare(t policytest.T, p policy.Policy, pod *corev1.Pod) cycle {
	t.Helper()
	return policytest.Prepare[cycle](t, p, pod, new(snapshot.View))
}

// filter returns the verdict for the current world.
func (w *world) filter(t testing.TB, p policy.Policy, pod *corev1.Pod) string {
	t.Helper()
	return policytest.Says(prepare(t, p, pod).Filter(w.snapshot()))
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
