package nightly

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// The example does what its README says, in three clusters.
func TestOtherClustersExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("other-clusters")
	where := map[string]string{"web-1": "home", "web-2": "to-west", "web-3": "to-east", "report": "", "local": "home"}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := placed.Pod.Spec.NodeName; got != where[pod.Name] {
			t.Errorf("%s is on %q, want %q (%s)", pod.Name, got, where[pod.Name], placed.Waiting)
		}
		if placed.Waiting == "" {
			th.Eventually("Outboard has seen "+pod.Name+" bound", func() bool { return th.Explain(play.Outboard, pod.Name).Node != "" })
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
		notes := th.Notes(play.Outboard, pod.Name, "to-west")
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
	th := theater.Open(t)
	west, err := th.StartOther(th.Ctx, "west")
	if err != nil {
		t.Fatal(err)
	}
	if err := controlplane.CreateNodes(th.Ctx, west.Client, controlplane.NodeSpec{Name: "west-1", CPU: "4"}.Node()); err != nil {
		t.Fatal(err)
	}
	th.Nodes(controlplane.NodeSpec{Name: "home"}, controlplane.NodeSpec{Name: "to-west", CPU: "1000", Labels: map[string]string{"example.com/cluster": "west"}})
	o := th.Outboard(elsewhere)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize bind"}))
	place := func(name, cpu, want string) {
		t.Helper()
		if pod := th.BoundAndSeen(o, controlplane.PodSpec{Name: name, CPU: cpu}); pod.Spec.NodeName != want {
			t.Errorf("%s is on %s, want %s:\n%s", name, pod.Spec.NodeName, want, th.Get(o.Admin+"/explain?pod="+name))
		}
	}

	place("first", "2", "to-west")
	place("too-large", "3", "home") // although the other cluster does not have "first" yet
	theirs := runs(th, west, "first", "2")
	awaitReadings(th, o, "west", 3)
	place("still-too-large", "3", "home")
	if err := controlplane.DeletePod(th.Ctx, west.Client, theirs); err != nil {
		t.Fatal(err)
	}
	awaitReadings(th, o, "west", 3)
	place("second", "3", "to-west")
	runs(th, west, "second", "3")

	west.APIServer().Kill()
	th.Eventually("the numbers are too old", func() bool {
		stale, err := strconv.Atoi(th.Metric(o, `outboard_signal_stale_values{signal="west"} `))
		return err == nil && stale > 0
	})
	place("small", "500m", "home")
	// The reason of a pod that fits nowhere shows why it cannot go there.
	waits := th.Placed(controlplane.PodSpec{Name: "huge", CPU: "63"})
	if want := "1 node(s) represent a cluster whose signal is missing or stale"; !strings.Contains(waits.Waiting, want) {
		t.Errorf("it waits because of %q, want %q", waits.Waiting, want)
	}
	if notes, want := th.Notes(o, "huge", "to-west"), "cluster west: unknown (signal west is stale for "; !strings.Contains(notes, want) {
		t.Errorf("the explanation is %q, want %q", notes, want)
	}
	if err := west.RestartAPIServer(th.Ctx); err != nil {
		t.Fatal(err)
	}
	awaitReadings(th, o, "west", 1)
	place("small-again", "500m", "to-west")
	// More room in the other cluster is not an event in this cluster.
	if err := controlplane.CreateNodes(th.Ctx, west.Client, controlplane.NodeSpec{Name: "west-2", CPU: "64"}.Node()); err != nil {
		t.Fatal(err)
	}
	if huge := th.WillBeBound(waits.Pod); huge.Spec.NodeName != "to-west" {
		t.Errorf("the pod that waited is on %s", huge.Spec.NodeName)
	}
}

// runs puts a pod on a node of the other cluster, as virtual-kubelet and the scheduler there do.
func runs(th *theater.Theater, other *stage.Other, name, cpu string) *corev1.Pod {
	th.T.Helper()
	pod, err := other.Client.CoreV1().Pods("default").Create(th.Ctx, controlplane.PodSpec{Name: name, CPU: cpu, NodeName: "west-1"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	return pod
}

// awaitReadings returns after a number of successful readings of the signal. The first may have
// started before the call.
func awaitReadings(th *theater.Theater, o *stage.Outboard, signal string, n int) {
	th.T.Helper()
	count := func() int {
		// The metric is 0 before the first reading.
		n, _ := strconv.Atoi(th.Metric(o, `outboard_signal_readings_total{outcome="success",signal="`+signal+`"} `))
		return n
	}
	want := count() + n
	th.Eventually("signal "+signal+" is read", func() bool { return count() >= want })
}
