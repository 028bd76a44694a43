package gpumemory_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const gpuMem, gpuCount = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"

var unhealthyGPUs = snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}

func build(t policytest.T, config string) policy.Policy {
	t.Helper()
	return policytest.Build(t, gpumemory.Type(), config)
}

// gpuNode has a number of GPUs of one size, as the device plugin reports them.
func gpuNode(name string, count, size int64) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Capacity: list(count*size, count)},
	}
}

// gpuPod requests memory and, if not 0, a number of GPUs, in one container.
func gpuPod(name string, memory, count int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list(memory, count)}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func list(memory, count int64) corev1.ResourceList {
	l := corev1.ResourceList{}
	if memory != 0 {
		l[gpuMem] = *resource.NewQuantity(memory, resource.DecimalSI)
	}
	if count != 0 {
		l[gpuCount] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return l
}

// placed is a running pod on node n that has the GPU with the index, with the annotations that the
// gpushare extender and device plugin write.
func placed(name string, memory int64, index string) *corev1.Pod {
	pod := gpuPod(name, memory, 0)
	pod.Spec.NodeName = "n"
	pod.Status.Phase = corev1.PodRunning
	pod.Annotations = map[string]string{
		"ALIYUN_COM_GPU_MEM_IDX":         index,
		"ALIYUN_COM_GPU_MEM_DEV":         "16",
		"ALIYUN_COM_GPU_MEM_POD":         strconv.FormatInt(memory, 10),
		"ALIYUN_COM_GPU_MEM_ASSIGNED":    "true",
		"ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
	}
	return pod
}

// world is what the view shows of node n.
type world struct {
	node   *corev1.Node
	pods   []*corev1.Pod
	ledger *snapshot.Ledger
	gpus   string // the unhealthy GPUs
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
	b.SetConfigMap(unhealthyGPUs, w.node.Name, map[string]string{"gpus": w.gpus})
	return b.View().Node(w.node.Name)
}

func filter(t policytest.T, p policy.Policy, pod *corev1.Pod, n *snapshot.Node) policy.Verdict {
	t.Helper()
	return policytest.Prepare[policy.Filter](t, p, pod, new(snapshot.View)).Filter(n)
}

// start is the time of a ledger's first allocation.
var start = time.Unix(1_700_000_000, 123)

// reserve requests an allocation of the pod in the current world.
func (w *world) reserve(p policy.Policy, pod *corev1.Pod) (policy.Allocation, policy.Verdict) {
	if w.ledger == nil {
		keys, _ := p.(policy.Reserver).Ledgers(pod, w.snapshot())
		w.ledger = &snapshot.Ledger{Resource: keys[0].Resource, Node: w.node.Name, LastAt: start}
	}
	return p.(policy.Reserver).Reserve(policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.LastAt.Add(time.Nanosecond)})
}

// allocation makes the pod's allocation, and returns its annotations.
func (w *world) allocation(t testing.TB, p policy.Policy, pod *corev1.Pod) map[string]string {
	t.Helper()
	allocation, verdict := w.reserve(p, pod)
	if !verdict.Fits() {
		t.Fatalf("no allocation for %s: %s", pod.Name, policytest.Says(verdict))
	}
	w.write(pod, allocation)
	return allocation.Annotations
}

// write adds the allocation to the ledger as its keeper does.
func (w *world) write(pod *corev1.Pod, allocation policy.Allocation) {
	chosen := func(*snapshot.Ledger, time.Time) (policy.Allocation, error) { return allocation, nil }
	holder := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: w.node.Name}
	next, _, err := ledger.Allocate(*w.ledger, holder, chosen, w.ledger.LastAt.Add(time.Nanosecond))
	if err != nil {
		panic(err)
	}
	w.ledger = &next
}

// bind puts a pod with an allocation on the node.
func (w *world) bind(pod *corev1.Pod) *corev1.Pod {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = w.node.Name
	bound.Annotations = w.ledger.Pod(pod.UID).Annotations
	w.pods = append(w.pods, bound)
	return bound
}

// usage is used/capacity of each GPU.
func usage(n *snapshot.Node, config gpumemory.Config) string {
	text := ""
	for _, d := range gpumemory.GPUs(config, n) {
		text += fmt.Sprintf("%d:%d/%d ", d.Index, d.Used, d.Capacity)
	}
	return text
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
