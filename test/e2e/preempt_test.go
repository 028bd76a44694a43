package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// kube-scheduler alone would evict only the pod that uses the CPU. That does not help, because two
// pods of the limited kind are on the node. So preemption must also evict the less important of
// them, and the third pod must stay.
func TestPreemptExtendsTheVictims(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a", CPU: "4"})
	for name, value := range map[string]int32{"low": 10, "middle": 20, "high": 1000} {
		th.Priority(name, value)
	}
	o := th.Outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: PodLimit
    config: {max: 2, selector: {matchLabels: {app: web}}}
`)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter preempt bind"}))
	webPod := func(name, class, cpu string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Labels: map[string]string{"app": "web"}, PriorityClass: class, CPU: cpu}
	}
	hog := th.Bound(controlplane.PodSpec{Name: "hog", PriorityClass: "middle", CPU: "3"})
	important := th.Bound(webPod("web-middle", "middle", "100m"))
	unimportant := th.Bound(webPod("web-low", "low", "100m"))

	go controlplane.FinishDeletions(th.Ctx, th.Client)
	urgent := th.Create(webPod("web-high", "high", "3"))
	th.AwaitBound(urgent)

	for _, gone := range []*corev1.Pod{hog, unimportant} {
		th.Eventually(gone.Name+" is gone", func() bool {
			_, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, gone.Name, metav1.GetOptions{})
			return err != nil
		})
	}
	still, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, important.Name, metav1.GetOptions{})
	if err != nil || still.DeletionTimestamp != nil {
		t.Errorf("%s was evicted without need: %v", important.Name, err)
	}
	for _, d := range th.Explain(o, "web-high").Decisions {
		if d.Verb == "preempt" {
			if len(d.Preemptions) != 1 || d.Preemptions[0].Given != 1 || len(d.Preemptions[0].Added) != 1 || d.Preemptions[0].Added[0] != "default/web-low" {
				t.Errorf("the explanation of the preemption is %+v", d.Preemptions)
			}
			return
		}
	}
	t.Error("no preempt call was recorded")
}

// halfFull passes pods on a node whose memory they would fill at most by half.
const halfFull = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: Rules
    config:
      filters:
      - name: half-full
        message: node(s) would be more than half full
        expression: >-
          usage.requested["memory"].add(podRequests["memory"]).asApproximateFloat() <=
          0.5 * node.status.allocatable["memory"].asApproximateFloat()
`
