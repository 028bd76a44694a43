package requeue_test

import (
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/snapshot"
)

// A pod of which the cluster has only a part cannot be evaluated: kube-scheduler retries it once after each change that may make room.
func TestReducedPods(t *testing.T) {
	simulate(t, 0, func(c *fakeCluster) {
		c.node("a", 0)
		c.create("large")
		c.mu.Lock()
		pod := c.pods["large"].DeepCopy()
		pod.Annotations = map[string]string{"a": strings.Repeat("x", 10<<10)}
		snapshot.ReducePod(pod)
		c.pods["large"] = pod
		c.mu.Unlock()
		c.start = time.Now()
		c.node("b", 0)
		if requeued := c.after(time.Hour); requeued != "large@0" {
			t.Errorf("after a change: requeued %q", requeued)
		}
		c.start = time.Now()
		if requeued := c.after(time.Hour); requeued != "" {
			t.Errorf("without a change: requeued %q", requeued)
		}
	})
}
