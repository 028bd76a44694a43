package snapshot_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// TestNominated follows the states in the comment of View.Nominated, step by step.
func TestNominated(t *testing.T) {
	nominated := func(node string) *corev1.Pod {
		p := pod("p", "")
		p.Status.NominatedNodeName = node
		return p
	}
	type step struct {
		do    string
		want  string // the node to which the pod is nominated
		freed bool   // another pod may fit that did not fit before
	}
	for name, steps := range map[string][]step{
		"to another node":          {{"set a", "a", true}, {"set b", "b", true}, {"set", "", true}},
		"bound":                    {{"set a", "a", true}, {"bound a", "", true}},
		"assumed there":            {{"set a", "a", true}, {"assume a", "", false}, {"set a", "a", true}},
		"assumed on another node":  {{"set b", "b", true}, {"assume a", "", true}},
		"deleted":                  {{"set a", "a", true}, {"delete", "", true}, {"delete", "", false}},
		"being deleted":            {{"set a", "a", true}, {"terminate a", "", true}},
		"a node that is not there": {{"set c", "c", true}},
	} {
		t.Run(name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(node("a"))
			b.SetNode(node("b"))
			for i, step := range steps {
				before := b.View()
				switch do, node, _ := strings.Cut(step.do, " "); do {
				case "set":
					b.SetPod(nominated(node))
				case "bound":
					b.SetPod(pod("p", node))
				case "assume":
					b.AssumePod(pod("p", ""), node)
				case "delete":
					b.DeletePod("p")
				case "terminate":
					p := nominated(node)
					p.DeletionTimestamp = &metav1.Time{}
					b.SetPod(p)
				}
				got := ""
				for _, p := range b.View().Nominated() {
					got += p.Status.NominatedNodeName
				}
				if freed := b.View().FreedGeneration() != before.FreedGeneration(); got != step.want || freed != step.freed {
					t.Errorf("after step %d, %s: nominated to %q, makes freed: %t; want %q and %t", i, step.do, got, freed, step.want, step.freed)
				}
			}
		})
	}
}
