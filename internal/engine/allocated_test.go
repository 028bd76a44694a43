package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// reserver is a policy that reserves units from one ledger for each of its resources.
type reserver struct {
	fake
	resources []string
	perNode   bool
}

func (r *reserver) Ledgers(_ *corev1.Pod, n *snapshot.Node) ([]snapshot.LedgerKey, error) {
	var keys []snapshot.LedgerKey
	for _, resource := range r.resources {
		key := snapshot.LedgerKey{Resource: resource}
		if r.perNode {
			key.Node = n.Name
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (r *reserver) Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	return policy.Allocation{}, policy.Verdict{}
}

// A node on which the pod holds an allocation of an earlier attempt is better than all others, also in
// levels and in a shortlist.
func TestNodeWithAAllocationScoresBest(t *testing.T) {
	allocated := func(node string, uids ...types.UID) *snapshot.Ledger {
		l := &snapshot.Ledger{Resource: "gpu", Node: node}
		for _, uid := range uids {
			l.Pods = append(l.Pods, snapshot.LedgerPod{UID: uid, Node: node})
		}
		return l
	}
	reserves := engine.WeightedPolicy{Name: "GPU", Policy: &reserver{resources: []string{"gpu"}}}
	scores := engine.WeightedPolicy{Name: "S", Policy: &fake{score: scoreBy("s")}, Weight: 2}
	for _, tt := range []struct {
		name    string
		members []engine.WeightedPolicy
		ledgers []*snapshot.Ledger
		bound   string // the node that the pod is bound to
		totals  string // of a, b, c
		levels  string
		kept    string // with a shortlist of 1
	}{
		{"none", []engine.WeightedPolicy{reserves, scores}, nil, "", "[200 2 198]", "[10 0 9]", "a"},
		{"of other pods", []engine.WeightedPolicy{reserves, scores}, []*snapshot.Ledger{allocated("b", "other")}, "", "[200 2 198]", "[10 0 9]", "a"},
		{"one", []engine.WeightedPolicy{reserves, scores}, []*snapshot.Ledger{allocated("b", "other", "u")}, "", "[199 200 198]", "[9 10 9]", "b"},
		{"two", []engine.WeightedPolicy{reserves, scores}, []*snapshot.Ledger{allocated("b", "u"), allocated("c", "u")}, "", "[199 200 200]", "[9 10 10]", "b"},
		{"of a pool", []engine.WeightedPolicy{reserves, scores}, []*snapshot.Ledger{allocated("", "u")}, "", "[200 2 198]", "[10 0 9]", "a"},
		{"of a pod that is bound", []engine.WeightedPolicy{reserves, scores}, []*snapshot.Ledger{allocated("b", "u")}, "b", "[200 2 198]", "[10 0 9]", "a"},
		{"no policy hands anything out", []engine.WeightedPolicy{scores}, []*snapshot.Ledger{allocated("b", "u")}, "", "[200 2 198]", "[10 0 9]", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b snapshot.Builder
			for _, node := range []string{"a s=100", "b s=1", "c s=99"} {
				b.SetNode(object(node))
			}
			for _, l := range tt.ledgers {
				b.SetLedger(l)
			}
			if tt.bound != "" {
				pod := podOf("u", "2")
				pod.Spec.NodeName = tt.bound
				b.SetPod(pod)
			}
			view := b.View()
			req := asking(podOf("u", "1"), view, "a", "b", "c")
			e := newShortEngine(t, 1, tt.members...)
			var result engine.Result
			if err := e.Score(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(result.Totals); got != tt.totals {
				t.Errorf("got totals %s, want %s", got, tt.totals)
			}
			var holding []string
			for _, n := range result.Record.Top {
				if n.HoldsAllocation {
					holding = append(holding, n.Node)
				}
			}
			explained, err := e.Explain(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range explained.Nodes {
				if x.Total != result.Totals[i] || x.HoldsAllocation != slices.Contains(holding, x.Node) {
					t.Errorf("Explain returns total %d and HoldsAllocation %v, Score %d and %q", x.Total, x.HoldsAllocation, result.Totals[i], holding)
				}
			}
			if got, want := strings.Join(holding, " "), map[string]string{"one": "b", "two": "b c"}[tt.name]; got != want {
				t.Errorf("the record says that the pod holds an allocation on %q, want %q", got, want)
			}
			engine.ScaleScores(result.Totals, result.Record.MaxTotal, engine.MaxExtenderScore)
			if got := fmt.Sprint(result.Totals); got != tt.levels {
				t.Errorf("got levels %s, want %s", got, tt.levels)
			}
			if err := e.Filter(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			if got := kept(req, &result); got != tt.kept {
				t.Errorf("a shortlist of 1 is %q, want %q", got, tt.kept)
			}
		})
	}
}

// A node whose ledger, or that of a pool, has as many pods as a ledger can hold is rejected,
// whatever the policy says, and fits again after the eviction of one of them there.
func TestFullLedger(t *testing.T) {
	full := func(resource, node string) *snapshot.Ledger {
		l := &snapshot.Ledger{Resource: resource, Node: node}
		for i := range snapshot.MaxLedgerPods {
			l.Pods = append(l.Pods, snapshot.LedgerPod{UID: types.UID(fmt.Sprint("p", i)), Node: "a"})
		}
		return l
	}
	for _, tt := range []struct {
		name     string
		ledger   *snapshot.Ledger
		perNode  bool
		pod      string
		rejected string
		note     string
		victims  string
	}{
		{"of a node", full("gpu", "a"), true, "u", "a:LedgerFull", "allocations of gpu: 512 pods have some, the limit of a ledger", "[p0]"},
		{"of another resource", full("fpga", "a"), true, "u", "", "", "[]"},
		{"with the pod", full("gpu", "a"), true, "p7", "", "", "[]"},
		{"of a pool", full("gpu", ""), false, "u", "a:LedgerFull b!:LedgerFull", "allocations of gpu: 512 pods have some, the limit of a ledger", "[p0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(object("a s=1"))
			b.SetNode(object("b s=2"))
			holder := podOf("p0", "1")
			holder.Spec.NodeName, holder.Spec.Priority = "a", new(int32(-1))
			b.SetPod(holder)
			b.View()
			b.SetLedger(tt.ledger)
			view := b.View()
			p := &reserver{fake: fake{score: scoreBy("s"), signature: "s"}, resources: []string{"gpu"}, perNode: tt.perNode}
			e := newEngine(t, engine.WeightedPolicy{Name: "GPU", Policy: p, Weight: 1})
			req := asking(podOf(tt.pod, "1"), view, "a", "b")
			var result engine.Result
			if err := e.Filter(t.Context(), req, &result); err != nil || rejected(req, &result) != tt.rejected {
				t.Errorf("Filter rejects %q, error %v, want %q", rejected(req, &result), err, tt.rejected)
			}
			x, err := e.Explain(t.Context(), req)
			if note := strings.Join(x.Nodes[0].Policies[0].Notes, "\n"); err != nil || note != tt.note {
				t.Errorf("explained as %q, error %v, want %q", note, err, tt.note)
			}
			kept, err := e.Preempt(t.Context(), engine.PreemptRequest{Request: req, Candidates: []engine.Candidate{{Node: view.Node("a"), Name: "a"}}}, &result)
			victims := ""
			if len(kept) > 0 {
				victims = fmt.Sprint(kept[0].Victims)
			}
			if err != nil || victims != tt.victims {
				t.Errorf("Preempt evicts %q, error %v, want %q", victims, err, tt.victims)
			}
		})
	}
}
