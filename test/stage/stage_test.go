package stage

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// A stage gets the control plane of the stage before it, and nothing that the stage before it created.
// (controlplane tests what Restore reverts.)
func TestPool(t *testing.T) {
	var pool Pool
	t.Cleanup(func() { pool.Stop() })
	servers := map[int]bool{}
	for i := range 2 {
		s, err := Set(t.Context(), Options{Pool: &pool})
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := s.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) > 0 {
			t.Fatalf("the nodes are %v, %v", nodes, err)
		}
		if err := controlplane.CreateNodes(t.Context(), s.Client, controlplane.NodeSpec{Name: "left"}.Node()); err != nil {
			t.Fatal(err)
		}
		outboard, err := s.StartOutboard(t.Context(), "{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, serving: {insecure: true}, profiles: [{policies: [{type: ImageLocality}]}]}")
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.StartOther(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		servers[s.APIServer().PID()], servers[other.APIServer().PID()] = true, true
		if len(servers) != 2 {
			t.Errorf("stage %d: there are %d API servers", i, len(servers))
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-outboard.Done():
		default:
			t.Error("Outboard still runs")
		}
	}
}

// A pod that is elsewhere, or waits for another reason, is not as the README of an example says.
func TestReadResults(t *testing.T) {
	results, err := ReadResults(resultsHeader + "| `one` | `a` | it has `nginx` |\n| `two` | waits | kube-scheduler says `no room` |\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		pod, node, waiting string
		want               bool
	}{
		{"one", "a", "", true}, {"two", "", "0/3 nodes: 3 no room.", true},
		{"one", "b", "", false}, {"one", "", "no room", false}, {"two", "a", "", false}, {"two", "", "other", false}, {"unknown", "a", "", false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tt.pod}, Spec: corev1.PodSpec{NodeName: tt.node}}
		if err := results[tt.pod].Check(Outcome{Pod: pod, Waiting: tt.waiting}); (err == nil) != tt.want {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
