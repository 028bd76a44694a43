package nightly

import (
	"strings"
	"testing"

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
