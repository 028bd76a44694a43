package nightly

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// A program with a custom policy, in its own module, serves the policy: pods are bound with allocations,
// explain shows the policy's reasons, and a reload changes its configuration.
func TestOwnPolicy(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outboard")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "examples", "own-policy")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	th := theater.OpenProgram(t, program)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	config, err := os.ReadFile(filepath.Join(build.Dir, "outboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := th.Outboard(strings.Replace(string(config), "{license: cad}", "{license: cad, seats: 2}", 1))
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind"}))
	seat := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Labels: map[string]string{"example.com/license": "cad"}}
	}
	for _, name := range []string{"first", "second"} {
		if pod := th.BoundAndSeen(o, seat(name)); pod.Annotations["example.com/seat"] != "cad" {
			t.Errorf("%s has the annotations %v", name, pod.Annotations)
		}
	}
	third := th.Placed(seat("third"))
	if !strings.Contains(third.Waiting, "all seats of the license are taken") {
		t.Fatalf("the third pod waits because of %q", third.Waiting)
	}
	explained, err := exec.CommandContext(th.Ctx, program, "explain", "default/third", "--admin", strings.TrimPrefix(o.Admin, "http://")).CombinedOutput()
	if err != nil || !bytes.Contains(explained, []byte("all seats of the license are taken")) || !bytes.Contains(explained, []byte("Seats")) {
		t.Errorf("explain: %v\n%s", err, explained)
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := th.WriteFile(filepath.Base(o.ConfigFile), bytes.Replace(text, []byte("seats: 2"), []byte("seats: 3"), 1)); err != nil {
		t.Fatal(err)
	}
	th.WillBeBound(third.Pod)
	allocations := 0
	for _, l := range th.Ledgers() {
		if l.Spec.Resource == "seats/cad" {
			allocations += len(l.Spec.Pods)
		}
	}
	if allocations != 3 {
		t.Errorf("the ledger has %d allocations, want 3: %+v", allocations, th.Ledgers())
	}
	th.Logs(o, "profiles[0].policies[0].config.seats")
}
