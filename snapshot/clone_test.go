package snapshot_test

import (
	"testing"

	"outboard.dev/outboard/snapshot"
)

// What comes to a Builder or to its clone does not change what the other one publishes.
func TestCloneOfBuilder(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("n"))
	b.SetPod(pod("a", "n"))
	b.SetPod(pod("b", "n"))
	b.SetLedger(ledgerOf("n"))
	before := b.View()
	c := b.Clone()
	if c.View() != before {
		t.Error("the clone has another View")
	}
	c.DeletePod(pod("a", "n").UID)
	c.SetPod(pod("c", "n"))
	c.SetNode(node("m"))
	c.DeleteLedger(ledgerOf("n").Key())
	if b.View() != before {
		t.Error("the clone changes the original")
	}
	view := c.View()
	b.DeletePod(pod("b", "n").UID)
	b.SetPod(pod("d", "n"))
	if c.View() != view {
		t.Error("the original changes the clone")
	}
	if got := len(c.View().Node("n").Pods); got != 2 || c.View().Len() != 2 || c.View().Node("n").Pods[1].Name != "c" {
		t.Errorf("the clone has %d pods on the node, and %d nodes", got, c.View().Len())
	}
	if pods := b.View().Node("n").Pods; len(pods) != 2 || pods[1].Name != "d" || b.View().Node("n").Ledger("gpu") == nil {
		t.Errorf("the original has %d pods on the node", len(pods))
	}
}

// A pod that came before the clone was made, and is in no View yet, comes and ends in the History of both.
func TestCloneHasTheEventsBeforeTheNextView(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(node("n"))
	b.SetPod(pod("a", "n"))
	c := b.Clone()
	for name, builder := range map[string]*snapshot.Builder{"clone": &c, "original": &b} {
		builder.View()
		builder.DeletePod(pod("a", "n").UID)
		if events := builder.View().History().Events; len(events) != 2 {
			t.Errorf("the %s has %d events, want that the pod has come and is gone", name, len(events))
		}
	}
}
