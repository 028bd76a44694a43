package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// unresolvable returns the names of the unresolvable nodes when no node fits.
func unresolvable(t *testing.T, e *engine.Engine, req engine.Request) string {
	t.Helper()
	c, err := e.Begin(t.Context(), req.Pod, req.View)
	if err != nil {
		t.Fatal(err)
	}
	var result engine.Result
	if err := c.Filter(t.Context(), req.Nodes, nil, &result); err != nil || len(result.Kept) > 0 {
		t.Fatalf("%d nodes fit, error %v", len(result.Kept), err)
	}
	c.MarkUnresolvable(t.Context(), req.Nodes, result.Rejected)
	var names []string
	for _, r := range result.Rejected {
		if r.Unresolvable {
			names = append(names, req.Nodes[r.Index].Name)
		}
	}
	return strings.Join(names, " ")
}

func TestMarkUnresolvable(t *testing.T) {
	s := readScene(t, `
		node helps devices=4
		node too-small devices=3
		node same devices=4
		node nominated devices=3
		node empty devices=3
		pod helps/a priority=1 device=0 uses=2
		pod too-small/b priority=1 device=0 uses=2
		pod same/c priority=10 device=0 uses=2
		pod nominated/d priority=1 device=0 uses=2
		incoming priority=10 uses=4`, "")
	for want, change := range map[string]func(pod *corev1.Pod){
		"empty nominated same too-small": func(*corev1.Pod) {},
		"empty same too-small":           func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "nominated" },
		"":                               func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = new(corev1.PreemptNever) },
	} {
		pod := s.pod.DeepCopy()
		change(pod)
		e := newEngine(t, engine.WeightedPolicy{Name: "OneDevice", Policy: new(oneDevice)})
		if got := unresolvable(t, e, engine.Request{Pod: pod, View: s.view, Nodes: allNodes(s.view)}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// For pods without a signature, a call evaluates a limited number of nodes without pods. For others, the next call evaluates none again.
func TestMarkUnresolvableIsBounded(t *testing.T) {
	const nodes = 1500
	var builder snapshot.Builder
	for i := range nodes {
		builder.SetNode(object(fmt.Sprintf("n%04d", i)))
		builder.SetPod(scenePod(t, fmt.Sprintf("n%04d", i), fmt.Sprintf("p%04d", i), nil))
	}
	view := builder.View()
	for signature, want := range map[string]struct{ marked, calls int }{"": {1000, 1000}, "signed": {nodes, 0}} {
		empty := 0
		full := &fake{signature: signature, filter: func(n *snapshot.Node) policy.Verdict {
			if len(n.Pods) == 0 {
				empty++
			}
			return policy.Verdict{Reason: noDevice}
		}}
		passes := &fake{signature: "signed", filter: func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }}
		e := newEngine(t, engine.WeightedPolicy{Name: "Passes", Policy: passes}, engine.WeightedPolicy{Name: "Full", Policy: full})
		for range 2 {
			empty = 0
			pod := scenePod(t, "", "incoming", map[string]string{"priority": "1"})
			if got := strings.Fields(unresolvable(t, e, engine.Request{Pod: pod, View: view, Nodes: allNodes(view)})); len(got) != want.marked {
				t.Errorf("signature %q: %d nodes are marked, want %d", signature, len(got), want.marked)
			}
		}
		if empty != want.calls {
			t.Errorf("signature %q: the second call evaluates %d nodes without pods, want %d", signature, empty, want.calls)
		}
	}
}

// A node is marked as unresolvable if and only if the pod would not fit there without any pods of lower priority, whatever calls came
// before about the same nodes.
func TestMarkUnresolvableEqualsBruteForce(t *testing.T) {
	e, others := crowdedEngine(t), crowdedEngine(t)
	r := rand.New(rand.NewPCG(2, 1))
	marked, left := 0, 0
	for n := range *crowdedCases / 4 {
		w, drawn, _ := drawCrowded(t, r, others)
		nominated := w.nominated
		w.nominated = nil
		builder := w.builder()
		for i := range 6 {
			if i == 3 { // the nodes are the same
				w.nominated = nominated
				for _, pod := range nominated {
					builder.SetPod(pod)
				}
			}
			view, pod := builder.View(), drawn.DeepCopy()
			pod.Spec.Priority = new(int32(10 + 20*(i%2)))
			req := asking(pod, view, w.nodes[0].Name)
			if fits, err := e.FitsAny(t.Context(), req); fits || err != nil {
				continue
			}
			got := unresolvable(t, e, req) != ""
			leaving, eligible := w.split(pod, nil)
			lower := slices.ContainsFunc(req.Nodes[0].Pods, func(p *corev1.Pod) bool { return *p.Spec.Priority < *pod.Spec.Priority })
			helps := lower && w.someSetSuffices(t, others, pod, leaving, eligible)
			if got == helps {
				t.Errorf("case %d, priority %d: unresolvable is %t, although a set of victims suffices: %t", n, *pod.Spec.Priority, got, helps)
			}
			if helps {
				left++
			} else {
				marked++
			}
		}
	}
	t.Logf("marked: %d, left: %d", marked, left)
	if least := *crowdedCases / 50; marked < least || left < least {
		t.Error("too few cases of a kind")
	}
}
