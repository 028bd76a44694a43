package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// A pod that needs all GPUs of a node waits, while pods with one GPU come and go. With a hold, they
// wait until it is bound, and are bound when it has ended; without, it waits for as long as they
// come.
func TestHoldForALargePod(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{"held": ", holdFor: {gpus: 4, idleGPUs: 4}", "not held": ""} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(theater.GPUs("gpu-node", 4, 16))
			o := th.Outboard(strings.ReplaceAll(theater.GPUShare, "weight: 1}", "weight: 1, config: {scoringStrategy: {type: LeastWaste}"+hold+"}}"))
			config := theater.Extender{Outboard: o, Path: "/gpushare-scheduler", Verbs: "filter bind", Managed: []string{string(theater.GPUMem), "aliyun.com/gpu-count"}}
			th.Scheduler(theater.SchedulerConfig(config))
			var small []*corev1.Pod
			for i := range 4 {
				small = append(small, th.Bound(theater.GPUPod(fmt.Sprint("small-", i), 16)))
			}
			large := th.Placed(controlplane.PodSpec{Name: "large", Resources: map[string]string{"aliyun.com/gpu-count": "4"}})
			if large.Waiting == "" {
				t.Fatalf("the large pod is bound to %s", large.Pod.Spec.NodeName)
			}
			for i := 4; i < 8; i++ {
				if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, small[i-4].Name, *metav1.NewDeleteOptions(0)); err != nil {
					t.Fatal(err)
				}
				th.NextView(o)
				small = append(small, th.Create(theater.GPUPod(fmt.Sprint("small-", i), 16)))
				if hold == "" {
					th.AwaitBound(small[i])
					continue
				}
				if i == 7 { // now the large pod fits
					break
				}
				th.Eventually("the small pod waits", func() bool { return strings.Contains(th.Events(small[i]), "held for a pod that waits") })
				if i == 6 {
					if said := fmt.Sprint(th.ExplainPending(o, "large").Now[0].Notes); !strings.Contains(said, "hold: gpu-node is held for it; 3 of 4 GPUs are unused") {
						t.Errorf("explained: %s", said)
					}
				}
			}
			if hold == "" {
				if on := podNamed(th, "large").Spec.NodeName; on != "" {
					t.Errorf("the large pod is bound to %s", on)
				}
				return
			}
			th.Finish(th.AwaitBound(large.Pod))
			for _, pod := range small[4:] {
				th.AwaitBound(pod)
			}
		})
	}
}
