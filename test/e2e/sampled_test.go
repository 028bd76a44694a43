package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// kube-scheduler asks about 100 of 300 nodes. Pods fit without an eviction on 9 nodes, wherever these are, and are bound there; no pod
// of lower priority is evicted for them. A GPU that becomes healthy is an event for Outboard only: it names the node, so that
// kube-scheduler asks about this node first.
func TestNodesOutsideTheSample(t *testing.T) {
	th := theater.Open(t)
	th.Priority("high", 1000)
	const nodes, urgent = 300, 9
	specs := make([]controlplane.NodeSpec, nodes)
	for i := range specs {
		specs[i] = theater.GPUs(fmt.Sprintf("node-%04d", i), 2, 8) // no GPU is large enough
	}
	for i := range urgent {
		specs[30*i+7], specs[30*i+20] = theater.GPUs(specs[30*i+7].Name, 1, 16), theater.GPUs(specs[30*i+20].Name, 1, 16)
	}
	specs[nodes-1] = theater.GPUs(specs[nodes-1].Name, 1, 16)
	th.Nodes(specs...)
	health := unhealthy(th, specs[nodes-1].Name)
	for i := range urgent {
		victim := theater.GPUPod(fmt.Sprint("victim-", i), 16)
		victim.NodeName, victim.Annotations = specs[30*i+20].Name, map[string]string{GPUIndex: "0", gpuTaken: "true"}
		th.Create(victim)
	}
	o := th.Outboard(theater.GPUShare)
	th.Scheduler("percentageOfNodesToScore: 1\n" + theater.GPUShareScheduler(o))
	pod := func(i int) controlplane.PodSpec {
		spec := theater.GPUPod(fmt.Sprint("urgent-", i), 16)
		spec.PriorityClass = "high"
		return spec
	}
	for i := range urgent {
		created := time.Now()
		bound := th.WillBeBound(th.Create(pod(i)))
		t.Logf("%s is on %s after %s and %d filter calls", bound.Name, bound.Spec.NodeName, time.Since(created), attempts(th, o, bound.Name))
	}
	waits := th.Placed(theater.GPUPod("waits", 16))
	tried := asleep(th, o, "waits")
	heal(th, health)
	th.WillBeBound(waits.Pod)
	// kube-scheduler may make one attempt of its own before, whose sample may have the node by chance.
	more, last := attempts(th, o, "waits")-tried, th.Explain(o, "waits").Decisions[1]
	if last.Verb != "filter" || more > 2 || more == 2 && last.Nodes != 1 || more == 1 && last.Nodes != 1 && last.Nodes != 100 {
		t.Errorf("%d attempts until the pod was bound, the last one about %d nodes", more, last.Nodes)
	}
	pods, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 2*urgent+1 {
		t.Errorf("%d pods are left (%v)", len(pods.Items), err)
	}
}
