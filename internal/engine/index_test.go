package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// unitPolicy allocates one of a few units of each node: a pod that has one there already always
// fits, and no other pod counts its allocation.
type unitPolicy struct{ prepares }

func (unitPolicy) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	return []snapshot.LedgerKey{{Resource: "units", Node: n.Name}}, nil
}

func (unitPolicy) Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	return policy.Allocation{}, policy.Verdict{}
}

var noUnit = &policy.Reason{Code: "NoUnit", Text: "no unit is free"}

func newUnitPolicy() unitPolicy {
	return unitPolicy{func(pod *corev1.Pod) policy.Cycle {
		taken := func(n *snapshot.Node) (units int64, own bool) {
			for _, p := range n.Pods {
				units, own = units+1, own || p.UID == pod.UID
			}
			if l := n.Ledger("units"); l != nil {
				units, own = units+int64(len(l.Pods)), own || l.Pod(pod.UID) != nil
			}
			return units, own
		}
		return counted{key: "unit", filter: func(n *snapshot.Node) policy.Verdict {
			if units, own := taken(n); units >= 2 && !own {
				return policy.Verdict{Reason: noUnit, Have: units, Want: 1}
			}
			return policy.Verdict{}
		}, score: func(n *snapshot.Node) int64 {
			units, own := taken(n)
			if own {
				return policy.MaxScore
			}
			return min(units*9, policy.MaxScore)
		}}
	}}
}

// ranked normalizes by rank. Its scores depend on the size of the whole View if it is together.
type ranked struct {
	scored func(*snapshot.Node) int64
	key    string
}

func (r ranked) Score(n *snapshot.Node) int64 { return r.scored(n) }
func (r ranked) Signature() string            { return r.key }
func (r ranked) NormalizeScore(scores []int64) {
	most := slices.Max(scores)
	for i, s := range scores {
		if s != policy.NoOpinion {
			scores[i] = max(0, policy.MaxScore-7*(most-s))
		}
	}
}

type rankedTogether struct {
	ranked
	view *snapshot.View
	held bool // the pod is on a node of the View, or in the ledger of one
}

func (r rankedTogether) ScoreRows(rows []int32, scores []int64) {
	for i, row := range rows {
		scores[i] = r.Score(r.view.At(int(row)))
	}
	if r.held || len(rows) != len(scores) {
		panic("called for a pod that has something already, or with another number of rows than of scores")
	}
}

// preparesIn is a policy that prepares this Cycle for a pod and a View.
type preparesIn func(*corev1.Pod, *snapshot.View) policy.Cycle

func (p preparesIn) Prepare(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	return p(pod, view), nil
}

// relativePolicies are policies whose scores depend on the pods' label, the node, and on other
// nodes.
func relativePolicies(which int) (policies []engine.WeightedPolicy) {
	base := func(pod *corev1.Pod) func(*snapshot.Node) int64 {
		return func(n *snapshot.Node) int64 { return int64(len(n.Pods)*3 + len(pod.Labels["app"])*len(n.Name)%4) }
	}
	if which&1 > 0 {
		policies = append(policies, engine.WeightedPolicy{Name: "units", Weight: 2, Policy: newUnitPolicy()})
	}
	if which&2 > 0 {
		policies = append(policies, engine.WeightedPolicy{Name: "ranked", Weight: 3, Policy: prepares(func(pod *corev1.Pod) policy.Cycle {
			return ranked{base(pod), pod.Labels["app"]}
		})})
	}
	if which&4 > 0 {
		policies = append(policies, engine.WeightedPolicy{Name: "together", Weight: 1, Policy: preparesIn(func(pod *corev1.Pod, view *snapshot.View) policy.Cycle {
			return rankedTogether{ranked{func(n *snapshot.Node) int64 {
				return int64(n.Row()+int(view.Generation()))%13 + base(pod)(n)
			}, pod.Labels["app"]}, view, false}
		})})
	}
	if which&8 > 0 {
		policies = append(policies, engine.WeightedPolicy{Name: "shy", Weight: 1, Policy: prepares(func(pod *corev1.Pod) policy.Cycle {
			return counted{key: pod.Labels["app"], filter: func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }, score: func(n *snapshot.Node) int64 {
				if len(n.Pods)%3 == 2 {
					return policy.NoOpinion
				}
				return min(base(pod)(n), 100)
			}}
		})})
	}
	if which&16 > 0 {
		policies = append(policies, engine.WeightedPolicy{Name: "odd", Policy: prepares(func(*corev1.Pod) policy.Cycle {
			return counted{key: "odd", filter: func(n *snapshot.Node) policy.Verdict {
				if n.Row()%2 == 0 {
					return policy.Verdict{Reason: &evenRow}
				}
				return policy.Verdict{}
			}, score: func(*snapshot.Node) int64 { return 0 }}
		})})
	}
	return policies
}

var evenRow = policy.Reason{Code: "EvenRow", Text: "the row is even"}

// Whatever the policies, pods with allocations among them, an engine that has seen former Views chooses
// as a new one without caches, which calls Filter and Score for all nodes; and its cache says of no
// node that a pod fits there that does not.
func TestBestWithRelativeScoresAndAllocations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		which := rapid.IntRange(1, 31).Draw(t, "policies")
		newEngine := func() *engine.Engine {
			e, err := engine.New(engine.Options{Policies: relativePolicies(which)})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		var b snapshot.Builder
		nodes := rapid.IntRange(1, 20).Draw(t, "nodes")
		name := func(i int) string { return fmt.Sprintf("n%03d", i) }
		for i := range nodes {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}})
		}
		e, pods := newEngine(), 0
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			node := name(rapid.IntRange(0, nodes-1).Draw(t, "node"))
			some := types.UID(fmt.Sprint("pod", rapid.IntRange(0, 12).Draw(t, "pod")))
			switch rapid.IntRange(0, 7).Draw(t, "change") {
			case 0:
				b.DeletePod(some)
			case 1:
				b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(nodes), Labels: map[string]string{"new": "yes"}}})
			case 2:
				b.DeleteNode(name(nodes))
			case 3, 4:
				b.SetLedger(&snapshot.Ledger{Resource: "units", Node: node, Pods: []snapshot.LedgerPod{{UID: some}}, Units: []snapshot.LedgerUnit{
					{Name: "0", Capacity: 2, Allocations: []snapshot.LedgerAllocation{{Pod: some, Amount: 1}}},
				}})
			case 5:
				b.DeleteLedger(snapshot.LedgerKey{Resource: "units", Node: node})
			case 6:
				pod := podOf(string(some), "1")
				pod.Status.NominatedNodeName = node
				b.SetPod(pod)
			default:
				pod := podOf(string(some), "1")
				pod.Spec.NodeName = node
				b.SetPod(pod)
			}
			view := b.View()
			c := engine.Choice{N: rapid.IntRange(1, 9).Draw(t, "n"), Usable: func(i int32) (bool, bool) { return i%4 != 1, false }}
			for n := range view.All() {
				c.Rows = append(c.Rows, int32(n.Row()))
			}
			c.First = rapid.IntRange(0, len(c.Rows)-1).Draw(t, "first")
			pods++
			pod := podOf(string(some), fmt.Sprint(pods)) // it may hold an allocation, be on a node, or be nominated to one
			if rapid.Bool().Draw(t, "new") {
				pod = podOf(fmt.Sprint("new", pods), "1")
			}
			pod.Labels = map[string]string{"app": rapid.SampledFrom([]string{"a", "bb"}).Draw(t, "app")}
			best := func(e *engine.Engine, cached bool) (*engine.Result, *engine.Cycle) {
				a, err := e.Begin(t.Context(), pod, view)
				if err != nil {
					t.Fatal(err)
				}
				if cached {
					a.TakeNodeCache()
				}
				var result engine.Result
				if err := a.Best(t.Context(), c, &result); err != nil {
					t.Fatal(err)
				}
				return &result, a
			}
			got, indexed := best(e, true)
			want, fresh := best(newEngine(), false)
			if !slices.Equal(got.Kept, want.Kept) {
				t.Fatalf("chose %v, want %v", got.Kept, want.Kept)
			}
			for _, r := range []*engine.Result{got, want} {
				for i := range r.Record.Rejections {
					r.Record.Rejections[i].Nearest = nil
				}
			}
			if d := diff.Diff(want.Record, got.Record); d != "" {
				t.Fatalf("the record differs: %s", d)
			}
			for n := range view.All() {
				verdict, err := fresh.Verdict(n)
				if err != nil {
					t.Fatal(err)
				}
				if indexed.Fits(n.Row(), view.Version(n.Row())) && !verdict.Fits() {
					t.Fatalf("pod %s fits on %s by the cache, which rejects it: %v", pod.UID, n.Name, verdict.Reason)
				}
				if again, err := indexed.FilterNode(n); err != nil || again != verdict {
					t.Fatalf("the verdict about pod %s on %s is %v, %v, want %v", pod.UID, n.Name, again, err, verdict)
				}
			}
			indexed.ReturnNodeCache()
		}
	})
}

// Filter with a shortlist and Score give the same results with policies that score rows together as
// with those that score each node alone: beside nominated pods, for nodes of the request alone, and
// for pods with allocations, for which they must not score rows.
func TestScoreTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newEngine := func(together bool, shortlist int) *engine.Engine {
			e, err := engine.New(engine.Options{Shortlist: shortlist, Policies: []engine.WeightedPolicy{
				{Name: "units", Weight: 2, Policy: newUnitPolicy()},
				{Name: "ranked", Weight: 3, Policy: preparesIn(func(pod *corev1.Pod, view *snapshot.View) policy.Cycle {
					alone := ranked{func(n *snapshot.Node) int64 { return int64(len(n.Pods)*7+len(n.Name)+int(view.Generation())) % 23 }, fmt.Sprint(view.Generation())}
					if !together {
						return alone
					}
					held := false
					for n := range view.All() {
						held = held || n.Has(pod.UID) || n.Ledger("units").Pod(pod.UID) != nil
					}
					return rankedTogether{alone, view, held}
				})},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		shortlist := rapid.IntRange(1, 9).Draw(t, "shortlist")
		e, alone := newEngine(true, shortlist), newEngine(false, shortlist)
		var b snapshot.Builder
		nodes := rapid.IntRange(9, 30).Draw(t, "nodes")
		name := func() string {
			i := rapid.IntRange(0, nodes-1).Draw(t, "node")
			return fmt.Sprintf("n%0*d", 1+i%9, i)
		}
		for i := range nodes {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%0*d", 1+i%9, i)}})
		}
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			some := podOf(fmt.Sprint("pod", rapid.IntRange(0, 9).Draw(t, "pod")), fmt.Sprint(step))
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				b.SetLedger(&snapshot.Ledger{Resource: "units", Node: name(), Pods: []snapshot.LedgerPod{{UID: some.UID}}})
			case 1:
				nominated := *some
				nominated.Status.NominatedNodeName = name()
				b.SetPod(&nominated)
			default:
				bound := *some
				bound.Spec.NodeName = name()
				b.SetPod(&bound)
			}
			view := b.View()
			pod := some // it may hold an allocation or be on a node
			if rapid.Bool().Draw(t, "new") {
				pod = podOf(fmt.Sprint("new", step), "1")
			}
			all := rapid.Permutation(slices.Collect(view.All())).Draw(t, "order")
			all = append(all[:len(all)-rapid.IntRange(0, 3).Draw(t, "left out")], snapshot.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
			req := engine.Request{Pod: pod, View: view, Nodes: all}
			for _, call := range []func(*engine.Engine, *engine.Result) error{
				func(e *engine.Engine, r *engine.Result) error { return e.Filter(t.Context(), req, r) },
				func(e *engine.Engine, r *engine.Result) error { return e.Score(t.Context(), req, r) },
			} {
				var got, want engine.Result
				if err := cmp.Or(call(e, &got), call(alone, &want)); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Kept, want.Kept) || !slices.Equal(got.Totals, want.Totals) {
					t.Fatalf("kept %v with totals %v, want %v with %v", got.Kept, got.Totals, want.Kept, want.Totals)
				}
				if d := diff.Diff(want.Record, got.Record); d != "" {
					t.Fatalf("the record differs: %s", d)
				}
			}
		}
	})
}

// After the first attempt, only nodes that have changed are evaluated, whatever the policies.
func TestBestEvaluatesChangedNodesOnly(t *testing.T) {
	calls := 0
	count := func(n *snapshot.Node) int64 { calls++; return n.Object.Generation % 101 }
	counting := unitPolicy{func(*corev1.Pod) policy.Cycle {
		return counted{"unit", func(*snapshot.Node) policy.Verdict { calls++; return policy.Verdict{} }, count}
	}}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{
		{Name: "units", Weight: 1, Policy: counting},
		{Name: "ranked", Weight: 1, Policy: prepares(func(*corev1.Pod) policy.Cycle { return ranked{count, "r"} })},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var b snapshot.Builder
	for i := range 100 {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i), Generation: int64(i)}})
	}
	for i, want := range []int{300, 3, 3} {
		if i > 0 { // another pod has an allocation
			b.SetLedger(&snapshot.Ledger{Resource: "units", Node: fmt.Sprintf("n%03d", i), Pods: []snapshot.LedgerPod{{UID: types.UID(fmt.Sprint(i - 1))}}})
		}
		view := b.View()
		c := engine.Choice{N: 3, Usable: func(int32) (bool, bool) { return true, false }}
		for n := range view.All() {
			c.Rows = append(c.Rows, int32(n.Row()))
		}
		a, err := e.Begin(t.Context(), podOf(fmt.Sprint(i), "1"), view)
		if err != nil {
			t.Fatal(err)
		}
		a.TakeNodeCache()
		calls = 0
		if err := a.Best(t.Context(), c, &engine.Result{}); err != nil || calls != want {
			t.Errorf("attempt %d: %d calls, want %d; %v", i, calls, want, err)
		}
		a.ReturnNodeCache()
	}
}
