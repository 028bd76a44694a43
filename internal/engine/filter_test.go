package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var (
	tooLittle = &policy.Reason{Code: "TooLittle", Text: "too little is left", Unit: "MiB"}
	tooFew    = &policy.Reason{Code: "TooFew", Text: "too few are left", Unit: "GPUs"}
	broken    = &policy.Reason{Code: "Broken", Text: "the node is broken"}
)

// whole rejects broken nodes as unresolvable.
func whole(n *snapshot.Node) policy.Verdict {
	if number(n, "broken") != 0 {
		return policy.Verdict{Reason: broken, Unresolvable: true}
	}
	return policy.Verdict{}
}

func TestFilter(t *testing.T) {
	memory := &fake{filter: atLeast("memory", 5, tooLittle)}
	gpus := &fake{filter: atLeast("gpus", 2, tooFew)}
	health := &fake{filter: whole}
	indifferent := &fake{}
	scorer := &fake{score: scoreBy("memory")}
	view := viewOf(
		"big    memory=9 gpus=4",
		"exact  memory=5 gpus=2",
		"lean   memory=1 gpus=4",
		"few    memory=9 gpus=1",
		"poor   memory=1 gpus=1",
		"sick   memory=9 gpus=4 broken=1",
		"wreck  memory=1 gpus=1 broken=1",
	)
	all := "big exact lean few poor sick wreck"

	tests := []struct {
		name     string
		policies []engine.WeightedPolicy
		asked    string
		kept     string
		rejected string
	}{
		{"a profile without policies passes all nodes", nil, all, all, ""},
		{"a policy that the pod does not concern rejects none", []engine.WeightedPolicy{{Name: "Indifferent", Policy: indifferent}}, all, all, ""},
		{"a policy that scores only rejects none", []engine.WeightedPolicy{{Name: "Scorer", Policy: scorer, Weight: 1}}, all, all, ""},
		{
			"one policy",
			[]engine.WeightedPolicy{{Name: "Memory", Policy: memory}}, all,
			"big exact few sick", "lean:TooLittle poor:TooLittle wreck:TooLittle",
		},
		{
			"the first policy that rejects gives the reason",
			[]engine.WeightedPolicy{{Name: "Health", Policy: health}, {Name: "Memory", Policy: memory}, {Name: "GPUs", Policy: gpus}}, all,
			"big exact", "lean:TooLittle few:TooFew poor:TooLittle sick!:Broken wreck!:Broken",
		},
		{
			"in another order of policies it is another",
			[]engine.WeightedPolicy{{Name: "GPUs", Policy: gpus}, {Name: "Indifferent", Policy: indifferent}, {Name: "Memory", Policy: memory}, {Name: "Health", Policy: health}}, all,
			"big exact", "lean:TooLittle few:TooFew poor:TooFew sick!:Broken wreck:TooFew",
		},
		{
			"the answer is in the order asked",
			[]engine.WeightedPolicy{{Name: "Memory", Policy: memory}}, "few wreck exact poor big lean",
			"few exact big", "wreck:TooLittle poor:TooLittle lean:TooLittle",
		},
		{
			"unknown nodes are rejected and can be resolved",
			[]engine.WeightedPolicy{{Name: "Memory", Policy: memory}}, "new big newer lean",
			"big", "?:NodeUnknown ?:NodeUnknown lean:TooLittle",
		},
		{"unknown nodes are rejected by no policy too", nil, "new big", "big", "?:NodeUnknown"},
		{"no node", []engine.WeightedPolicy{{Name: "Memory", Policy: memory}}, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.policies...)
			req := asking(podOf("u", "1"), view, strings.Fields(tt.asked)...)
			var result engine.Result
			if err := e.Filter(t.Context(), req, &result); err != nil {
				t.Fatal(err)
			}
			if got := kept(req, &result); got != tt.kept {
				t.Errorf("kept %q, want %q", got, tt.kept)
			}
			if got := rejected(req, &result); got != tt.rejected {
				t.Errorf("rejected %q, want %q", got, tt.rejected)
			}
			r := result.Record
			if r.Nodes != len(req.Nodes) || r.Fit != len(result.Kept) || r.Returned != len(result.Kept) {
				t.Errorf("the record has nodes %d, fit %d, returned %d; want %d, %d, %[5]d", r.Nodes, r.Fit, r.Returned, len(req.Nodes), len(result.Kept))
			}
			if len(result.Totals) > 0 || r.Top != nil {
				t.Errorf("a filter without shortlist scored: totals %v, top %v", result.Totals, r.Top)
			}
		})
	}
}

// The engine evaluates nodes that no view holds (the templates of a cluster autoscaler, or all nodes without a cluster) and
// nodes of an older view from the nodes themselves.
func TestFilterForeignNodes(t *testing.T) {
	memory := &fake{filter: atLeast("memory", 5, tooLittle)}
	var b snapshot.Builder
	b.SetNode(object("a memory=1"))
	old := b.View()
	b.SetNode(object("a memory=9"))
	view := b.View()

	req := asking(podOf("u", "1"), view, "a")
	req.Nodes = append(req.Nodes,
		snapshot.NewNode(object("a memory=1")), // the name and row of a known node have no effect
		snapshot.NewNode(object("template memory=9")),
		old.Node("a"),
	)
	e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: memory})
	for turn := range 3 {
		var result engine.Result
		if err := e.Filter(t.Context(), req, &result); err != nil {
			t.Fatal(err)
		}
		if got, want := kept(req, &result), "a template"; got != want {
			t.Errorf("turn %d: kept %q, want %q", turn, got, want)
		}
		want := []decision.Rejection{{
			Policy: "Memory", Code: "TooLittle", Text: "too little is left", Unit: "MiB", Nodes: 2,
			Nearest: []decision.Miss{{Node: "a", Have: 1, Want: 5}, {Node: "a", Have: 1, Want: 5}},
		}}
		if diff := cmp.Diff(want, result.Record.Rejections); diff != "" {
			t.Errorf("turn %d: rejections (-want +got):\n%s", turn, diff)
		}
	}
}

func TestFilterRecord(t *testing.T) {
	view := viewOf(
		"a1 memory=1", "a2 memory=4", "a3 memory=2", "a4 memory=4", "a5 memory=3",
		"b1 memory=9 gpus=1", "b2 memory=9",
		"c1 memory=9 gpus=9 broken=1", "c2 memory=9 gpus=9 broken=1", "c3 memory=9 gpus=9 broken=1", "c4 memory=9 gpus=9 broken=1",
		"d  memory=9 gpus=9",
	)
	e := newEngine(t,
		engine.WeightedPolicy{Name: "Memory", Policy: &fake{filter: atLeast("memory", 5, tooLittle)}, Weight: 0},
		engine.WeightedPolicy{Name: "GPUs", Policy: &fake{filter: atLeast("gpus", 2, tooFew)}, Weight: 2},
		engine.WeightedPolicy{Name: "Health", Policy: &fake{filter: whole}, Weight: 1},
		engine.WeightedPolicy{Name: "Indifferent", Policy: &fake{}, Weight: 3},
	)
	pod := podOf("uid-1", "7")
	pod.Spec.SchedulerName = "second"
	req := asking(pod, view, "new", "c4", "c3", "c2", "c1", "b2", "b1", "a5", "a4", "a3", "a2", "a1", "d")
	var result engine.Result
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	want := &decision.Record{
		Pod:        decision.Pod{Namespace: "default", Name: "web", UID: "uid-1", SchedulerName: "second"},
		Generation: 1,
		Nodes:      13, Fit: 1, Returned: 1,
		MaxTotal: 600,
		Policies: []decision.Policy{
			{Name: "Memory"}, {Name: "GPUs", Weight: 2}, {Name: "Health", Weight: 1},
			{Name: "Indifferent", Weight: 3, Unconcerned: true},
		},
		Rejections: []decision.Rejection{
			{
				Policy: "Memory", Code: "TooLittle", Text: "too little is left", Unit: "MiB", Nodes: 5,
				// The nearest three nodes; of a4 and a2, which are equally near, the one that comes first in the request.
				Nearest: []decision.Miss{{Node: "a4", Have: 4, Want: 5}, {Node: "a2", Have: 4, Want: 5}, {Node: "a5", Have: 3, Want: 5}},
			},
			{
				Policy: "Health", Code: "Broken", Text: "the node is broken", Unresolvable: true, Nodes: 4,
				Nearest: []decision.Miss{{Node: "c4"}, {Node: "c3"}, {Node: "c2"}},
			},
			{
				Policy: "GPUs", Code: "TooFew", Text: "too few are left", Unit: "GPUs", Nodes: 2,
				Nearest: []decision.Miss{{Node: "b1", Have: 1, Want: 2}, {Node: "b2", Have: 0, Want: 2}},
			},
			{Code: "NodeUnknown", Text: "node is not known to Outboard yet", Nodes: 1},
		},
	}
	if diff := cmp.Diff(want, result.Record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// Requests with any number of nodes get the same results as requests with few nodes.
func TestFilterManyNodes(t *testing.T) {
	view := plainView(1000)
	named := func(from, to string) *fake {
		return &fake{filter: func(n *snapshot.Node) policy.Verdict {
			if n.Name < from || n.Name >= to {
				return policy.Verdict{Reason: broken}
			}
			return policy.Verdict{}
		}}
	}
	e := newEngine(t,
		engine.WeightedPolicy{Name: "From", Policy: named("node-00100", "z")},
		engine.WeightedPolicy{Name: "To", Policy: named("", "node-00900")},
	)
	all := allNodes(view)
	for _, count := range []int{1000, 999, 257, 256, 255, 512, 1, 1000} {
		req := engine.Request{Pod: podOf("u", "1"), View: view, Nodes: slices.Clone(all[1000-count:])}
		slices.Reverse(req.Nodes)
		for i := 5; i < count; i += 10 {
			req.Nodes[i] = nil
		}
		var want engine.Result
		for i, n := range req.Nodes {
			switch {
			case n == nil:
				want.Rejected = append(want.Rejected, engine.Rejected{Index: int32(i), Reason: engine.NodeUnknown})
			case n.Name < "node-00100" || n.Name >= "node-00900":
				want.Rejected = append(want.Rejected, engine.Rejected{Index: int32(i), Reason: broken})
			default:
				want.Kept = append(want.Kept, int32(i))
			}
		}
		var got engine.Result
		if err := e.Filter(t.Context(), req, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Kept, want.Kept) || !slices.Equal(got.Rejected, want.Rejected) {
			t.Errorf("of %d nodes %d were kept and %d rejected, want %d and %d, in order", count, len(got.Kept), len(got.Rejected), len(want.Kept), len(want.Rejected))
		}
		total := 0
		for _, r := range got.Record.Rejections {
			total += r.Nodes
		}
		if total != len(want.Rejected) {
			t.Errorf("the record counts %d of %d rejections", total, len(want.Rejected))
		}
	}
}

// A reason with Unresolvable and the same reason without it are two rejections; so is the same reason of two policies.
func TestFilterSameReason(t *testing.T) {
	byLabel := func(label string) *fake {
		return &fake{filter: func(n *snapshot.Node) policy.Verdict {
			switch number(n, label) {
			case 1:
				return policy.Verdict{Reason: broken}
			case 2:
				return policy.Verdict{Reason: broken, Unresolvable: true}
			}
			return policy.Verdict{Unresolvable: true} // without a reason the node fits
		}}
	}
	view := viewOf("a x=2", "b x=1", "c y=1", "d", "e x=2 y=1")
	e := newEngine(t, engine.WeightedPolicy{Name: "X", Policy: byLabel("x")}, engine.WeightedPolicy{Name: "Y", Policy: byLabel("y")})
	req := asking(podOf("u", "1"), view, "a", "b", "c", "d", "e")
	var result engine.Result
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if got, want := rejected(req, &result), "a!:Broken b:Broken c:Broken e!:Broken"; got != want {
		t.Errorf("rejected %q, want %q", got, want)
	}
	type row struct {
		policy       string
		unresolvable bool
		nodes        int
	}
	var got []row
	for _, r := range result.Record.Rejections {
		got = append(got, row{r.Policy, r.Unresolvable, r.Nodes})
	}
	want := []row{{"X", true, 2}, {"X", false, 1}, {"Y", false, 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
}

// Each call overwrites the Result that it gets, but not its Record, which goes into a log.
func TestResultIsUsedAgain(t *testing.T) {
	view := viewOf("a memory=9", "b memory=1", "c memory=9", "d memory=2")
	e := newEngine(t, engine.WeightedPolicy{Name: "Memory", Policy: &fake{filter: atLeast("memory", 5, tooLittle), score: scoreBy("memory")}, Weight: 1})
	pod := podOf("u", "1")
	var result engine.Result
	if err := e.Filter(t.Context(), asking(pod, view, "a", "b", "c", "d"), &result); err != nil {
		t.Fatal(err)
	}
	first := result.Record
	rejections := cmp.Diff(nil, first.Rejections)
	req := asking(pod, view, "d", "c")
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if got, want := kept(req, &result)+"/"+rejected(req, &result), "c/d:TooLittle"; got != want {
		t.Errorf("the second result is %q, want %q", got, want)
	}
	if result.Record == first || cmp.Diff(nil, first.Rejections) != rejections {
		t.Errorf("the first record changed to %v", first.Rejections)
	}
	if err := e.Score(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Kept)+len(result.Rejected) > 0 || !cmp.Equal(result.Totals, []int64{2, 9}) {
		t.Errorf("after Score: kept %v, rejected %v, totals %v; want only the totals 2 and 9", result.Kept, result.Rejected, result.Totals)
	}
	if result.Record.Rejections != nil {
		t.Errorf("the record of Score has the rejections of an earlier call: %v", result.Record.Rejections)
	}
	if err := e.Filter(t.Context(), req, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Totals) > 0 {
		t.Errorf("after Filter, the result has totals %v of an earlier call", result.Totals)
	}
}

func TestNew(t *testing.T) {
	p := &fake{}
	tests := []struct {
		name string
		o    engine.Options
		want string // in the error; "": no error
	}{
		{"no policy", engine.Options{}, ""},
		{"largest weight", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A", Policy: p, Weight: engine.MaxWeight}}}, ""},
		{"negative weight", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A", Policy: p, Weight: -1}}}, `policy "A": weight is -1`},
		{"weight too large", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A", Policy: p, Weight: engine.MaxWeight + 1}}}, `policy "A": weight is 101`},
		{"same name", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A", Policy: p}, {Name: "A", Policy: p}}}, `policy "A": name is used twice`},
		{"no name", engine.Options{Policies: []engine.WeightedPolicy{{Policy: p}}}, `must have a name`},
		{"no policy in a member", engine.Options{Policies: []engine.WeightedPolicy{{Name: "A"}}}, `policy "A": must have a name and a policy`},
		{"negative shortlist", engine.Options{Shortlist: -1}, "shortlist is -1"},
		{"too many policies", engine.Options{Policies: make([]engine.WeightedPolicy, 1001)}, "1001 policies"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := engine.New(tt.o)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

// The caller may reuse the options after New has returned.
func TestNewKeepsNoOptions(t *testing.T) {
	members := []engine.WeightedPolicy{{Name: "Memory", Policy: &fake{filter: atLeast("memory", 5, tooLittle)}}}
	e := newEngine(t, members...)
	members[0].Policy = &fake{}
	req := asking(podOf("u", "1"), viewOf("a memory=1"), "a")
	var result engine.Result
	if err := e.Filter(t.Context(), req, &result); err != nil || len(result.Kept) > 0 {
		t.Errorf("kept %v, error %v; want the node to be rejected by the policy in the options of New", result.Kept, err)
	}
}
