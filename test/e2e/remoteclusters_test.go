package e2e

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// The example does what its README says, in three clusters.
func TestOtherClustersExample(t *testing.T) {
	th := open(t)
	play := th.play("other-clusters")
	where := map[string]string{"web-1": "home", "web-2": "to-west", "web-3": "to-east", "report": "", "local": "home"}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName; got != where[pod.Name] {
			t.Errorf("%s is on %q, want %q (%s)", pod.Name, got, where[pod.Name], placed.Waiting)
		}
		if placed.Waiting == "" {
			th.eventually("Outboard has seen "+pod.Name+" bound", func() bool { return th.explain(play.Outboard, pod.Name).Node != "" })
			continue
		}
		for _, want := range []string{
			"1 node(s) represent a cluster in which no single node has enough free CPU",
			"1 node(s) represent a cluster with insufficient CPU",
		} {
			if !strings.Contains(placed.Waiting, want) {
				t.Errorf("%s waits because of %q, want %q", pod.Name, placed.Waiting, want)
			}
		}
		notes := th.notes(play.Outboard, pod.Name, "to-west")
		if want := "cpu: 8 free of 16 - 3 for these pods = 5, at most 4 on one node; the pod requests 5"; !strings.Contains(notes, want) {
			t.Errorf("the explanation is %q, want %q", notes, want)
		}
	}
}

// elsewhere prefers the cluster west to home.
const elsewhere = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- {name: west, interval: 1s, timeout: 3s, maxAge: 10s, cluster: {kubeconfig: west.kubeconfig}}
profiles:
- policies:
  - type: RemoteClusters
    weight: 1
    config: {clusterLabel: example.com/cluster, scoringStrategy: {localScore: 0}, metricDelay: 0s, clusters: [{name: west, signal: west}]}
`

// The free resources of another cluster determine which pods fit there. When it is unreachable,
// pods stay home as soon as its values are stale; when it is back, pods go there again.
func TestAnotherClusterDecides(t *testing.T) {
	th := open(t)
	west, err := th.StartOther(th.ctx, "west")
	if err != nil {
		t.Fatal(err)
	}
	if err := controlplane.CreateNodes(th.ctx, west.Client, controlplane.NodeSpec{Name: "west-1", CPU: "4"}.Node()); err != nil {
		t.Fatal(err)
	}
	th.nodes(controlplane.NodeSpec{Name: "home"}, controlplane.NodeSpec{Name: "to-west", CPU: "1000", Labels: map[string]string{"example.com/cluster": "west"}})
	o := th.outboard(elsewhere)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter prioritize bind"}))
	place := func(name, cpu, want string) {
		t.Helper()
		if pod := th.boundAndSeen(o, controlplane.PodSpec{Name: name, CPU: cpu}); pod.Spec.NodeName != want {
			t.Errorf("%s is on %s, want %s:\n%s", name, pod.Spec.NodeName, want, th.get(o.Admin+"/explain?pod="+name))
		}
	}

	place("first", "2", "to-west")
	place("too-large", "3", "home") // although the other cluster does not have "first" yet
	theirs := th.runs(west, "first", "2")
	th.awaitReadings(o, "west", 3)
	place("still-too-large", "3", "home")
	if err := controlplane.DeletePod(th.ctx, west.Client, theirs); err != nil {
		t.Fatal(err)
	}
	th.awaitReadings(o, "west", 3)
	place("second", "3", "to-west")
	th.runs(west, "second", "3")

	west.APIServer().Kill()
	th.eventually("the numbers are too old", func() bool {
		stale, err := strconv.Atoi(th.metric(o, `outboard_signal_stale_values{signal="west"} `))
		return err == nil && stale > 0
	})
	place("small", "500m", "home")
	// The reason of a pod that fits nowhere shows why it cannot go there.
	waits := th.place(controlplane.PodSpec{Name: "huge", CPU: "63"})
	if want := "1 node(s) represent a cluster whose signal is missing or stale"; !strings.Contains(waits.Waiting, want) {
		t.Errorf("it waits because of %q, want %q", waits.Waiting, want)
	}
	if notes, want := th.notes(o, "huge", "to-west"), "cluster west: unknown (signal west is stale for "; !strings.Contains(notes, want) {
		t.Errorf("the explanation is %q, want %q", notes, want)
	}
	if err := west.RestartAPIServer(th.ctx); err != nil {
		t.Fatal(err)
	}
	th.awaitReadings(o, "west", 1)
	place("small-again", "500m", "to-west")
	// More room in the other cluster is not an event in this cluster.
	if err := controlplane.CreateNodes(th.ctx, west.Client, controlplane.NodeSpec{Name: "west-2", CPU: "64"}.Node()); err != nil {
		t.Fatal(err)
	}
	if huge := th.willBeBound(waits.Pod); huge.Spec.NodeName != "to-west" {
		t.Errorf("the pod that waited is on %s", huge.Spec.NodeName)
	}
}

// runs puts a pod on a node of the other cluster, as virtual-kubelet and the scheduler there do.
func (th *theater) runs(other *stage.Other, name, cpu string) *corev1.Pod {
	th.t.Helper()
	pod, err := other.Client.CoreV1().Pods("default").Create(th.ctx, controlplane.PodSpec{Name: name, CPU: cpu, NodeName: "west-1"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	return pod
}

// awaitReadings returns after a number of successful readings of the signal. The first may have
// started before the call.
func (th *theater) awaitReadings(o *stage.Outboard, signal string, n int) {
	th.t.Helper()
	count := func() int {
		// The metric is 0 before the first reading.
		n, _ := strconv.Atoi(th.metric(o, `outboard_signal_readings_total{outcome="success",signal="`+signal+`"} `))
		return n
	}
	want := count() + n
	th.eventually("signal "+signal+" is read", func() bool { return count() >= want })
}
