package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// The example does what its README says, and a new measurement makes the pending pod fit.
func TestRealUseExample(t *testing.T) {
	th := open(t)
	play := th.play("real-use")
	waits := th.placeAll(play, map[string]string{"web-1": "small", "web-2": "calm", "web-3": "calm", "web-4": "small", "web-5": "calm"})["render"]
	for _, want := range []string{"3 node(s) would exceed their maximum CPU utilization", "1 node(s) would exceed their maximum memory utilization"} {
		if !strings.Contains(waits.Waiting, want) {
			t.Errorf("render waits because of %q, want %q", waits.Waiting, want)
		}
	}
	notes := th.notes(play.Outboard, "render", "calm")
	for _, want := range []string{"CPU: 22% used of 16 at ", " + 28.13% by 3 pods bound since ", " + 62.5% by this pod = 112.6%"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the explanation is %q, want %q", notes, want)
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
	used float64 // of the cores
}{{"a", 16, 0.10}, {"b", 16, 0.50}, {"c", 32, 0.30}, {"d", 64, 0.40}, {"e", 16, 0.00}, {"f", 32, 0.90}}

// 200 pods are created at once between two measurements. Each uses 0.25 cores, 50 in total. If the
// policy filled only a, c, d and e, with 128 cores of which 36.8 are used, they would reach the
// level (50 + 36.8) / 128 = 0.678. But b is also below that level: with b, of 144 cores with 44.8
// used, the level is 0.658. If the policy does not count the pods bound since the measurement, all
// go to the least used node.
func TestPodsBoundSinceTheMeasurementCount(t *testing.T) {
	const pods, cores, level = 200, 0.25, 94.8 / 144
	t.Run("counted", func(t *testing.T) {
		got := open(t).pour(pods, 5)
		for _, v := range vessels {
			used, want := v.used+cores*float64(got[v.name])/v.size, max(v.used, level)
			// One percent, because a score is an integer, and three pods, because kube-scheduler
			// makes the calls for the next pod before the previous one is bound.
			if tolerance := 0.01 + 3*cores/v.size; math.Abs(used-want) > tolerance {
				t.Errorf("%s is filled to %.3f by %d pods, want %.3f ± %.3f", v.name, used, got[v.name], want, tolerance)
			}
		}
		t.Logf("pods by node: %v", got)
	})
	t.Run("not counted", func(t *testing.T) {
		if got := open(t).pour(pods, 0); got["e"] != pods {
			t.Errorf("pods are on %v: want all on e; otherwise this test does not distinguish the two cases", got)
		}
	})
}

// pour creates pods that request 50m CPU each, and returns how many each node got.
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
serving: {insecure: true}
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
