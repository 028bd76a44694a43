package stage_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

const configuration = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles: [{policies: [{type: ImageLocality}]}]
`

// A stage gets the control plane of the stage before it, and nothing that the stage before it created.
// (controlplane tests that Restore reverts objects of every kind.)
func TestPool(t *testing.T) {
	var pool stage.Pool
	t.Cleanup(func() {
		if err := pool.Stop(); err != nil {
			t.Error(err)
		}
	})
	set := func() *stage.Stage {
		t.Helper()
		s, err := stage.Set(t.Context(), stage.Options{Pool: &pool})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := set()
	if err := controlplane.CreateNodes(t.Context(), first.Client, controlplane.NodeSpec{Name: "left"}.Node()); err != nil {
		t.Fatal(err)
	}
	outboard, err := first.StartOutboard(t.Context(), configuration)
	if err != nil {
		t.Fatal(err)
	}
	other, err := first.StartOther(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if other.APIServer().PID() == first.APIServer().PID() {
		t.Error("two clusters have the same API server")
	}
	servers := map[int]bool{first.APIServer().PID(): true, other.APIServer().PID(): true}
	for range 2 { // the second time it does nothing
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-outboard.Done():
	default:
		t.Error("Outboard still runs")
	}

	second, third := set(), set()
	for _, s := range []*stage.Stage{second, third} {
		if !servers[s.APIServer().PID()] {
			t.Error("a stage got a new control plane, and another was idle")
		}
		nodes, err := s.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes.Items) > 0 {
			t.Errorf("node %s is left", nodes.Items[0].Name)
		}
		again, err := s.StartOutboard(t.Context(), configuration)
		if err != nil {
			t.Fatal(err)
		}
		if again.ConfigFile[len(s.Dir()):] != outboard.ConfigFile[len(first.Dir()):] {
			t.Errorf("the first configuration is %s, and was %s", again.ConfigFile, outboard.ConfigFile)
		}
	}
	if second.APIServer().PID() == third.APIServer().PID() {
		t.Error("two stages have the same control plane at a time")
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if err := third.Stop(); err != nil {
		t.Error(err)
	}
}
