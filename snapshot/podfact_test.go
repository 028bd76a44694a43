package snapshot_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// A fact of a pod is computed once, whatever comes to its node and leaves it, until the pod itself changes.
func TestPodFact(t *testing.T) {
	computed := map[string]int{}
	labels := snapshot.NewPodFact(func(pod *corev1.Pod) int { computed[pod.Name]++; return len(pod.Labels) })
	read := func(n *snapshot.Node) (sum int) {
		for i := range n.Pods {
			sum += *labels.Of(n, i)
		}
		return sum
	}
	var b snapshot.Builder
	b.SetNode(node("a"))
	b.SetPod(pod("p", "a"))
	b.SetPod(pod("r", "a"))
	read(b.View().Node("a"))
	b.SetPod(pod("q", "a"))
	n := b.View().Node("a")
	read(n)
	read(n.With(pod("o", "")))
	read(n.Without(func(p *corev1.Pod) bool { return p.Name == "p" }))
	read(n.WithObject(node("a")))
	b.DeletePod(pod("p", "a").UID)
	b.SetNode(node("b"))
	read(b.View().Node("a"))
	if want := "map[o:1 p:1 q:1 r:1]"; fmt.Sprint(computed) != want {
		t.Errorf("computed %v, want %s", computed, want)
	}
	changed := pod("q", "a")
	changed.Labels = map[string]string{"x": "1", "y": "2"}
	b.SetPod(changed)
	if sum := read(b.View().Node("a")); sum != 2 || computed["q"] != 2 || computed["r"] != 1 {
		t.Errorf("the pods have %d labels, computed %v", sum, computed)
	}
}

// Each pod has its own fact, on all nodes that are made from a Builder and from each other.
func TestPodFactsFollowTheirPods(t *testing.T) {
	itself := snapshot.NewPodFact(func(pod *corev1.Pod) *corev1.Pod { return pod })
	rapid.Check(t, func(t *rapid.T) {
		check := func(n *snapshot.Node) {
			for i := range n.Pods {
				if *itself.Of(n, i) != n.Pods[i] {
					t.Fatalf("pod %d of %d has the fact of another one", i, len(n.Pods))
				}
			}
		}
		draw := func() *corev1.Pod {
			p := pod(fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "name")), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "on"))
			p.UID += types.UID(fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "uid")))
			p.Labels = map[string]string{"version": fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "version"))}
			return p
		}
		var b snapshot.Builder
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				switch rapid.IntRange(0, 4).Draw(t, "change") {
				case 0:
					b.DeletePod(draw().UID)
				case 1:
					b.DeleteNode("b")
				case 2:
					b.SetNode(node(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")))
				default:
					b.SetPod(draw())
				}
			}
			for n := range b.View().All() {
				check(n)
				more := n.With(draw(), draw())
				check(more)
				left := rapid.IntRange(0, 9).Draw(t, "left")
				check(more.Without(func(p *corev1.Pod) bool { return p.Name == fmt.Sprint("p", left) }))
				check(n)
			}
		}
	})
}
