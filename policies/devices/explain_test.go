package devices_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// said is the explanation of the node for a pod that requests something.
func (w *world) said(t *testing.T, config string, pod *corev1.Pod) string {
	t.Helper()
	p := policytest.Build(t, devices.Type(), config)
	c := policytest.Prepare[policy.Explainer](t, p, pod, new(snapshot.View))
	return strings.Join(c.Explain(w.snapshot()), " | ")
}

// The explanation of a node lists which pods hold what, what is free, and what is unusable.
func TestExplainNode(t *testing.T) {
	allocating := func(config string, node *corev1.Node, pods ...*corev1.Pod) *world {
		w, p := &world{node: node}, policytest.Build(t, devices.Type(), config)
		for _, pod := range pods {
			w.allocation(t, p, pod)
		}
		return w
	}
	mine := asking("mine", 2)
	partly := &world{node: naming("a,b,c,d=0", ""), pods: []*corev1.Pod{bound("x", 2, "b"), bound("y", 1, "-")}}
	held := allocating(named, naming("a,b,c", ""), mine)
	gone := allocating(named, naming("a,b,c", ""), asking("old", 2))
	gone.node = naming("b,c", "")
	broken := &world{node: counting(3)}
	broken.node.Status.Capacity = list(5)
	down := &world{node: counting(0)}
	down.node.Status.Capacity = list(5)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("n", i))
	}
	many := &world{node: naming(strings.Join(names, ","), "")}
	crowd := allocating(counted, counting(9), asking("a", 1), asking("b", 1), asking("c", 1), asking("d", 1), asking("e", 1))
	for _, tt := range []struct {
		name   string
		w      *world
		config string
		pod    *corev1.Pod
		want   string
	}{
		{"nothing in use", &world{node: naming("a,b,c", "")}, named, asking("p", 2), "the pod: would get a, b | the node: a (free), b (free), c (free)"},
		{"allocations", allocating(named, naming("a,b,c", ""), asking("x", 2)), named, asking("p", 1),
			"the pod: would get c | the node: a (in use by default/x), b (in use by default/x), c (free)"},
		{"no room", allocating(named, naming("a,b,c", ""), asking("x", 2)), named, asking("p", 2), "the node: a (in use by default/x), b (in use by default/x), c (free)"},
		{"its own allocation", held, named, mine, "the pod: already has a, b | the node: a (in use by default/mine), b (in use by default/mine), c (free)"},
		{"bound without allocations, out of use", partly, named, asking("p", 1),
			"the node: a (free), b (in use by default/x), c (free), d (out of use) | " +
				"pods on unknown units: default/x, default/y; 0 left in total"},
		{"of units that are gone", gone, named, asking("p", 1),
			"the node: b (in use by default/old), c (free) | pods on unknown units: default/old; 0 left in total"},
		{"shares", allocating(shared, naming("a,b=2", ""), asking("x", 3), asking("y", 1)), shared, asking("p", 2),
			"the pod: would get b | the node: a (free: 0 of 4; held by default/x (3), default/y (1)), b (free: 2 of 2)"},
		{"a pool", crowd, counted, asking("p", 1), "the node: free: 4 of 9; held by default/a, default/b, default/c, default/d, default/e"},
		{"unhealthy", broken, numbered, asking("p", 1),
			"the pod: would get 0 | the node: 0 (free), 1 (free), 2 (free) | unhealthy: 2 of 5 (in status.capacity, but not in status.allocatable)"},
		{"without the device plugin", down, numbered, asking("p", 1), "the node: allocatable 0 of 5 " + fpga},
		{"named twice", &world{node: naming("a,a", "a;a")}, grouped, asking("p", 1),
			`the node: annotation example.com/units is "a,a"; annotation example.com/groups is "a;a"`},
		{"too many", &world{node: counting(65)}, numbered, asking("p", 1), "the node: allocatable 65 " + fpga},
		{"none", &world{node: naming("", "")}, named, asking("p", 1), ""},
		{"very many", many, named, asking("p", 1), "n15 (free), and 4 more"},
	} {
		if got := tt.w.said(t, tt.config, tt.pod); got != tt.want && (tt.name != "very many" || !strings.HasSuffix(got, tt.want)) {
			t.Errorf("%s: the explanation is\n%q, want\n%q", tt.name, got, tt.want)
		}
	}
}

// The explanation of a pod shows what it holds, and where.
func TestExplainPod(t *testing.T) {
	w, p, pod := &world{node: naming("a,b,c", "")}, policytest.Build(t, devices.Type(), named), asking("mine", 2)
	w.allocation(t, p, pod)
	var b snapshot.Builder
	b.SetNode(w.node)
	b.SetLedger(w.ledger)
	for _, tt := range []struct{ pod, want string }{{"mine", "[the pod: has a, b on node n]"}, {"other", "[]"}} {
		c := policytest.Prepare[policy.Explainer](t, p, asking(tt.pod, 2), b.View())
		if got := fmt.Sprint(c.Explain(nil)); got != tt.want {
			t.Errorf("the explanation of %s is %s, want %s", tt.pod, got, tt.want)
		}
	}
}
