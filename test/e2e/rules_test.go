package e2e

import (
	"slices"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
)

// The example does what its README says; a rule with a signal passes pods as soon as the signal
// permits.
func TestOwnRulesExample(t *testing.T) {
	th := open(t)
	play := th.play("own-rules")
	placed := th.placeAll(play, map[string]string{"red": "red", "web": "old", "with-sidecar": "shared"})
	for pod, want := range map[string]string{"batch": "3 batch pods run outside office hours", "burn-in": "1 node(s) are too hot"} {
		if got := placed[pod].Waiting; !strings.Contains(got, want) {
			t.Errorf("%s waits because of %q, want %q", pod, got, want)
		}
	}
	for pod, want := range map[string]string{
		"burn-in": "rule not-too-hot: false (signals.temperature is 91)",
		"batch":   `rule outside-office-hours: false`,
	} {
		if notes := th.notes(play.Outboard, pod, "hot"); !strings.Contains(notes, want) {
			t.Errorf("the explanation of %s on hot is %q, want %q", pod, notes, want)
		}
	}
	th.rewrite(play.Outboard, "office-hours.yaml", "now: 0\n", "office-hours")
	if batch := th.awaitBound(placed["batch"].Pod); batch.Spec.NodeName != "old" {
		t.Errorf("batch is on %s, want old", batch.Spec.NodeName)
	}
	th.rewrite(play.Outboard, "temperatures.yaml", strings.Replace(string(play.Example.Data["temperatures.yaml"]), "91", "50", 1), "temperature")
	if burnIn := th.awaitBound(placed["burn-in"].Pod); burnIn.Spec.NodeName != "hot" {
		t.Errorf("burn-in is on %s, want hot", burnIn.Spec.NodeName)
	}
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

// kube-scheduler alone would evict only the pod that uses the CPUs. The rule still rejects the pod
// then: the pod that uses the memory must also be evicted.
func TestRulesAndPreemption(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a", CPU: "4", Memory: "8Gi"})
	th.priority("low", 10)
	th.priority("high", 1000)
	o := th.outboard(halfFull)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter preempt bind"}))
	th.bound(controlplane.PodSpec{Name: "hog", PriorityClass: "low", CPU: "3"})
	th.boundAndSeen(o, controlplane.PodSpec{Name: "large", PriorityClass: "low", Memory: "3Gi"})
	waits := th.place(controlplane.PodSpec{Name: "second", PriorityClass: "low", Memory: "2Gi"})
	if want := "1 node(s) would be more than half full"; !strings.Contains(waits.Waiting, want) {
		t.Errorf("second is on %q and waits because of %q, want %q", waits.Pod.Spec.NodeName, waits.Waiting, want)
	}
	if err := controlplane.DeletePod(th.ctx, th.Client, waits.Pod); err != nil { // otherwise it would use the room
		t.Fatal(err)
	}
	go controlplane.FinishDeletions(th.ctx, th.Client)
	th.awaitBound(th.create(controlplane.PodSpec{Name: "urgent", PriorityClass: "high", CPU: "3", Memory: "3Gi"}))
	for _, d := range th.explain(o, "urgent").Decisions {
		if d.Verb == "preempt" {
			if len(d.Preemptions) != 1 || d.Preemptions[0].Given != 1 || !slices.Equal(d.Preemptions[0].Added, []string{"default/large"}) {
				t.Errorf("the explanation of the preemption is %+v", d.Preemptions)
			}
			return
		}
	}
	t.Error("no preempt call was recorded")
}
