package cluster_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// What a large cluster has with everything that Outboard keeps, each as large as it may be.
const (
	memoryGPUs   = 8      // of a node
	memorySize   = 16     // of each GPU
	memoryWaits  = 10_000 // pods in the queue of requeuing, which has no more
	memoryValues = 20_000 // of a signal
)

// everything returns a part of a configuration that reads all of it.
func everything(b *testing.B) string {
	values := make(map[string]int, memoryValues)
	for i := range memoryValues {
		values[fmt.Sprintf("%01024d", i)] = i // keys of the maximum length
	}
	document, err := json.Marshal(values)
	if err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf(`
signals:
- {name: prices, file: {path: %q, about: Keys}}
profiles:
- policies:
  - {type: ImageLocality}
  - {type: GPUMemory}
`, write(b, "prices.json", string(document)))
}

func addGPUs(node *corev1.Node) {
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list["aliyun.com/gpu-count"] = *resource.NewQuantity(memoryGPUs, resource.DecimalSI)
		list["aliyun.com/gpu-mem"] = *resource.NewQuantity(memoryGPUs*memorySize, resource.DecimalSI)
	}
}

// requestGPU makes a pending pod request more memory than a GPU has, and a pod on a node less.
func requestGPU(pod *corev1.Pod) {
	amount := int64(memorySize + 1)
	if pod.Spec.NodeName != "" {
		amount = 2
	}
	for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		list["aliyun.com/gpu-mem"] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// sendBudgets sends as many budgets in each namespace as Outboard keeps, each as large as it keeps them.
func sendBudgets(send func(watch.EventType, k8sruntime.Object)) {
	for namespace := range 20 {
		for i := range 64 {
			in := metav1.LabelSelectorRequirement{Key: "app.kubernetes.io/name", Operator: metav1.LabelSelectorOpNotIn}
			for k := range 195 {
				in.Values = append(in.Values, fmt.Sprintf("%063d", k))
			}
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", namespace), Name: fmt.Sprint("budget-", i), UID: types.UID(fmt.Sprint(namespace, "-", i))}}
			budget.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}
			send(watch.Added, budget)
		}
	}
}

// sendConfigMaps sends the ConfigMap of each node with its unhealthy GPUs.
func sendConfigMaps(send func(watch.EventType, k8sruntime.Object)) {
	for i := range memoryNodes {
		name := "unhealthy-gpu-" + cluster.ExampleNode(i).Name
		text := strings.Repeat(fmt.Sprint(memoryGPUs+i)+",", 15<<10/5)
		send(watch.Added, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID(name)}, Data: map[string]string{"gpus": text}})
	}
}

// serveLedgers serves a watch of the ledger of each node, with an allocation for each pod there, with 4 KiB of annotations.
func serveLedgers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	events := json.NewEncoder(w)
	send := func(kind string, o *ledger.Object) {
		o.APIVersion, o.Kind = ledger.GroupVersion.String(), ledger.Kind.Kind
		_ = events.Encode(map[string]any{"type": kind, "object": o}) // the watcher may be gone
	}
	if r.URL.Query().Get("sendInitialEvents") != "" {
		byNode := map[string]*ledger.Object{}
		for i := 1; i < memoryPods; i += 2 { // those that are not pending
			addAllocation(byNode, podOf(i))
		}
		for _, o := range byNode {
			send("ADDED", o)
		}
		send("BOOKMARK", &ledger.Object{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func addAllocation(byNode map[string]*ledger.Object, pod *corev1.Pod) {
	o := byNode[pod.Spec.NodeName]
	if o == nil {
		key := snapshot.LedgerKey{Resource: "aliyun.com/gpu-mem", Node: pod.Spec.NodeName}
		o = &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name(key), UID: types.UID("ledger-" + key.Node), ResourceVersion: "1"}, Spec: snapshot.Ledger{Resource: key.Resource, Node: key.Node}}
		for i := range memoryGPUs {
			o.Spec.Units = append(o.Spec.Units, snapshot.LedgerUnit{Name: fmt.Sprint(i), Capacity: memorySize})
		}
		byNode[key.Node] = o
	}
	at := time.Unix(1_700_000_000+int64(len(o.Spec.Pods)), 0).UTC()
	unit := &o.Spec.Units[len(o.Spec.Pods)%memoryGPUs]
	unit.Allocations = append(unit.Allocations, snapshot.LedgerAllocation{Pod: pod.UID, Amount: 2})
	o.Spec.LastAt = at
	o.Spec.Pods = append(o.Spec.Pods, snapshot.LedgerPod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, At: at, Token: "token",
		Annotations: map[string]string{"ALIYUN_COM_GPU_MEM_IDX": unit.Name, "scheduler.framework.gpushare.allocation": pod.Name + strings.Repeat("x", 4<<10-len(pod.Name))},
	})
}

// fillQueue calls filter for pending pods with the names of the last nodes, which reject the pods. The queue takes as much with all names.
func fillQueue(b *testing.B, address string) {
	var names []string
	for i := range 20 {
		names = append(names, cluster.ExampleNode(memoryNodes-1-i).Name)
	}
	list, err := json.Marshal(names)
	if err != nil {
		b.Fatal(err)
	}
	for i := range memoryWaits {
		pod := podOf(2 * i)
		pod.Spec.NodeName, pod.ManagedFields = "", nil
		requestGPU(pod)
		encoded, err := json.Marshal(pod)
		if err != nil {
			b.Fatal(err)
		}
		body := fmt.Sprintf(`{"Pod":%s,"NodeNames":%s}`, encoded, list)
		response, err := http.Post(address+"/filter", "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(text), `"NodeNames":[]`) {
			b.Fatalf("%v: %.300s", err, text)
		}
	}
}
