package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// The example does what its README says, and after a new price list the next pod goes to another
// node.
func TestCheapestNodeExample(t *testing.T) {
	th := open(t)
	play := th.play("cheapest-node")
	th.placeAll(play, map[string]string{"batch-1": "general-spot", "batch-2": "general-spot", "payments": "own", "cache": "own", "database": "memory"})
	// With the old list, the next small pod would join the others on the spot node.
	list := strings.Replace(string(play.Example.Data["prices.csv"]), "spot,0.17", "spot,1.7", 1)
	th.rewrite(play.Outboard, "prices.csv", list, "price-list")
	if next := th.bound(controlplane.PodSpec{Name: "batch-3", CPU: "2", Memory: "4Gi"}); next.Spec.NodeName != "own" {
		t.Errorf("with an expensive spot node batch-3 is on %s, want own", next.Spec.NodeName)
	}
	th.gated(play.Outboard, controlplane.PodSpec{Name: "gated"})
	notes := th.notes(play.Outboard, "gated", "general-spot")
	if want := "1.7 (signal price-list at "; !strings.Contains(notes, want) || !strings.Contains(notes, " USD/h = ") {
		t.Errorf("the explanation is %q, want %q", notes, want)
	}
}

// play starts an example, without its pods.
func (th *theater) play(name string) *stage.Play {
	th.t.Helper()
	example, err := stage.ReadExample(filepath.Join(th.Root, "examples", name))
	if err != nil {
		th.t.Fatal(err)
	}
	play, err := th.Play(th.ctx, example)
	if err != nil {
		th.t.Fatal(err)
	}
	th.anyNode = example.Nodes[0].Name
	th.t.Cleanup(func() {
		if th.t.Failed() {
			th.t.Logf("outboard:\n%s", play.Outboard.Log())
		}
	})
	return play
}

// placeAll places the example's pods one by one. where is the expected node of each; a pod that is
// not in where must wait.
func (th *theater) placeAll(play *stage.Play, where map[string]string) map[string]stage.Outcome {
	th.t.Helper()
	all := map[string]stage.Outcome{}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.ctx, pod)
		if err != nil {
			th.t.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName; got != where[pod.Name] {
			th.t.Errorf("%s is on %q, want %q (%s)", pod.Name, got, where[pod.Name], placed.Waiting)
		}
		all[pod.Name] = placed
	}
	return all
}

// rewrite replaces a file that signals read, and returns when each signal has ended a reading that
// began afterwards.
func (th *theater) rewrite(o *stage.Outboard, file, text string, signals ...string) {
	th.t.Helper()
	for _, end := range []string{"", "\n"} { // the first reading may have begun earlier
		before := map[string]string{}
		readings := func(signal string) string {
			return th.metric(o, `outboard_signal_readings_total{outcome="success",signal="`+signal+`"} `)
		}
		for _, signal := range signals {
			before[signal] = readings(signal)
		}
		if err := th.WriteFile(file, []byte(text+end)); err != nil {
			th.t.Fatal(err)
		}
		for _, signal := range signals {
			th.eventually("signal "+signal+" is read", func() bool { return readings(signal) != before[signal] })
		}
	}
}

// gated creates a pod that kube-scheduler does not try, and for which explain evaluates the
// policies on the current nodes.
func (th *theater) gated(o *stage.Outboard, spec controlplane.PodSpec) {
	th.t.Helper()
	pod := spec.Pod()
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.ctx, pod, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
	th.eventually("Outboard has seen "+spec.Name, func() bool { return th.explain(o, spec.Name).Gates != nil })
}

// notes returns the explanations of the policies for the node and a pending pod.
func (th *theater) notes(o *stage.Outboard, pod, node string) string {
	th.t.Helper()
	for _, profile := range th.explainPending(o, pod).Now {
		for _, x := range profile.Explanations {
			if x.Node != node {
				continue
			}
			var notes []string
			for _, p := range x.Policies {
				notes = slices.Concat(notes, p.Notes)
			}
			return strings.Join(notes, "\n")
		}
	}
	return ""
}
