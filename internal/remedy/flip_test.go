package remedy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/remedy"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// placed is a pod before it was placed, with the nodes on which it fits.
type placed struct {
	pod   *corev1.Pod
	view  *snapshot.View
	nodes []*snapshot.Node
}

// best returns the nodes with the largest total, with these weights.
func (p *placed) best(t *testing.T, members []engine.WeightedPolicy) []string {
	t.Helper()
	var result engine.Result
	if err := engineOf(t, members).Score(t.Context(), engine.Request{Pod: p.pod, View: p.view, Nodes: p.nodes}, &result); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, total := range result.Totals {
		if total == slices.Max(result.Totals) {
			names = append(names, p.nodes[i].Name)
		}
	}
	return names
}

// nearestFlip tries the weights of one policy, the nearest first, and returns the first distance at which the node is not among the best;
// 0: none.
func (p *placed) nearestFlip(t *testing.T, all []engine.WeightedPolicy, member int, node string) int64 {
	t.Helper()
	for distance := int64(1); distance <= engine.MaxWeight; distance++ {
		for _, weight := range []int64{all[member].Weight + distance, all[member].Weight - distance} {
			if weight < 0 || weight > engine.MaxWeight {
				continue
			}
			changed := slices.Clone(all)
			changed[member].Weight = weight
			if !slices.Contains(p.best(t, changed), node) {
				return distance
			}
		}
	}
	return 0
}

// flipCount is what TestFlipsEqualBruteForce counts.
type flipCount struct{ pods, up, down, elsewhere int }

// compare compares the flips of a pod on a node with those that trying all weights finds.
func (c *flipCount) compare(t *testing.T, w *world, all []engine.WeightedPolicy, pod *corev1.Pod) {
	t.Helper()
	compared, err := remedy.CompareNode(t.Context(), remedy.Cluster{Engine: engineOf(t, all), View: w.view()}, pod)
	if err != nil {
		t.Fatal(err)
	}
	rest, before := w.without(pod.UID), pod.DeepCopy()
	before.Spec.NodeName, before.UID, before.DeletionTimestamp = "", "", nil
	fits := rest.fitting(t, engineOf(t, all), before)
	if compared.Fits != slices.Contains(fits, pod.Spec.NodeName) {
		t.Fatalf("fits: %v, brute force: %q", compared.Fits, fits)
	}
	if len(fits) < 2 || !compared.Fits {
		return
	}
	p := placed{pod: before, view: rest.view()}
	for _, name := range fits {
		p.nodes = append(p.nodes, p.view.Node(name))
	}
	c.pods++
	if now := p.best(t, all); !slices.Contains(now, pod.Spec.NodeName) {
		if c.elsewhere++; !slices.Contains(now, compared.Best) || len(compared.Flips) > 0 {
			t.Fatalf("%+v; brute force: %q are better than %s", compared, now, pod.Spec.NodeName)
		}
		return
	}
	for member := range all {
		want := p.nearestFlip(t, all, member, pod.Spec.NodeName)
		at := slices.IndexFunc(compared.Flips, func(f remedy.Flip) bool { return f.Policy == all[member].Name })
		if at < 0 {
			if want > 0 {
				t.Fatalf("%s: no flip; brute force changes the weight by %d", all[member].Name, want)
			}
			continue
		}
		f, changed := compared.Flips[at], slices.Clone(all)
		if changed[member].Weight = f.To; f.To > f.From {
			c.up++
		} else {
			c.down++
		}
		if f.From != all[member].Weight || change(f) != want || !slices.Contains(p.best(t, changed), f.Node) {
			t.Fatalf("%+v; brute force changes the weight by %d, and then %q are the best", f, want, p.best(t, changed))
		}
	}
	if !slices.IsSortedFunc(compared.Flips, func(a, b remedy.Flip) int { return int(change(a) - change(b)) }) {
		t.Fatalf("not in the order of the change: %+v", compared.Flips)
	}
}

func change(f remedy.Flip) int64 { return max(f.To-f.From, f.From-f.To) }

// byLabel scores a node by a label.
type byLabel string

func (p byLabel) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return p, nil
}

func (p byLabel) Score(n *snapshot.Node) int64 {
	score, _ := strconv.ParseInt(n.Object.Labels[string(p)], 10, 64)
	return score
}

// For random pods on nodes, each flip is the nearest weight with which the node of the pod is not among the best, as trying all weights
// shows, and there is none where no weight does.
func TestFlipsEqualBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 4))
	var real, scored flipCount
	all, others := members(t, several), engineOf(t, members(t, several))
	for real.pods < *cases/40 {
		w, _ := random(t, r, others)
		for i := range all {
			all[i].Weight = r.Int64N(7)
		}
		if i := slices.IndexFunc(w.pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }); i >= 0 {
			real.compare(t, w, all, w.pods[i])
		}
	}
	for scored.pods < *cases/10 {
		var all []engine.WeightedPolicy
		for _, label := range []string{"a", "b", "c"} {
			all = append(all, engine.WeightedPolicy{Name: label, Policy: byLabel(label), Weight: r.Int64N(12)})
		}
		w := &world{}
		for i := range 4 {
			labels := map[string]string{"a": strconv.Itoa(r.IntN(101)), "b": strconv.Itoa(r.IntN(101)), "c": strconv.Itoa(r.IntN(101))}
			w.nodes = append(w.nodes, gpuNode(fmt.Sprintf("n%d", i), func(n *corev1.Node) { n.Labels = labels }))
		}
		pod := gpuPod("p", fmt.Sprintf("n%d", r.IntN(4)), 0, "8")
		w.pods = append(w.pods, pod)
		scored.compare(t, w, all, pod)
	}
	t.Logf("pods on nodes, with flips to a larger and to a smaller weight, all equal to the nearest of all weights; and pods for which another node is better anyway: %+v, %+v", real, scored)
	if real.up+real.down == 0 || real.elsewhere == 0 || scored.up < 10 || scored.down < 10 {
		t.Error("too few flips")
	}
}
