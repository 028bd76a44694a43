package binder_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/binder"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

func named(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// flight is a pod in flight.
type flight struct {
	pod  *corev1.Pod
	node string
	end  func()
}

// moment is what a call sees, and the result for a pod that is not in flight.
type moment struct {
	view     *snapshot.View
	pods     *binder.Pods
	flights  []flight
	complete *snapshot.View
}

// on returns the pods in flight to the node.
func (m *moment) on(node string) (pods []*corev1.Pod) {
	for _, f := range m.flights {
		if f.node == node {
			pods = append(pods, f.pod)
		}
	}
	return pods
}

// want returns the names of all pods that count on the node for the pod that asks.
func (m *moment) want(node, asking string) []string {
	names := []string{}
	for _, pod := range m.view.Node(node).Pods {
		names = append(names, pod.Name)
	}
	for _, pod := range m.on(node) {
		if pod.Name != asking {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// check fails the test unless the View has the pods in flight for the pod that asks.
func (m *moment) check(t *rapid.T, complete *snapshot.View, asking string) {
	if complete.Generation() != m.view.Generation() || complete.Len() != m.view.Len() {
		t.Fatalf("got View %d with %d nodes, want View %d with %d", complete.Generation(), complete.Len(), m.view.Generation(), m.view.Len())
	}
	for n := range m.view.All() {
		var got []string
		for _, pod := range complete.Node(n.Name).Pods {
			got = append(got, pod.Name)
		}
		if slices.Sort(got); !slices.Equal(got, m.want(n.Name, asking)) {
			t.Fatalf("for pod %s, node %s has pods %q, want %q", asking, n.Name, got, m.want(n.Name, asking))
		}
		if !slices.Equal(m.pods.On(n.Name), m.on(n.Name)) {
			t.Fatalf("node %s has %d pods in flight, want %d, or others", n.Name, len(m.pods.On(n.Name)), len(m.on(n.Name)))
		}
		if len(got) == len(n.Pods) && complete.Node(n.Name) != n {
			t.Fatalf("node %s is another one than in the View, without a pod in flight", n.Name)
		}
	}
}

// checkKept fails the test unless the nodes that have not changed since the last call are the same.
func (m *moment) checkKept(t *rapid.T, last *moment) {
	for n := range m.view.All() {
		if last.view.Node(n.Name) == n && slices.Equal(last.on(n.Name), m.on(n.Name)) && last.complete.Node(n.Name) != m.complete.Node(n.Name) {
			t.Fatalf("node %s is another one than at the last call, without a change", n.Name)
		}
	}
}

// A View with the pods in flight has each of them on its node, except the pod of the request and those that the View shows itself.
// A node whose pods have not changed since the last call is the same, with its facts. Concurrent calls may have an earlier View.
func TestInFlightComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("n%03d", rapid.IntRange(0, 200).Draw(t, "node")) })
		for i := range 200 {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})
		}
		f := new(binder.InFlight)
		var flights []flight
		started := 0
		moments := []*moment{{view: b.View()}}
		var last *moment // of the latest call with pods in flight; nil: none since InFlight had no pods
		pick := func() int { return rapid.IntRange(0, len(flights)-1).Draw(t, "flight") }
		begin := func(pod *corev1.Pod, node string) { flights = append(flights, flight{pod, node, f.Begin(node, pod)}) }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				started++
				begin(named(fmt.Sprint("p", started)), name.Draw(t, "node"))
			},
			"begin beside another": func(t *rapid.T) {
				if len(flights) > 0 {
					started++
					begin(named(fmt.Sprint("p", started)), flights[pick()].node)
				}
			},
			"begin once more": func(t *rapid.T) {
				if len(flights) > 0 {
					begin(flights[pick()].pod.DeepCopy(), name.Draw(t, "node"))
				}
			},
			"bound": func(t *rapid.T) {
				if len(flights) > 0 {
					i := pick()
					pod := flights[i].pod.DeepCopy()
					pod.Spec.NodeName = flights[i].node
					b.SetPod(pod)
				}
			},
			"node": func(t *rapid.T) {
				labels := map[string]string{"draw": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "label")}
				b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name.Draw(t, "node"), Labels: labels}})
			},
			"no node": func(t *rapid.T) { b.DeleteNode(name.Draw(t, "node")) },
			"end": func(t *rapid.T) {
				if len(flights) > 0 {
					i := pick()
					flights[i].end()
					flights = slices.Delete(flights, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				asking := "nobody"
				if len(flights) > 0 && rapid.Bool().Draw(t, "one of the pods asks") {
					asking = flights[pick()].pod.Name
				}
				m := &moment{view: b.View(), pods: f.Now(), flights: slices.Clone(flights)}
				if (m.pods == nil) != (len(flights) == 0) {
					t.Fatalf("Now returns %v with %d pods in flight", m.pods, len(flights))
				}
				if len(flights) == 0 {
					last = nil // the InFlight keeps no nodes
				}
				if moments = append(moments, m); rapid.IntRange(0, 3).Draw(t, "call") == 0 {
					m = rapid.SampledFrom(moments[max(0, len(moments)-4):]).Draw(t, "moment")
				}
				m.check(t, f.Complete(m.view, m.pods, types.UID(asking)), asking)
				m.complete = f.Complete(m.view, m.pods, "nobody")
				if m.check(t, m.complete, "nobody"); last != nil {
					m.checkKept(t, last)
				}
				if m.pods != nil {
					last = m
				}
			},
		})
	})
}

func TestInFlightIsSafeForConcurrentUse(t *testing.T) {
	view := newAPIServer().view
	f := new(binder.InFlight)
	var bound sync.WaitGroup
	for i := range 8 {
		bound.Go(func() {
			for j := range 100 {
				pod := named(fmt.Sprint(i, "-", j))
				end := f.Begin("a", pod)
				if !f.Complete(view, f.Now(), "nobody").Node("a").Has(pod.UID) {
					t.Errorf("pod %s does not count while it is in flight", pod.Name)
				}
				end()
			}
		})
	}
	bound.Wait()
	if f.Now() != nil {
		t.Errorf("got %v when no pod is in flight", f.Now())
	}
}

// The planned annotations are those that Bind would write, and planning claims nothing.
func TestWithPlannedClaims(t *testing.T) {
	claimOf := func(pod string) *snapshot.Ledger {
		return &snapshot.Ledger{
			Resource: unit, Node: "a", Pods: []snapshot.LedgerPod{{UID: types.UID(pod), Node: "a", Annotations: map[string]string{unit: "held"}}},
			Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 1, Claims: []snapshot.LedgerClaim{{Pod: types.UID(pod), Amount: 1}}}},
		}
	}
	for _, tc := range []struct {
		name     string
		needs    string
		ledger   *snapshot.Ledger
		unusable bool
		want     string // the annotation: "", "held" or "new"
		claims   bool
	}{
		{"needs nothing", "nothing", nil, false, "", false},
		{"no ledger", "a unit", nil, false, "new", true},
		{"holds a claim", "a unit", claimOf("u"), false, "held", true},
		{"holds a claim that cannot be used", "a unit", claimOf("u"), true, "new", true},
		{"nothing is left", "a unit", claimOf("other"), false, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			if tc.ledger != nil {
				b.SetLedger(tc.ledger)
			}
			view := b.View()
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: &oneUnit{unusable: func() bool { return tc.unusable }}}}})
			if err != nil {
				t.Fatal(err)
			}
			pod := newPod()
			pod.Labels = map[string]string{"needs": tc.needs}
			planned, claims := binder.WithPlannedClaims(context.Background(), e, view, pod, view.Node("a"))
			got := planned.Annotations[unit]
			if strings.HasPrefix(got, "20") { // a time
				got = "new"
			}
			if got != tc.want || claims != tc.claims || pod.Annotations != nil {
				t.Errorf("got annotation %q and claims %v, want %q and %v", planned.Annotations[unit], claims, tc.want, tc.claims)
			}
		})
	}
}
