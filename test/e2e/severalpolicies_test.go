package e2e

import (
	"strings"
	"testing"
)

// The example does what its README says: each of the five policies contributes to the single call
// of kube-scheduler.
func TestSeveralPoliciesExample(t *testing.T) {
	th := open(t)
	play := th.play("several-policies")
	last := th.placeAll(play, map[string]string{"report": "own-2", "simulation-1": "own-2", "simulation-2": "rented-1"})["simulation-3"]
	// The pod's event has the reason of each policy that filters.
	for _, want := range []string{"1 node(s) have a condition that indicates degraded hardware", "2 not enough free seats of a floating license"} {
		if !strings.Contains(last.Waiting, want) {
			t.Errorf("the event is %q, want %q", last.Waiting, want)
		}
	}
	doc := th.explainPending(play.Outboard, "simulation-3")
	if len(doc.Decisions) == 0 || len(doc.Now) != 1 {
		t.Fatalf("the explanation is %+v", doc)
	}
	text := &strings.Builder{}
	if err := doc.Text(text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Licenses: solver: requests 1 seat of 2; 2 claimed by pods: default/simulation-1, default/simulation-2",
		"HardwareHealth: rule memory-errors: rejects (condition MemoryErrors is True",
		"Utilization: CPU: 95% used of 16", "Cost: cost of the node: 0.8 USD/h",
		"Signals:",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the explanation does not contain %q:\n%s", want, text)
		}
	}
}
