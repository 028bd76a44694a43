package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// placeClaims places nine pods with 10 GiB each, and then one with two whole GPUs. It returns how many pods each node has, and the last
// pod. seen waits until a pod counts in the next decision.
func placeClaims(th *theater.Theater, seen func(*corev1.Pod)) (count map[string]int, last stage.Outcome) {
	th.T.Helper()
	count = map[string]int{}
	for i := range 9 {
		placed, err := th.Place(th.Ctx, th.Claiming(fmt.Sprintf("share-%d", i), "10Gi", 1))
		if err != nil || placed.Waiting != "" {
			th.T.Fatal(placed.Waiting, err)
		}
		seen(placed.Pod)
		count[placed.Pod.Spec.NodeName]++
	}
	last, err := th.Place(th.Ctx, th.Claiming("two-whole-gpus", "40Gi", 2))
	if err != nil {
		th.T.Fatal(err)
	}
	return count, last
}

// With ResourceClaims, they fill the GPUs of one node first. The entry is the generated one: it is soft, and does not call filter.
func TestResourceClaimsFillNodes(t *testing.T) {
	th := theater.Open(t)
	th.DeviceNodes("a", "b", "c")
	o := th.Outboard("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies:\n  - {type: ResourceClaims}\n" + theater.PlainHTTP)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "prioritize", Ignorable: true}))
	count, last := placeClaims(th, func(pod *corev1.Pod) {
		th.Eventually("Outboard has seen "+pod.Name+" bound", func() bool { return th.Explain(o, pod.Name).Node != "" })
		th.NextView(o)
	})
	if len(count) != 2 || last.Waiting != "" || count[last.Pod.Spec.NodeName] != 0 {
		t.Fatalf("the shares are on %v, and the pod with whole GPUs on %q: %q", count, last.Pod.Spec.NodeName, last.Waiting)
	}
	// All GPUs that are left have less than 40 GiB.
	placed, err := th.Place(th.Ctx, th.Claiming("no-room", "40Gi", 2))
	if err != nil || !strings.Contains(placed.Waiting, "cannot allocate all claims") {
		t.Fatal(placed.Waiting, err)
	}
	var full, partly string
	for node, pods := range count {
		if pods == 8 {
			full = node
		} else {
			partly = node
		}
	}
	want := "claim no-room, request gpu: gpu-0 (memory: 0 of 40Gi free; held by default/share-0 (10Gi)"
	th.Eventually("explain says what is missing", func() bool { return strings.Contains(th.Notes(o, "no-room", full), want) })
	if placed, err = th.Place(th.Ctx, th.Claiming("smaller", "30Gi", 2)); err != nil || placed.Pod.Spec.NodeName != partly {
		t.Errorf("the smaller pod is on %q: %s (%v)", placed.Pod.Spec.NodeName, placed.Waiting, err)
	}
}
