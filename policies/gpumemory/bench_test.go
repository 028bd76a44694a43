package gpumemory_test

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/measure"
)

// A pod comes to one of 16 nodes with about 100 pods each, or is gone again. So the facts of that node are computed again, which are most
// of what the policy does for a pod when few nodes have changed since the last one. The pods hold GPUs by annotations, or by claims as well.
func BenchmarkChangedNode(b *testing.B) {
	const nodes, pods = 16, 100
	for _, claimed := range []bool{false, true} {
		b.Run(fmt.Sprintf("claimed=%t", claimed), func(b *testing.B) {
			var builder snapshot.Builder
			extra := make([]*corev1.Pod, nodes)
			for i := range nodes {
				name, gpus := fmt.Sprint("node-", i), [8][]snapshot.LedgerClaim{}
				node, l := gpuNode(name, 8, 200), &snapshot.Ledger{Resource: "aliyun.com/gpu-mem", Node: name}
				node.UID = types.UID(name)
				builder.SetNode(node)
				for j := range pods + 1 {
					pod := placed(fmt.Sprint("pod-", j), 6, strconv.Itoa(j%8))
					pod.UID, pod.Spec.NodeName = types.UID(fmt.Sprintf("6f1d2c3e-0000-4000-8000-%06d%06d", i, j)), name
					pod.Spec.Containers[0].Resources.Requests = pod.Spec.Containers[0].Resources.Limits
					if extra[i] = pod; j < pods {
						builder.SetPod(pod)
						gpus[j%8] = append(gpus[j%8], snapshot.LedgerClaim{Pod: pod.UID, Amount: 6})
						l.Pods = append(l.Pods, snapshot.LedgerPod{UID: pod.UID, Name: pod.Name, Node: name})
					}
				}
				for j, all := range gpus {
					l.Units = append(l.Units, snapshot.LedgerUnit{Name: strconv.Itoa(j), Capacity: 200, Claims: all})
				}
				if claimed {
					builder.SetLedger(l)
				}
			}
			p := build(b, "{scoringStrategy: {type: LeastWaste}}")
			b.ReportAllocs()
			since := measure.Used()
			for i := 0; b.Loop(); i++ {
				pod := extra[i%nodes]
				if i/nodes%2 == 0 {
					builder.AssumePod(pod, pod.Spec.NodeName) // SetPod would make the strategy learn
				} else {
					builder.DeletePod(pod.UID)
				}
				view := builder.View()
				cycle, err := p.Prepare(b.Context(), gpuPod("new", 6, 0), view)
				if err != nil || !cycle.(policy.Filter).Filter(view.Node(pod.Spec.NodeName)).Fits() {
					b.Fatal(err)
				}
			}
			b.ReportMetric((measure.Used()-since)/float64(b.N), "cpu-µs/op")
		})
	}
}
