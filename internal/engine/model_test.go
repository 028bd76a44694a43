package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// rule is a transparent policy: its results depend only on the numbers here, the pod's annotation
// "want" and the node's label "have", all of them 0..9. The engine calls it as a policy, and the
// model reads the numbers.
type rule struct {
	Modulus   int64 // filter: a node is rejected if (have + want) % Modulus == 0; 0: does not filter
	Hopeless  int64 // the rejection is unresolvable if have == Hopeless
	Slope     int64 // score: Slope × have + want; 0: does not score
	Normalize bool
	Signed    bool   // pods with the same want have the same signature
	Fails     string // "Prepare", "Filter", "Score" or "NormalizeScore"
	FailsAt   int64  // the want (Prepare) or have (the others) it fails at
}

var reasons = []*policy.Reason{
	{Code: "Even", Text: "the sum is even", Unit: "units"},
	{Code: "Odd", Text: "the sum is odd"},
}

var errRule = errors.New("the rule fails")

func (r rule) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	want := wanted(pod)
	if r.Fails == "Prepare" && want == r.FailsAt {
		return nil, errRule
	}
	c, f := ruleCycle{r, want}, new(fake)
	if r.Modulus != 0 {
		f.filter = c.Filter
	}
	if r.Slope != 0 {
		f.score = c.Score
		if r.Normalize {
			f.normalize = c.NormalizeScore
		}
	}
	if r.Signed {
		f.signature = fmt.Sprintf("want %d", want)
	}
	return f.Prepare(ctx, pod, view)
}

func wanted(pod *corev1.Pod) int64 {
	want, _ := strconv.ParseInt(pod.Annotations["want"], 10, 64)
	return want
}

type ruleCycle struct {
	rule
	want int64
}

func (c ruleCycle) Filter(n *snapshot.Node) policy.Verdict {
	have := number(n, "have")
	if c.Fails == "Filter" && have == c.FailsAt {
		panic(errRule)
	}
	return c.verdict(have, c.want)
}

func (c ruleCycle) Score(n *snapshot.Node) int64 {
	have := number(n, "have")
	if c.Fails == "Score" && have == c.FailsAt {
		return -1000 // out of range before and after NormalizeScore
	}
	return c.Slope*have + c.want
}

func (c ruleCycle) NormalizeScore(scores []int64) {
	if c.Fails == "NormalizeScore" && scores[0] == c.FailsAt {
		panic(errRule)
	}
	toLargest(scores)
}

func (r rule) verdict(have, want int64) policy.Verdict {
	if r.Modulus == 0 || (have+want)%r.Modulus != 0 {
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: reasons[(have+want)%2], Unresolvable: have == r.Hopeless, Have: have, Want: want}
}

// model is the simplest implementation of the engine, without a cache and without optimizations.
type model struct {
	members   []engine.WeightedPolicy
	shortlist int
}

// answer is the result of a request.
type answer struct {
	Kept     []int32
	Rejected []engine.Rejected
	Totals   []int64
	Record   *decision.Record
	Scored   []decision.ScoredNode // all, in the order of the request
	Failed   string                // the policy that failed the request
}

// skips are the policies that are ignored. Those that failed when they scored have filtered
// already.
type skips map[int]struct{ filtered bool }

// ask answers a filter or prioritize request. Each time a policy fails that may be ignored, it
// starts again without it.
func (m model) ask(verb string, req engine.Request) answer {
	skipped := skips{}
	for {
		a, failed, scoring := m.attempt(verb, req, skipped)
		if failed < 0 {
			return a
		}
		if m.members[failed].FailurePolicy == policy.Fail {
			return answer{Failed: m.members[failed].Name}
		}
		skipped[failed] = struct{ filtered bool }{scoring}
	}
}

func (m model) attempt(verb string, req engine.Request, skipped skips) (a answer, failed int, scoring bool) {
	want := wanted(req.Pod)
	a.Record = &decision.Record{
		Pod:        decision.Pod{Namespace: req.Pod.Namespace, Name: req.Pod.Name, UID: string(req.Pod.UID)},
		Generation: req.View.Generation(),
		Nodes:      len(req.Nodes),
	}
	var all int64
	for i, member := range m.members {
		r := member.Policy.(rule)
		p := decision.Policy{Name: member.Name, Weight: member.Weight, Skipped: r.Modulus == 0 && r.Slope == 0}
		all += 100 * member.Weight
		_, skip := skipped[i]
		if r.Slope != 0 && !skip {
			a.Record.MaxTotal += 100 * member.Weight
		}
		if skip {
			p = decision.Policy{Name: member.Name, Weight: member.Weight, IgnoredError: "yes"}
		} else if r.Fails == "Prepare" && r.FailsAt == want {
			return a, i, false
		}
		a.Record.Policies = append(a.Record.Policies, p)
	}
	if a.Record.MaxTotal == 0 {
		a.Record.MaxTotal = all
	}
	if verb == "prioritize" {
		var known []int32
		for i, n := range req.Nodes {
			if n != nil {
				known = append(known, int32(i))
			}
		}
		totals, failed := m.totals(req, known, skipped, &a)
		if failed >= 0 {
			return a, failed, true
		}
		a.Totals = make([]int64, len(req.Nodes))
		for j, i := range known {
			a.Totals[i] = totals[j]
		}
		a.Record.Fit, a.Record.Returned = len(req.Nodes), len(req.Nodes)
		return a, -1, true
	}

	failed = len(m.members)
	for i, n := range req.Nodes {
		rejected, bad := m.judge(n, want, skipped, a.Record)
		if bad >= 0 {
			failed = min(failed, bad) // the engine calls one policy after the other
		} else if rejected == nil {
			a.Kept = append(a.Kept, int32(i))
		} else {
			rejected.Index = int32(i)
			a.Rejected = append(a.Rejected, *rejected)
		}
	}
	if failed < len(m.members) {
		return a, failed, false
	}
	m.tidy(a.Record)
	a.Record.Fit = len(a.Kept)
	if m.shortlist > 0 && len(a.Kept) > m.shortlist {
		totals, failed := m.totals(req, a.Kept, skipped, &a)
		if failed >= 0 {
			return a, failed, true
		}
		var best []int32
		for _, j := range ranking(totals)[:m.shortlist] {
			best = append(best, a.Kept[j])
		}
		slices.Sort(best)
		a.Kept = best
	}
	a.Record.Returned = len(a.Kept)
	return a, -1, true
}

// judge returns the rejection of the node, if it is rejected, and adds it to the record.
func (m model) judge(n *snapshot.Node, want int64, skipped skips, record *decision.Record) (*engine.Rejected, int) {
	if n == nil {
		note(record, "", policy.Verdict{Reason: engine.NodeUnknown}, nil)
		return &engine.Rejected{Reason: engine.NodeUnknown}, -1
	}
	have := number(n, "have")
	for i, member := range m.members {
		r := member.Policy.(rule)
		if s, skip := skipped[i]; skip && !s.filtered || r.Modulus == 0 {
			continue
		}
		if r.Fails == "Filter" && r.FailsAt == have {
			return nil, i
		}
		if v := r.verdict(have, want); v.Reason != nil {
			note(record, member.Name, v, n)
			return &engine.Rejected{Reason: v.Reason, Unresolvable: v.Unresolvable}, -1
		}
	}
	return nil, -1
}

func note(record *decision.Record, policy string, v policy.Verdict, n *snapshot.Node) {
	at := slices.IndexFunc(record.Rejections, func(r decision.Rejection) bool {
		return r.Policy == policy && r.Code == v.Reason.Code && r.Unresolvable == v.Unresolvable
	})
	if at < 0 {
		at = len(record.Rejections)
		record.Rejections = append(record.Rejections, decision.Rejection{
			Policy: policy, Code: v.Reason.Code, Text: v.Reason.Text, Unit: v.Reason.Unit, Unresolvable: v.Unresolvable,
		})
	}
	r := &record.Rejections[at]
	r.Nodes++
	if n != nil {
		r.Nearest = append(r.Nearest, decision.Miss{Node: n.Name, Have: v.Have, Want: v.Want})
	}
}

// tidy sorts the rejections and keeps the nearest misses.
func (m model) tidy(record *decision.Record) {
	place := func(name string) int {
		return slices.IndexFunc(m.members, func(member engine.WeightedPolicy) bool { return member.Name == name })
	}
	slices.SortFunc(record.Rejections, func(a, b decision.Rejection) int {
		return cmp.Or(b.Nodes-a.Nodes, place(a.Policy)-place(b.Policy), cmp.Compare(a.Code, b.Code),
			cmp.Compare(fmt.Sprint(a.Unresolvable), fmt.Sprint(b.Unresolvable)))
	})
	for i := range record.Rejections {
		nearest := record.Rejections[i].Nearest
		slices.SortStableFunc(nearest, func(a, b decision.Miss) int { return int(abs(a.Want-a.Have) - abs(b.Want-b.Have)) })
		record.Rejections[i].Nearest = nearest[:min(len(nearest), 3)]
	}
}

func abs(n int64) int64 { return max(n, -n) }

// totals scores the nodes with the indices, and stores the scores in the answer.
func (m model) totals(req engine.Request, indices []int32, skipped skips, a *answer) (totals []int64, failed int) {
	totals = make([]int64, len(indices))
	parts := make([][]decision.Score, len(indices))
	for i, member := range m.members {
		r := member.Policy.(rule)
		if _, skip := skipped[i]; skip || r.Slope == 0 || member.Weight == 0 || len(indices) == 0 {
			continue
		}
		var raw []int64
		for _, at := range indices {
			have := number(req.Nodes[at], "have")
			if r.Fails == "Score" && r.FailsAt == have {
				return nil, i
			}
			raw = append(raw, r.Slope*have+wanted(req.Pod))
		}
		scores := slices.Clone(raw)
		if r.Normalize {
			if r.Fails == "NormalizeScore" && raw[0] == r.FailsAt {
				return nil, i
			}
			toLargest(scores)
		}
		for j := range indices {
			totals[j] += member.Weight * scores[j]
			parts[j] = append(parts[j], decision.Score{Policy: member.Name, Score: scores[j], Weight: member.Weight})
		}
	}
	if slices.ContainsFunc(parts, func(scores []decision.Score) bool { return len(scores) == 0 }) {
		return totals, -1 // no policy scores
	}
	for j, total := range totals {
		a.Scored = append(a.Scored, decision.ScoredNode{Node: req.Nodes[indices[j]].Name, Total: total, Scores: parts[j]})
		if total == slices.Max(totals) {
			a.Record.Ties++
		}
	}
	for _, j := range ranking(totals)[:min(10, len(totals))] {
		a.Record.Top = append(a.Record.Top, a.Scored[j])
	}
	return totals, -1
}

// ranking are the positions of the totals, best first; equal totals keep their order.
func ranking(totals []int64) []int {
	order := make([]int, len(totals))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(totals[b], totals[a]) })
	return order
}

// TestModel sends random sequences of requests to one engine while the cluster changes, and
// compares every result with that of the model, which keeps nothing between requests.
func TestModel(t *testing.T) {
	digit := rapid.Int64Range(0, 9)
	drawRule := rapid.Custom(func(t *rapid.T) rule {
		return rule{
			Modulus:   rapid.SampledFrom([]int64{0, 2, 3, 5}).Draw(t, "Modulus"),
			Hopeless:  digit.Draw(t, "Hopeless"),
			Slope:     rapid.SampledFrom([]int64{0, 1, 3, 10}).Draw(t, "Slope"),
			Normalize: rapid.Bool().Draw(t, "Normalize"),
			Signed:    rapid.Bool().Draw(t, "Signed"),
			Fails:     rapid.SampledFrom([]string{"", "", "", "Prepare", "Filter", "Score", "NormalizeScore"}).Draw(t, "Fails"),
			FailsAt:   digit.Draw(t, "FailsAt"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		m := model{shortlist: rapid.IntRange(0, 5).Draw(t, "shortlist")}
		for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
			m.members = append(m.members, engine.WeightedPolicy{
				Name: fmt.Sprintf("P%d", i), Policy: drawRule.Draw(t, "rule"),
				Weight:        rapid.Int64Range(0, 3).Draw(t, "weight"),
				FailurePolicy: rapid.SampledFrom([]policy.FailurePolicy{policy.Fail, policy.Ignore, policy.Ignore}).Draw(t, "failurePolicy"),
			})
		}
		e, err := engine.New(engine.Options{Policies: m.members, Shortlist: m.shortlist})
		if err != nil {
			t.Fatal(err)
		}

		var builder snapshot.Builder
		node := func() *corev1.Node {
			return object(fmt.Sprintf("n%d have=%d", rapid.IntRange(0, 19).Draw(t, "node"), digit.Draw(t, "have")))
		}
		for range 30 {
			builder.SetNode(node())
		}
		views := []*snapshot.View{builder.View()}
		wants := map[string]string{} // by UID and version of the pod, because a version does not change
		var result engine.Result     // one for all requests
		ask := func(t *rapid.T, verb string) {
			pod := podOf(rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "uid"), rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "version"))
			key := string(pod.UID) + "/" + pod.ResourceVersion
			if pod.UID == "" || pod.ResourceVersion == "" || wants[key] == "" {
				wants[key] = fmt.Sprint(digit.Draw(t, "want"))
			}
			pod.Annotations = map[string]string{"want": wants[key]}
			view := rapid.SampledFrom(views).Draw(t, "view")
			req := engine.Request{Pod: pod, View: view, Nodes: drawNodes(t, view, views, node)}
			if rapid.Bool().Draw(t, "with rows") {
				req.Rows = rowsOf(view, req.Nodes)
			}

			want := m.ask(verb, req)
			err := e.Filter
			if verb == "prioritize" {
				err = e.Score
			}
			compare(t, want, err(t.Context(), req, &result), &result)
			if slices.ContainsFunc(m.members, func(m engine.WeightedPolicy) bool { return m.Policy.(rule).Fails != "" }) {
				return
			}
			if verb == "filter" && m.shortlist == 0 {
				compareNodes(t, e, req, &result)
			}
			compareBest(t, m, e, pod, view)
		}
		t.Repeat(map[string]func(*rapid.T){
			"filter":     func(t *rapid.T) { ask(t, "filter") },
			"prioritize": func(t *rapid.T) { ask(t, "prioritize") },
			"change": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "delete") {
					builder.DeleteNode(node().Name)
				} else {
					builder.SetNode(node())
				}
				views = append(views[max(0, len(views)-2):], builder.View())
			},
		})
	})
}

// drawNodes are some of the view's nodes in any order, together with unknown nodes, nodes of other
// views and nodes of no view.
func drawNodes(t *rapid.T, view *snapshot.View, views []*snapshot.View, node func() *corev1.Node) []*snapshot.Node {
	nodes := slices.Collect(view.All())
	if len(nodes) > 0 {
		nodes = rapid.Permutation(nodes).Draw(t, "nodes")
		nodes = nodes[:rapid.IntRange(0, len(nodes)).Draw(t, "asked")]
	}
	for range rapid.IntRange(0, 3).Draw(t, "others") {
		other := rapid.SampledFrom([]func() *snapshot.Node{
			func() *snapshot.Node { return nil },
			func() *snapshot.Node { return snapshot.NewNode(node()) },
			func() *snapshot.Node { return views[0].Node(node().Name) },
		}).Draw(t, "other")()
		nodes = slices.Insert(nodes, rapid.IntRange(0, len(nodes)).Draw(t, "at"), other)
	}
	return nodes
}

// rowsOf are the rows of the nodes in the view.
func rowsOf(view *snapshot.View, nodes []*snapshot.Node) []int32 {
	rows := make([]int32, len(nodes))
	for i, n := range nodes {
		if rows[i] = -1; n != nil && view.Node(n.Name) == n {
			rows[i] = int32(n.Row())
		}
	}
	return rows
}

// compare fails the test unless the result is the answer.
func compare(t *rapid.T, want answer, err error, result *engine.Result) {
	if want.Failed != "" {
		failure := new(engine.PolicyError)
		if !errors.As(err, &failure) || failure.Policy != want.Failed || result.Record.Error != err.Error() {
			t.Fatalf("the error is %v (in the record %q), want one of policy %s", err, result.Record.Error, want.Failed)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := answer{Kept: result.Kept, Rejected: result.Rejected, Totals: result.Totals, Record: result.Record, Scored: scoredNodes(result)}
	for i := range got.Record.Policies {
		if got.Record.Policies[i].IgnoredError != "" {
			got.Record.Policies[i].IgnoredError = "yes" // other tests check the text
		}
	}
	sameReason := gocmp.Comparer(func(a, b *policy.Reason) bool { return a == b })
	if diff := gocmp.Diff(want, got, sameReason, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("answer (-model +engine):\n%s", diff)
	}
}

// compareNodes fails the test unless the calls about single nodes, some of them concurrent, agree
// with the result of a filter request.
func compareNodes(t *rapid.T, e *engine.Engine, req engine.Request, result *engine.Result) {
	c, err := e.Begin(t.Context(), req.Pod, req.View)
	any, failed := e.FitsAny(t.Context(), req)
	if err := errors.Join(err, failed); err != nil || any != (len(result.Kept) > 0) {
		t.Fatalf("fits on any: %v, %v; kept %v", any, err, result.Kept)
	}
	want := make([]engine.Rejected, len(req.Nodes))
	for _, r := range result.Rejected {
		want[r.Index] = r
	}
	got, all := make([]policy.Verdict, len(want)), make([][]engine.PolicyOpinion, len(want))
	var group sync.WaitGroup
	for i, n := range req.Nodes {
		if n != nil {
			group.Go(func() {
				var err, failed error
				got[i], err = c.FilterNode(n)
				if all[i], failed = c.Rejecting(n); errors.Join(err, failed) != nil {
					t.Error(errors.Join(err, failed))
				}
			})
		}
	}
	group.Wait()
	for i, n := range req.Nodes {
		same := got[i].Reason == want[i].Reason && got[i].Unresolvable == want[i].Unresolvable
		if n != nil && (!same || got[i].Fits() != (len(all[i]) == 0) || !got[i].Fits() && all[i][0].Code != got[i].Reason.Code) {
			t.Fatalf("%s: verdict %v, rejecting %v, want %v", n.Name, got[i], all[i], want[i])
		}
	}
	if slices.Contains(req.Nodes, nil) {
		return
	}
	// The order decides which of equally near nodes are named.
	unordered := cmpopts.IgnoreFields(decision.Rejection{}, "Nearest")
	if diff := gocmp.Diff(result.Record, c.Record(len(result.Kept)), unordered); diff != "" {
		t.Fatalf("the record differs: %s", diff)
	}
}

// compareBest fails the test unless Best chooses the nodes with the largest totals by the model,
// and asks about no node that is worse.
func compareBest(t *rapid.T, m model, e *engine.Engine, pod *corev1.Pod, view *snapshot.View) {
	nodes := slices.Collect(view.All())
	if len(nodes) == 0 {
		return
	}
	m.shortlist = 0
	fitting := m.ask("filter", engine.Request{Pod: pod, View: view, Nodes: nodes})
	req := engine.Request{Pod: pod, View: view}
	for _, i := range fitting.Kept {
		req.Nodes = append(req.Nodes, nodes[i])
	}
	totals := m.ask("prioritize", req).Totals
	each, may := rapid.IntRange(2, 7).Draw(t, "each"), rapid.Bool().Draw(t, "may be chosen")
	usable := func(i int32) bool { return (int(i)%each == 0) == may }
	c := engine.Choice{N: rapid.IntRange(1, 20).Draw(t, "n"), First: rapid.IntRange(0, len(nodes)-1).Draw(t, "first")}
	for _, n := range nodes {
		c.Rows = append(c.Rows, int32(n.Row()))
	}
	var asked []int
	c.Usable = func(i int32) (bool, bool) {
		asked = append(asked, int(i))
		return usable(i), false
	}
	order := make([]int, len(totals))
	for j := range order {
		order[j] = j
	}
	behind := func(j int) int { return (int(fitting.Kept[j]) - c.First + len(nodes)) % len(nodes) }
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(behind(a), behind(b)))
	})
	var want []int32
	var mayAsk []int
	for _, j := range order {
		if i := fitting.Kept[j]; len(want) < c.N {
			if mayAsk = append(mayAsk, int(i)); usable(i) {
				want = append(want, i)
			}
		}
	}
	a, err := e.Begin(t.Context(), pod, view)
	if err != nil {
		t.Fatal(err)
	}
	a.TakeNodeCache()
	defer a.ReturnNodeCache()
	var result engine.Result
	if err := a.Best(t.Context(), c, &result); err != nil {
		t.Fatal(err)
	}
	r := result.Record
	if !slices.Equal(result.Kept, want) || !slices.Equal(asked, mayAsk) {
		t.Fatalf("chose %v, asked about %v, want %v and %v", result.Kept, asked, want, mayAsk)
	}
	if r.Nodes != len(nodes) || r.Fit != len(req.Nodes) || r.Returned != len(want) || len(r.Rejections) != len(fitting.Record.Rejections) {
		t.Fatalf("the record is %+v", r)
	}
	if a.Ranks() && len(want) > 0 && (len(r.Top) == 0 || r.Top[0].Node != nodes[want[0]].Name) {
		t.Fatalf("the record has %+v as the best, want %s", r.Top, nodes[want[0]].Name)
	}
}

// scoredNodes lists the scores.
func scoredNodes(result *engine.Result) []decision.ScoredNode {
	if len(result.Record.Top) == 0 {
		return nil
	}
	all := result.Scores
	var nodes []decision.ScoredNode
	for i := range all.Nodes {
		n := decision.ScoredNode{Node: all.Nodes[i], Total: int64(all.Totals[i])}
		for at, p := range all.Policies {
			n.Scores = append(n.Scores, decision.Score{Policy: p.Name, Score: int64(all.Parts[at*len(all.Nodes)+i]), Weight: p.Weight})
		}
		nodes = append(nodes, n)
	}
	return nodes
}
