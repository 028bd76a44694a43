package ui_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/snapshot"
)

// The size of the cluster, and how many nodes and pods change between two requests: as many as when 50 pods are bound every second, and
// 50 rejected.
const (
	largeNodes, largeBound, largeWaiting = 5000, 30_000, 10_000
	changedAtOnce                        = 100
)

// largeWorld is a cluster with 8 GPUs of 80 GiB on each node, of which pods hold parts of all sizes.
func largeWorld(b *testing.B) *world {
	w := newWorld(b)
	for i := range largeNodes {
		w.node(nodeName(i), []string{"NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"}[i%2], 8, 80)
	}
	random := rand.New(rand.NewPCG(1, 2))
	yes := true
	for i := range largeBound {
		w.pod(fmt.Sprintf("train-%05d-x7k2p", i), nodeName(i%largeNodes), 1+random.IntN(80), func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: fmt.Sprintf("train-%05d", i/4), Controller: &yes}}
			p.Annotations = map[string]string{"ALIYUN_COM_GPU_MEM_IDX": fmt.Sprint(i / largeNodes)}
			p.Status.Phase = corev1.PodRunning
		})
	}
	for i := range largeNodes {
		w.ledger(i)
	}
	for i := range largeWaiting {
		p := w.pod(fmt.Sprintf("wait-%05d-m4c9q", i), "", 60, func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: fmt.Sprintf("wait-%05d", i/4), Controller: &yes}}
		})
		w.reject(p, i)
	}
	return w
}

func nodeName(i int) string { return fmt.Sprintf("gpu-node-%04d", i) }

// ledger writes the allocations of the pods of a node.
func (w *world) ledger(node int) {
	l := &snapshot.Ledger{Resource: memory, Node: nodeName(node)}
	for gpu := 0; gpu*largeNodes+node < largeBound; gpu++ {
		p := w.pods[gpu*largeNodes+node]
		amount := p.Spec.Containers[0].Resources.Requests[memory]
		l.Units = append(l.Units, snapshot.LedgerUnit{Name: fmt.Sprint(gpu), Capacity: 80, Allocations: []snapshot.LedgerAllocation{{Pod: p.UID, Amount: amount.Value()}}})
		l.Pods = append(l.Pods, snapshot.LedgerPod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Node: l.Node, At: noon})
	}
	w.builder.SetLedger(l)
}

func (w *world) reject(p *corev1.Pod, calls int) {
	w.rejected[p.UID] = requeue.Status{
		Since: noon, LastCall: noon.Add(time.Duration(calls) * time.Second), Nodes: largeNodes,
		Rejection: decision.Rejection{
			Policy: "GPUMemory", Code: "InsufficientMemory", Text: "no GPU has enough free memory", Unit: "GiB", Nodes: largeNodes,
			Nearest: []decision.Miss{{Node: nodeName(calls % largeNodes), Have: 40, Want: 60}},
		},
	}
	w.version[1]++
}

// change changes some nodes, and why some pods wait.
func (w *world) change(round int) {
	for i := range changedAtOnce {
		node := (round*changedAtOnce + i) % largeNodes
		p := w.pods[node].DeepCopy()
		p.Spec.Containers[0].Resources.Requests[memory] = *resource.NewQuantity(int64(1+(node+round)%80), resource.DecimalSI)
		w.pods[node] = p
		w.builder.SetPod(p)
		w.ledger(node)
		w.reject(w.pods[largeBound+(round*changedAtOnce+i)%largeWaiting], round)
	}
	w.view = w.builder.View()
}

// BenchmarkRequest measures one request for each kind of data after changes in a large cluster (each must take at most 10 ms of the
// processors, all waiting pods 40 ms), and without changes, which is what all other browsers cost. The first response is not counted.
func BenchmarkRequest(b *testing.B) {
	w := largeWorld(b)
	handlers := ui.Handlers(w.source())
	round := 0
	for _, arm := range []struct{ name, target string }{
		{"overview", ui.OverviewPath},
		{"units", ui.UnitsPath + "?resource=" + memory},
		{"waiting", ui.WaitingPath},
		{"waiting-found", ui.WaitingPath + "?find=wait-07&limit=500"},
		{"waiting-pods", ui.WaitingPodsPath},
		{"held", ui.HeldPath},
		{"held-found", ui.HeldPath + "?find=gpu-node-1"},
		{"held-node", ui.HeldPath + "?node=" + nodeName(17)},
		{"signals", ui.SignalsPath},
	} {
		request := func(b *testing.B) (bytes int) {
			res := get(b, handlers, arm.target, "Accept-Encoding", "gzip")
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK {
				b.Fatalf("%s, %v", res.Status, err)
			}
			return len(body)
		}
		measure := func(b *testing.B, change func()) {
			request(b)
			var bytes int
			var took time.Duration
			for b.Loop() {
				b.StopTimer()
				change()
				began := processorTime(b)
				b.StartTimer()
				bytes = request(b)
				took += processorTime(b) - began
			}
			b.ReportMetric(float64(bytes), "bytes")
			b.ReportMetric(took.Seconds()*1000/float64(b.N), "processor-ms/op")
		}
		b.Run(arm.name+"/changed", func(b *testing.B) {
			measure(b, func() { round++; w.change(round) })
		})
		b.Run(arm.name+"/same", func(b *testing.B) { measure(b, func() {}) })
	}
}

// processorTime returns what this process has used, so that other processes do not matter.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
