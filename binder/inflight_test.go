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

// A View with the pods in flight has each of them on its node, except the pod of the request and those that the View shows itself.
// The other nodes are those of the View, and a node that has not changed since the last call is the same, with its facts.
func TestInFlightComplete(t *testing.T) {
	type flight struct {
		pod  *corev1.Pod
		node string
		end  func()
	}
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		nodes := []string{"a", "b", "c"}
		for _, name := range nodes {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		f := new(binder.InFlight)
		var flights []flight
		started := 0
		bound := map[string]string{} // the nodes of pods that the View shows
		pick := func() int { return rapid.IntRange(0, len(flights)-1).Draw(t, "flight") }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				started++
				pod, node := named(fmt.Sprint("p", started)), rapid.SampledFrom([]string{"a", "b", "c", "unknown"}).Draw(t, "node")
				flights = append(flights, flight{pod, node, f.Begin(node, pod)})
			},
			"bound": func(t *rapid.T) {
				if len(flights) > 0 {
					i := pick()
					pod := flights[i].pod.DeepCopy()
					pod.Spec.NodeName = flights[i].node
					b.SetPod(pod)
					bound[pod.Name] = pod.Spec.NodeName
				}
			},
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
				view := b.View()
				all, again := f.Complete(view, f.Now(), types.UID(asking)), f.Complete(view, f.Now(), types.UID(asking))
				for _, node := range nodes {
					want := []string{}
					added := false
					for _, fl := range flights {
						if fl.node == node && bound[fl.pod.Name] == "" && fl.pod.Name != asking {
							want, added = append(want, fl.pod.Name), true
						}
					}
					for pod, on := range bound {
						if on == node {
							want = append(want, pod)
						}
					}
					slices.Sort(want)
					var got []string
					for _, pod := range all.Node(node).Pods {
						got = append(got, pod.Name)
					}
					slices.Sort(got)
					if !slices.Equal(got, want) {
						t.Fatalf("for pod %s, node %s has pods %q, want %q", asking, node, got, want)
					}
					if asking == "nobody" && again.Node(node) != all.Node(node) {
						t.Fatalf("the second call returns another node %s", node)
					}
					if !added && asking == "nobody" && all.Node(node) != view.Node(node) {
						t.Fatalf("node %s is another one than in the View, without a pod in flight", node)
					}
				}
				if (f.Now() == nil) != (len(flights) == 0) {
					t.Fatalf("Now returns %v with %d pods in flight", f.Now(), len(flights))
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
