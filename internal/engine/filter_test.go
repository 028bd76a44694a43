package engine_test

import (
	"strings"
	"testing"

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
