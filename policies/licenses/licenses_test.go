package licenses_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, licenses.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	for name, config := range map[string]string{
		"floating": `{features: [{name: solver, seats: 3, resource: example.com/solver, maxPerNamespace: 2}, {name: cad, seats: 1}]}`,
		"server": `{whenStale: Reject, features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}, reservedSeats: 1},
{name: cad, seats: 4, server: {signal: flexnet, feature: CAD}}]}`,
		"nodes": `{features: [{name: solver, nodeLabel: {key: example.com/solver}, seatsPerNode: 2}, {name: cad, nodeLabel: {key: example.com/solver, values: [new]}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Options{
				New:   policytest.FromYAML(licenses.Type(), config),
				Pools: name != "nodes",
				Pods: policytest.Pods(`
- {metadata: {name: one, annotations: {outboard.dev/licenses: "solver=1"}}}
- {metadata: {name: both, annotations: {outboard.dev/licenses: "cad, solver=2"}}}
- {metadata: {name: wrong, annotations: {outboard.dev/licenses: "solver=x"}}}
- {metadata: {name: none}, spec: {containers: [{name: c}]}}
`),
				Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {example.com/solver: old}}
- metadata: {name: b, labels: {example.com/solver: new}}
- metadata: {name: c}
`),
				Assigned: policytest.Pods(`
- {metadata: {name: p1, uid: p1, annotations: {outboard.dev/licenses: "solver=1"}}, spec: {nodeName: a}}
- {metadata: {name: p2, uid: p2, annotations: {outboard.dev/licenses: "solver=2"}}, spec: {nodeName: b}}
`),
				Signals: policytest.Signals(`
flexnet: {solver/total: 4, solver/used: 1, CAD/total: 1, CAD/used: {number: 1, stale: true}}
`),
			})
		})
	}
}

// A pod gets all seats that it needs or none.
func TestSeveralFeatures(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 3}, {name: cad, seats: 1}, {name: mesh, nodeLabel: {key: mesh}, seatsPerNode: 1, seats: 2}]}`)
	w := newWorld("a")
	w.nodes[0].Labels = map[string]string{"mesh": ""}
	keys, err := p.(policy.Reserver).Ledgers(needing("x", "all", "solver=2,mesh,cad=1"), w.view().Node("a"))
	want := []snapshot.LedgerKey{pool("cad"), {Resource: "licenses/mesh", Node: "a"}, pool("mesh"), pool("solver")}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("the ledgers are %v (%v), want %v", keys, err, want)
	}
	w.bind(t, p, needing("x", "all", "solver=2,mesh,cad=1"), "a")
	expect(t, "with no cad left", w.allocation(t, p, needing("x", "more", "solver, cad"), "a"), "NoFreeSeat 0/1 seats")
	expect(t, "with no mesh left on the node", w.allocation(t, p, needing("x", "mesh", "mesh"), "a"), "NoFreeNodeSeat 0/1 seats")
	expect(t, "the solver that is left", w.allocation(t, p, needing("x", "more", "solver"), "a"), "fits")
}

func TestNamespacesHaveLimits(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 10, maxPerNamespace: 3}]}`)
	w := newWorld("a")
	w.bind(t, p, needing("x", "first", "solver=2"), "a")
	expect(t, "past the limit", w.filter(t, p, needing("x", "second", "solver=2"), "a"), "NamespaceLimit! 1/2 seats")
	expect(t, "an allocation past the limit", w.allocation(t, p, needing("x", "second", "solver=2"), "a"), "NamespaceLimit! 1/2 seats")
	expect(t, "up to the limit", w.allocation(t, p, needing("x", "second", "solver"), "a"), "fits")
	expect(t, "another namespace", w.allocation(t, p, needing("y", "second", "solver=3"), "a"), "fits")
	none := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 10, maxPerNamespace: 0}]}`)
	expect(t, "a limit of 0", w.filter(t, none, needing("z", "first", "solver"), "a"), "NamespaceLimit! 0/1 seats")
}

// If the used seats include those of pods, the server also counts pods that have checked out their
// seats.
func TestSeatsOfPodsAreCountedOnce(t *testing.T) {
	const server = `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: %t}}]}`
	for _, tc := range []struct {
		name         string
		includesPods bool
		used         string
		allocated    time.Duration // before the server's reading
		want         string
	}{
		{"the server excludes pods", false, "5", time.Hour, "fits"},                        // 10 - 5 - 4
		{"the server should exclude pods", false, "9", time.Hour, "NoFreeSeat 0/1 seats"},  // 10 - 9 - 4
		{"checked out", true, "9", time.Hour, "fits"},                                      // 10 - (9-4) - 4
		{"checked out, and all seats used", true, "10", time.Hour, "NoFreeSeat 0/1 seats"}, // 4 of them by pods here
		{"just checked out", true, "9", 5 * time.Minute, "fits"},                           // the shortest time that suffices
		{"not checked out yet", true, "5", 5*time.Minute - time.Microsecond, "fits"},       // 10 - 5 - 4
		{"possibly checked out", true, "6", 5*time.Minute - time.Microsecond, "NoFreeSeat 0/1 seats"},
		{"allocated after the server counted", true, "6", -time.Second, "NoFreeSeat 0/1 seats"},
		{"allocated, and never checked out", true, "0", time.Hour, "fits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policytest.Build(t, licenses.Type(), fmt.Sprintf(server, tc.includesPods))
			w := newWorld("a")
			w.now = policytest.Now.Add(-tc.allocated).Add(-time.Microsecond)
			w.signals = toldAt(w.now, map[string]string{"solver/total": "10", "solver/used": "0"})
			w.bind(t, p, needing("x", "first", "solver=4"), "a")
			w.signals = told(map[string]string{"solver/total": "10", "solver/used": tc.used})
			pod := needing("x", "second", "solver")
			expect(t, "Filter", w.filter(t, p, pod, "a"), tc.want)
			expect(t, "Reserve", strings.Replace(w.allocation(t, p, pod, "a"), "!", "", 1), strings.Replace(tc.want, "!", "", 1))
		})
	}
}

// No reading causes a panic, and an invalid reading allows no allocation.
func TestHostileServers(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, reservedSeats: 1, server: {signal: flexnet}}]}`)
	for values, want := range map[[2]string]string{
		{"-5", "0"}:       "TooFewSeats! 0/1 seats",
		{"10", "-5"}:      "fits",
		{"1e300", "0"}:    "fits",
		{"10", "1e300"}:   "NoFreeSeat! 0/1 seats",
		{"2.9", "0.1"}:    "NoFreeSeat! 0/1 seats", // 2 - 1 - 1
		{"10", "8"}:       "fits",
		{"10", "9"}:       "NoFreeSeat! 0/1 seats",
		{"0", "0"}:        "TooFewSeats! 0/1 seats",
		{"-1e300", "1e9"}: "TooFewSeats! 0/1 seats",
	} {
		w := newWorld("a")
		w.signals = told(map[string]string{"solver/total": values[0], "solver/used": values[1]})
		pod := needing("x", "p", "solver")
		expect(t, fmt.Sprint(values), w.filter(t, p, pod, "a"), want)
		expect(t, fmt.Sprint(values), strings.Replace(w.allocation(t, p, pod, "a"), "!", "", 1), strings.Replace(want, "!", "", 1))
	}
}

// If users outside the cluster use seats that pods hold, the policy allocates no more seats, and
// pods keep theirs.
func TestSeatsThatAreGone(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet}}]}`)
	w := newWorld("a")
	w.signals = told(map[string]string{"solver/total": "10", "solver/used": "0"})
	w.bind(t, p, needing("x", "first", "solver=8"), "a")
	w.signals = told(map[string]string{"solver/total": "10", "solver/used": "6"})
	expect(t, "over-booked", w.allocation(t, p, needing("x", "second", "solver"), "a"), "NoFreeSeat 0/1 seats")
	expect(t, "a pod that has its seats", w.allocation(t, p, needing("x", "first", "solver=8"), "a"), "fits")
	expect(t, "eight evicted seats are six", w.filter(t, p, needing("x", "second", "solver=5"), "a"), "NoFreeSeat! 0/5 seats")
	expect(t, "four of them are left for pods", w.filter(t, p, needing("x", "second", "solver=4"), "a"), "NoFreeSeat 0/4 seats")
}

// Preemption frees only the seats of pods on the node.
func TestPreemption(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 4}]}`)
	w := newWorld("a", "b", "c")
	w.bind(t, p, needing("x", "here", "solver=2"), "a")
	w.bind(t, p, needing("x", "there", "solver"), "b")
	expect(t, "the allocation of a pod on its way", w.allocation(t, p, needing("x", "coming", "solver"), "a"), "fits")
	view := w.view()
	without := func(node, pod string) *snapshot.Node {
		return view.Node(node).Without(func(p *corev1.Pod) bool { return p.Name == pod })
	}
	two, three, four := needing("x", "two", "solver=2"), needing("x", "three", "solver=3"), needing("x", "four", "solver=4")
	expect(t, "as it is", policytest.Says(prepare(t, p, two, view).Filter(view.Node("a"))), "NoFreeSeat 0/2 seats")
	expect(t, "without the pod", policytest.Says(prepare(t, p, two, view).Filter(without("a", "here"))), "fits")
	expect(t, "a pod on its way is not gone", policytest.Says(prepare(t, p, three, view).Filter(without("a", "here"))), "NoFreeSeat 2/3 seats")
	expect(t, "without the pod, too many seats elsewhere", policytest.Says(prepare(t, p, four, view).Filter(without("a", "here"))), "NoFreeSeat! 2/4 seats")
	expect(t, "too many seats elsewhere", policytest.Says(prepare(t, p, four, view).Filter(view.Node("a"))), "NoFreeSeat! 0/4 seats")
	expect(t, "a node with too few", policytest.Says(prepare(t, p, two, view).Filter(view.Node("b"))), "NoFreeSeat! 0/2 seats")
	expect(t, "a node with none", policytest.Says(prepare(t, p, two, view).Filter(view.Node("c"))), "NoFreeSeat! 0/2 seats")
	expect(t, "a node with pods to come", policytest.Says(prepare(t, p, two, view).Filter(view.Node("a").With(needing("x", "coming", "solver")))), "NoFreeSeat 0/2 seats")
	expect(t, "an unknown node", policytest.Says(prepare(t, p, two, view).Filter(snapshot.NewNode(&corev1.Node{}))), "NoFreeSeat! 0/2 seats")
}

// If nodes have their own seats, pods without an allocation also hold seats.
func TestNodesHaveSeats(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seatsPerNode: 3, nodeLabel: {key: gpu, values: [new]}}]}`)
	w := newWorld("a")
	w.nodes[0].Labels = map[string]string{"gpu": "new"}
	before := needing("x", "before", "solver=2")
	before.Spec.NodeName = "a"
	w.pods = append(w.pods, before)
	expect(t, "an allocation with one left", w.allocation(t, p, needing("x", "pod", "solver=2"), "a"), "NoFreeNodeSeat 1/2 seats")
	expect(t, "more than there are", w.filter(t, p, needing("x", "pod", "solver=4"), "a"), "TooFewNodeSeats! 3/4 seats")
	w.bind(t, p, needing("x", "one", "solver"), "a")
	expect(t, "the last seat", w.filter(t, p, needing("x", "two", "solver"), "a"), "NoFreeNodeSeat 0/1 seats")
	expect(t, "a pod that has its seats", w.filter(t, p, needing("x", "one", "solver"), "a"), "fits")
}

func TestExplain(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, reservedSeats: 1, server: {signal: flexnet}}, {name: cad, seats: 2},
{name: mesh, seatsPerNode: 2}, {name: viewer, seats: 1, server: {signal: flexnet}}]}`)
	w := newWorld("a")
	w.signals = told(map[string]string{"solver/total": "30", "solver/used": "{number: 4, stale: true}"})
	for i := range 22 {
		w.bind(t, p, needing("x", fmt.Sprintf("p%02d", i), "solver"), "a")
	}
	w.bind(t, p, needing("y", "q", "solver=3,mesh=2"), "a")
	view := w.view()
	c := prepare(t, p, needing("x", "new", "solver=2,cad,mesh,viewer"), view)
	said := c.Explain(nil)
	want := []string{
		"cad: requests 1 seat of 2; 0 allocated by pods",
		"solver: requests 2 seats of 30; 4 used by others (signal flexnet is stale for solver/used, 4 at 2026-01-01T12:00:00Z); 1 reserved; 25 allocated by pods: " +
			"y/q (3), x/p00 (1), x/p01 (1), x/p02 (1), x/p03 (1), x/p04 (1), x/p05 (1), x/p06 (1), and 15 more",
		"viewer: requests 1 seat of 1; unknown how many are used by others (signal flexnet has no value for viewer/used); 0 allocated by pods",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the explanation of the pod is\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	important := needing("y", "important", "solver=4")
	important.Spec.Priority, important.Status.NominatedNodeName = new(int32(10)), "a"
	w.pods = append(w.pods, important)
	w.signals = told(map[string]string{"solver/total": "40", "solver/used": "4"})
	said = prepare(t, p, needing("x", "new", "solver"), w.view()).Explain(nil)
	if len(said) != 1 || !strings.HasPrefix(said[0], "solver: requests 1 seat of 40; 4 used by others as of 2026-01-01T12:00:00Z; ") ||
		!strings.HasSuffix(said[0], "; 4 kept for nominated pods") {
		t.Errorf("with a nominated pod and a current signal, the explanation is %q", said)
	}
	if said := c.Explain(view.Node("a")); !slices.Equal(said, []string{"mesh: requests 1 seat of 2 on the node; 2 used: y/q (2)"}) {
		t.Errorf("the explanation of the node is %q", said)
	}
}

// The signals have the names of the fields in the configuration.
func TestSignals(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: b, server: {signal: one}}, {name: c, seats: 1}, {name: a, server: {signal: two}}]}`)
	want := []policy.Signal{
		{Field: "features[0].server.signal", Name: "one", About: policy.AboutKeys},
		{Field: "features[2].server.signal", Name: "two", About: policy.AboutKeys},
	}
	if got := p.(policy.InputReader).Inputs().Signals; !slices.Equal(got, want) {
		t.Errorf("the signals are %v, want %v", got, want)
	}
}

// If the caller passes a ledger that the pod does not need, the policy allocates nothing of it.
func TestForeignLedger(t *testing.T) {
	p := policytest.Build(t, licenses.Type(), `{features: [{name: solver, seats: 1}, {name: cad, seats: 1}]}`)
	view := newWorld("a").view()
	for _, text := range []string{"solver", "", "solver=x"} {
		allocation, verdict := p.(policy.Reserver).Reserve(policy.ReserveRequest{
			Pod: needing("x", "p", text), Node: view.Node("a"), View: view, Ledger: &snapshot.Ledger{Resource: "licenses/cad"},
		})
		if verdict.Fits() || len(allocation.Amounts) > 0 {
			t.Errorf("%q gets %v of a ledger it does not need", text, allocation)
		}
	}
}

// BenchmarkLicenses is the worst case: no seat is free, and the server counts pods too.
func BenchmarkLicenses(b *testing.B) {
	p := policytest.Build(b, licenses.Type(), `{features: [{name: solver, server: {signal: flexnet, usedIncludesPods: true}}]}`)
	w := newWorld()
	for i := range 1000 {
		w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})
	}
	w.signals = told(map[string]string{"solver/total": "400", "solver/used": "0"})
	for i := range 400 {
		w.bind(b, p, needing("x", fmt.Sprintf("p%03d", i), "solver"), fmt.Sprintf("n%03d", i/10))
	}
	w.signals = told(map[string]string{"solver/total": "400", "solver/used": "400"})
	view, pod := w.view(), needing("x", "new", "solver")
	policytest.Benchmark(b, p, pod, view)
}
