package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/controlplane"
)

// The example does what its README says, and a new measurement lets the pod that waits run.
func TestRealUseExample(t *testing.T) {
	th := open(t)
	play := th.play("real-use")
	waits := th.placeAll(play, map[string]string{"web-1": "small", "web-2": "calm", "web-3": "calm", "web-4": "small", "web-5": "calm"})["render"]
	for _, want := range []string{"3 node(s) would exceed their maximum CPU utilization", "1 node(s) would exceed their maximum memory utilization"} {
		if !strings.Contains(waits.Waiting, want) {
			t.Errorf("render waits because %q, want %q", waits.Waiting, want)
		}
	}
	notes := th.notes(play.Outboard, "render", "calm")
	for _, want := range []string{"CPU: 22% used of 16 at ", " + 28.13% by 3 pods bound since ", " + 62.5% by this pod = 112.6%"} {
		if !strings.Contains(notes, want) {
			t.Errorf("explained as %q, want %q", notes, want)
		}
	}
	use := strings.Replace(string(play.Example.Data["use.yaml"]), "memory: 80", "memory: 20", 1)
	th.rewrite(play.Outboard, "use.yaml", use, "memory")
	if bound := th.awaitBound(waits.Pod); bound.Spec.NodeName != "leaky" {
		t.Errorf("when leaky has memory again, render is on %s", bound.Spec.NodeName)
	}
}

// vessels are nodes of unequal size and use.
var vessels = []struct {
	name string
	size float64 // cores
	used float64 // of them
}{{"a", 16, 0.10}, {"b", 16, 0.50}, {"c", 32, 0.30}, {"d", 64, 0.40}, {"e", 16, 0.00}, {"f", 32, 0.90}}

// 200 pods come between two measurements, all at once. Each uses 0.25 cores, 50 together. Over the nodes that are below it
// (a, c, d and e, of 128 cores, 36.8 used), they come to the level (50 + 36.8) / 128 = 0.678; but b is below that, too: with
// it, of 144 cores and 44.8 used, it is 0.658. That is what water does. When what was bound since the measurement does not
// count, all go to the node that was used least.
func TestPodsOfOneMomentDoNotHerd(t *testing.T) {
	const pods, cores, level = 200, 0.25, 94.8 / 144
	t.Run("counted", func(t *testing.T) {
		got := open(t).pour(pods, 5)
		for _, v := range vessels {
			used, want := v.used+cores*float64(got[v.name])/v.size, max(v.used, level)
			// One percent, because a score is a whole number, and three pods, because kube-scheduler asks about the next pod
			// while the one before is on its way.
			if tolerance := 0.01 + 3*cores/v.size; math.Abs(used-want) > tolerance {
				t.Errorf("%s is filled to %.3f by %d pods, want %.3f ± %.3f", v.name, used, got[v.name], want, tolerance)
			}
		}
		t.Logf("pods by node: %v", got)
	})
	t.Run("not counted", func(t *testing.T) {
		if got := open(t).pour(pods, 0); got["e"] != pods {
			t.Errorf("pods are on %v: all should be on e, or this test does not tell a herd from water", got)
		}
	})
}

// pour makes pods that request 50m CPU each, and returns how many each node got.
func (th *theater) pour(pods, requestFactor int) map[string]int {
	th.t.Helper()
	var use strings.Builder
	var nodes []controlplane.NodeSpec
	for _, v := range vessels {
		fmt.Fprintf(&use, "%s: %v\n", v.name, v.used)
		nodes = append(nodes, controlplane.NodeSpec{Name: v.name, CPU: fmt.Sprint(v.size), Resources: map[string]string{"pods": "500"}})
	}
	th.nodes(nodes...)
	if err := th.WriteFile("use.yaml", []byte(use.String())); err != nil {
		th.t.Fatal(err)
	}
	o := th.outboard(fmt.Sprintf(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
signals: [{name: cpu, interval: 1h, maxAge: 24h, file: {path: use.yaml}}]
profiles:
- shortlist: 1
  policies:
  - type: Utilization
    weight: 1
    config: {cpu: {signal: cpu, unit: Fraction}, prediction: {requestFactor: %d}}
`, requestFactor))
	for i := range pods {
		th.create(controlplane.PodSpec{Name: fmt.Sprint("pod-", i), CPU: "50m"})
	}
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter prioritize bind"}))
	got := map[string]int{}
	th.eventually("all pods are bound", func() bool {
		list, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{})
		if err != nil {
			th.t.Fatal(err)
		}
		clear(got)
		bound := 0
		for i := range list.Items {
			if name := list.Items[i].Spec.NodeName; name != "" {
				got[name]++
				bound++
			}
		}
		return bound == pods
	})
	return got
}
