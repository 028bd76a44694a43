package requeue_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// kube-scheduler asks about 100 of 300 nodes. A pod that fits on other nodes is nominated to one after the other, as often as
// kube-scheduler needs attempts for all nodes. After that it is retried as any other pod, and keeps none of them.
func TestSampled(t *testing.T) {
	for name, tt := range map[string]struct {
		free, refused []int // nodes
		want          string
		elsewhere     string // after the first attempt
	}{
		"no node":             {want: ""},
		"one node":            {free: []int{250}, elsewhere: "node-250", want: "p@1>node-250"},
		"refused":             {free: []int{250}, refused: []int{250}, elsewhere: "node-250", want: "p@1>node-250 p@2.005>"},
		"one of two refused":  {free: []int{250, 260}, refused: []int{250}, elsewhere: "node-250", want: "p@1>node-250 p@2.005>node-260"},
		"all of four refused": {free: []int{210, 250, 260, 270}, refused: []int{210, 250, 260, 270}, elsewhere: "node-210", want: "p@1>node-210 p@2.005>node-250 p@3.01>node-260 p@4.015> p@5.02 p@7.02 p@11.02"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 0, func(c *fakeCluster) {
				c.sample, c.refused = 100, map[string]bool{}
				node := func(i int) string { return fmt.Sprintf("node-%03d", i) }
				for i := range 300 {
					c.node(node(i), 0)
				}
				for _, i := range tt.free {
					c.node(node(i), 1)
				}
				for _, i := range tt.refused {
					c.refused[node(i)] = true
				}
				cordoned := c.View().Node(node(299)).Object.DeepCopy()
				cordoned.Spec.Unschedulable, cordoned.Labels["places"] = true, "1"
				c.change(func(b *snapshot.Builder) { b.SetNode(cordoned) })
				time.Sleep(time.Second)
				c.start = time.Now()
				c.create("p")
				elsewhere := func() string {
					return c.requeuer.Elsewhere(t.Context(), "/", engine.Request{Pod: c.PodByUID("p"), View: c.View()})
				}
				if got := elsewhere(); got != tt.elsewhere {
					t.Errorf("elsewhere: %q", got)
				}
				if requeued := c.after(12 * time.Second); requeued != tt.want {
					t.Errorf("requeued %s, want %s", requeued, tt.want)
				}
				pod := c.PodByUID(types.UID("p"))
				if got := elsewhere(); got != "" || len(tt.refused) == len(tt.free) && pod.Status.NominatedNodeName != "" {
					t.Errorf("elsewhere: %q, nominated to %q", got, pod.Status.NominatedNodeName)
				}
			})
		})
	}
}
