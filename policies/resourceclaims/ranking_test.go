package resourceclaims_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/policies/resourceclaims"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
)

func TestLeastWasteConformance(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New:    policytest.FromYAML(resourceclaims.Type(), leastWaste),
		Pods:   []*corev1.Pod{claiming("share"), claiming("two"), claiming("part"), claiming("share", "part"), claiming()},
		Nodes:  policytest.Nodes(nodes),
		Extend: policytest.Devices(objects(t)),
	})
}

// Pods have requested 6 and 8 of 16. A pod with 8 gets the node whose first GPU with room has 14,
// where a pod with 6 then fits, and a pod with 6 that with 13: the claims teach what pods request,
// and the device is the first in the order of the slices.
func TestLeastWasteLearnsFromClaims(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		w, p := newGPUWorld(), build(t, leastWaste)
		first, second := 0, 1
		if reversed {
			first, second = 1, 0
		}
		for name, used := range map[string]int64{"fourteen": 2, "thirteen": 3} {
			w.node(name, "T4", 2, reversed)
			w.come(allocated(w.claim("old-"+name, 1, used), name, used, first), name)
			w.come(allocated(w.claim("full-"+name, 1, 11), name, 11, second), name)
		}
		for i := range 400 {
			pod := w.come(w.claim(fmt.Sprint("past-", i), 1, []int64{6, 8}[i%2]), "")
			if i%4 == 3 {
				w.DeletePod(pod.UID)
			}
		}
		for memory, want := range map[int64]string{6: "thirteen", 8: "fourteen"} {
			pod := w.come(w.claim(fmt.Sprint("new-", memory), 1, memory), "")
			view := w.View()
			c := policytest.Prepare[policy.Score](t, p, pod, view)
			other := map[string]string{"thirteen": "fourteen", "fourteen": "thirteen"}[want]
			if c.Score(view.Node(want)) <= c.Score(view.Node(other)) {
				t.Errorf("reversed %v: a pod with %d is better on %s (%d) than on %s (%d)", reversed, memory, other, c.Score(view.Node(other)), want, c.Score(view.Node(want)))
			}
		}
	}
}

// A claim has a shape if kube-scheduler allocates the same for it on each kind of empty node, as
// the arithmetic does.
func TestClaimsWithAShape(t *testing.T) {
	w, p := newGPUWorld(), build(t, leastWaste)
	w.node("a", "T4", 2, false)
	w.node("b", "P100", 4, false)
	w.node("c", "A100", 2, false)
	both := w.claim("several", 1, 4)
	both.Spec.Devices.Requests = append(both.Spec.Devices.Requests, both.Spec.Devices.Requests[0])
	both.Spec.Devices.Requests[1].Name = "other"
	admin := w.claim("admin", 1, 0)
	admin.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	all := w.claim("all", 0, 0)
	all.Spec.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	for _, tt := range []struct {
		claim *resourcev1.ResourceClaim
		want  string // "": BinPack
		none  string // the nodes without a score
	}{
		{w.claim("share", 1, 4), "LeastWaste", ""},
		{w.claim("whole", 1, 0), "LeastWaste", ""},
		{w.claim("sixteen", 1, 16), "LeastWaste", ""},
		{w.claim("two", 2, 0), "LeastWaste", ""},
		{w.claim("four", 4, 0), "LeastWaste", "ac"},
		{w.claim("shares of two", 2, 4), "LeastWaste", ""},
		{w.claim("all of some GPUs, twice", 2, 16), "LeastWaste", ""},
		{w.claim("shares of four", 4, 4), "LeastWaste", "ac"},
		{w.claim("a large share", 1, 17), "LeastWaste", "ab"},
		{w.claim("model", 1, 4, `device.attributes["gpu.example.com"].model == "P100"`), "LeastWaste", "ac"},
		{w.claim("not the first", 1, 4, `device.attributes["gpu.example.com"].index == 1`), "", ""},
		{w.claim("one GPU", 1, 4, `device.attributes["gpu.example.com"].uuid == "b-0"`), "LeastWaste", "ac"},
		{w.claim("too large", 1, 41), "", ""},
		{both, "", ""},
		{admin, "", ""},
		{all, "", ""},
	} {
		pod := w.come(tt.claim, "")
		view := w.View()
		c := policytest.Prepare[policy.Explainer](t, p, pod, view)
		if got := strings.Join(c.Explain(nil), " "); tt.want == "" && !strings.HasPrefix(got, "scores: BinPack") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s", tt.claim.Name, got)
		}
		for _, n := range []string{"a", "b", "c"} {
			if score := c.(policy.Score).Score(view.Node(n)); tt.want != "" && (score == policy.NoOpinion) != strings.Contains(tt.none, n) {
				t.Errorf("%s: the score of %s is %d", tt.claim.Name, n, score)
			}
		}
	}
}

// Several claims have a shape together if they get whole devices. Two shares are of one device, the
// first: then nodes are scored with BinPack, with the devices of all claims.
func TestSeveralClaims(t *testing.T) {
	w, p := newGPUWorld(), build(t, leastWaste)
	for _, n := range []string{"a", "b"} {
		w.node(n, "T4", 2, false)
	}
	w.come(allocated(w.claim("held", 1, 8), "b", 8, 0), "b")
	for _, tt := range []struct {
		memory [2]int64
		want   string
		a, b   int64 // the scores with BinPack: what is used of two GPUs
	}{
		{[2]int64{0, 0}, "LeastWaste", 0, 0},
		{[2]int64{16, 0}, "LeastWaste", 0, 0},
		{[2]int64{4, 4}, "scores: BinPack", 25, 50},
		{[2]int64{4, 12}, "scores: BinPack", 50, 75},
		{[2]int64{4, 0}, "scores: BinPack", 62, 87},
	} {
		var names []string
		for i, memory := range tt.memory {
			names = append(names, fmt.Sprint("claim-", i))
			w.SetResourceClaim(w.claim(names[i], 1, memory))
		}
		pod, view := claiming(names...), w.View()
		c := policytest.Prepare[policy.Explainer](t, p, pod, view)
		if got := strings.Join(c.Explain(nil), " "); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%v: %s, want %s", tt.memory, got, tt.want)
		}
		if got, want := scores(t, p, pod, view), []int64{tt.a, tt.b}; tt.a > 0 && !slices.Equal(got, want) {
			t.Errorf("%v: the scores are %v, want %v", tt.memory, got, want)
		}
	}
}

// A claim for shares of several GPUs has a place where kube-scheduler's allocator finds one.
func TestSharesOfSeveralGPUs(t *testing.T) {
	random, allocator := rand.New(rand.NewPCG(7, 8)), firstfit.New()
	w, p := newGPUWorld(), build(t, leastWaste)
	for i := range 8 {
		name := fmt.Sprint("n", i)
		w.node(name, "T4", 4, i%2 == 1)
		for gpu := range 4 {
			if used := int64(random.IntN(16)); used > 0 {
				w.come(allocated(w.claim(fmt.Sprint("old-", i, "-", gpu), 1, used), name, used, gpu), name)
			}
		}
	}
	fits, rejects := 0, 0
	for i := range 60 {
		pod := w.come(w.claim(fmt.Sprint("new-", i), 2+int64(i%2), 1+int64(random.IntN(15))), "")
		view := w.View()
		found := scoresWhereAllocated(t, p, allocator, pod, view)
		fits, rejects = fits+len(found), rejects+8-len(found)
	}
	if fits < 50 || rejects < 50 {
		t.Errorf("%d fit, and %d do not", fits, rejects)
	}
}

// A policy that has seen a sequence of views scores as a new policy does: nodes, slices and classes
// change, pods come with claims and go, and the workload model changes several times.
func TestWhatIsKeptChangesNoScore(t *testing.T) {
	for _, config := range []string{leastWaste, ""} {
		t.Run(config, func(t *testing.T) { compareWithNew(t, config) })
	}
}

func compareWithNew(t *testing.T, config string) {
	random := rand.New(rand.NewPCG(3, 4))
	w, old := newGPUWorld(), build(t, config)
	for i := range 6 {
		w.node(fmt.Sprint("n", i), []string{"T4", "P100"}[i%2], 1+i%3, false)
	}
	var placed []*resourcev1.ResourceClaim
	states := map[string]bool{} // workload models, or the scores of all nodes
	for step := range 150 {
		claim := w.claim(fmt.Sprint("c", step), 1, []int64{0, 4, 6, 10}[random.IntN(4)])
		if random.IntN(5) == 0 {
			claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].model == "T4"`}}}
		}
		switch random.IntN(12) {
		case 0:
			w.node(fmt.Sprint("n", random.IntN(6)), "T4", 1+random.IntN(3), random.IntN(2) == 0)
		case 1:
			w.DeleteNode(fmt.Sprint("n", random.IntN(6)))
		case 2: // now the class selects something else
			w.class("gpu", []string{`device.driver == "gpu.example.com"`, `device.attributes["gpu.example.com"].model == "P100"`}[random.IntN(2)])
		}
		pod := w.come(claim, "")
		view := w.View()
		if random.IntN(2) == 0 {
			old.(policy.Precomputer).Precompute(view)
		}
		got, want := scores(t, old, pod, view), scores(t, build(t, config), pod, view)
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: the scores are %v, and of a new policy %v", step, got, want)
		}
		if config == leastWaste {
			states[strings.Join(policytest.Prepare[policy.Explainer](t, old, pod, view).Explain(nil), "")] = true
		} else {
			states[fmt.Sprint(want)] = true
		}
		node := fmt.Sprint("n", random.IntN(6))
		held := allocated(claim, node, 1+random.Int64N(8), 0)
		w.come(held, node)
		if placed = append(placed, held); len(placed) > 8 {
			w.DeletePod(placed[0].UID)
			w.DeleteResourceClaim(placed[0])
			placed = placed[1:]
		}
	}
	if len(states) < 6 {
		t.Errorf("only %d states", len(states))
	}
}
