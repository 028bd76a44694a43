package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// kube-scheduler alone would evict only the pod that uses the CPU. That does not help, because two
// pods of the limited kind are on the node. So preemption must also evict the less important of
// them, and the third pod must stay.
func TestPreemptExtendsTheVictims(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a", CPU: "4"})
	for name, value := range map[string]int32{"low": 10, "middle": 20, "high": 1000} {
		th.priority(name, value)
	}
	o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: PodLimit
    config: {max: 2, selector: {matchLabels: {app: web}}}
`)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter preempt bind"}))
	webPod := func(name, class, cpu string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Labels: map[string]string{"app": "web"}, PriorityClass: class, CPU: cpu}
	}
	hog := th.bound(controlplane.PodSpec{Name: "hog", PriorityClass: "middle", CPU: "3"})
	important := th.bound(webPod("web-middle", "middle", "100m"))
	unimportant := th.bound(webPod("web-low", "low", "100m"))

	go controlplane.FinishDeletions(th.ctx, th.Client)
	urgent := th.create(webPod("web-high", "high", "3"))
	th.awaitBound(urgent)

	for _, gone := range []*corev1.Pod{hog, unimportant} {
		th.eventually(gone.Name+" is gone", func() bool {
			_, err := th.Client.CoreV1().Pods("default").Get(th.ctx, gone.Name, metav1.GetOptions{})
			return err != nil
		})
	}
	still, err := th.Client.CoreV1().Pods("default").Get(th.ctx, important.Name, metav1.GetOptions{})
	if err != nil || still.DeletionTimestamp != nil {
		t.Errorf("%s was evicted without need: %v", important.Name, err)
	}
	for _, d := range th.explain(o, "web-high").Decisions {
		if d.Verb == "preempt" {
			if len(d.Preemptions) != 1 || d.Preemptions[0].Given != 1 || len(d.Preemptions[0].Added) != 1 || d.Preemptions[0].Added[0] != "default/web-low" {
				t.Errorf("the explanation of the preemption is %+v", d.Preemptions)
			}
			return
		}
	}
	t.Error("no preempt call was recorded")
}

// priority creates a PriorityClass.
func (th *theater) priority(name string, value int32) {
	th.t.Helper()
	_, err := th.Client.SchedulingV1().PriorityClasses().Create(th.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	probe := controlplane.PodSpec{Name: "probe", PriorityClass: name}.Pod()
	th.eventually("the API server's admission knows the class", func() bool {
		_, err := th.Client.CoreV1().Pods("default").Create(th.ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
}
