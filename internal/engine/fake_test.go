package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// fake is a policy with configurable methods that counts its calls. It does not implement what is
// nil: without filter it does not filter. With neither filter nor score it does not apply to the
// pod.
type fake struct {
	prepare   func(ctx context.Context) error
	filter    func(n *snapshot.Node) policy.Verdict
	score     func(n *snapshot.Node) int64
	normalize func(scores []int64)
	signature string // "": no signature

	prepared, filtered, scored, normalized atomic.Int64
}

func (f *fake) Prepare(ctx context.Context, _ *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	f.prepared.Add(1)
	if f.prepare != nil {
		if err := f.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if f.signature != "" {
		return f.signed(), nil
	}
	switch {
	case f.filter != nil && f.normalize != nil:
		return filterNormalize{filterCycle{f}, normalizeCycle{scoreCycle{f}}}, nil
	case f.filter != nil && f.score != nil:
		return filterScore{filterCycle{f}, scoreCycle{f}}, nil
	case f.normalize != nil:
		return normalizeCycle{scoreCycle{f}}, nil
	case f.score != nil:
		return scoreCycle{f}, nil
	case f.filter != nil:
		return filterCycle{f}, nil
	}
	return nil, nil
}

// signed is the cycle with a signature.
func (f *fake) signed() policy.Cycle {
	s := signatureOf(f.signature)
	switch {
	case f.filter != nil && f.normalize != nil:
		return struct {
			filterNormalize
			signatureOf
		}{filterNormalize{filterCycle{f}, normalizeCycle{scoreCycle{f}}}, s}
	case f.filter != nil && f.score != nil:
		return struct {
			filterScore
			signatureOf
		}{filterScore{filterCycle{f}, scoreCycle{f}}, s}
	case f.normalize != nil:
		return struct {
			normalizeCycle
			signatureOf
		}{normalizeCycle{scoreCycle{f}}, s}
	case f.score != nil:
		return struct {
			scoreCycle
			signatureOf
		}{scoreCycle{f}, s}
	case f.filter != nil:
		return struct {
			filterCycle
			signatureOf
		}{filterCycle{f}, s}
	}
	return nil
}

type signatureOf string

func (s signatureOf) Signature() string { return string(s) }

// calls returns the number of calls of the policy since the last call of calls.
func (f *fake) calls() calls {
	return calls{int(f.prepared.Swap(0)), int(f.filtered.Swap(0)), int(f.scored.Swap(0)), int(f.normalized.Swap(0))}
}

type calls struct{ Prepare, Filter, Score, NormalizeScore int }

type filterCycle struct{ fake *fake }

func (c filterCycle) Filter(n *snapshot.Node) policy.Verdict {
	c.fake.filtered.Add(1)
	return c.fake.filter(n)
}

type scoreCycle struct{ fake *fake }

func (c scoreCycle) Score(n *snapshot.Node) int64 {
	c.fake.scored.Add(1)
	return c.fake.score(n)
}

type normalizeCycle struct{ scoreCycle }

func (c normalizeCycle) NormalizeScore(scores []int64) {
	c.fake.normalized.Add(1)
	c.fake.normalize(scores)
}

type filterScore struct {
	filterCycle
	scoreCycle
}

type filterNormalize struct {
	filterCycle
	normalizeCycle
}

// number is the value of a label of the node as a number; 0 without the label.
func number(n *snapshot.Node, label string) int64 {
	value, _ := strconv.ParseInt(n.Object.Labels[label], 10, 64)
	return value
}

// atLeast rejects nodes whose label is less than want.
func atLeast(label string, want int64, reason *policy.Reason) func(*snapshot.Node) policy.Verdict {
	return func(n *snapshot.Node) policy.Verdict {
		if have := number(n, label); have < want {
			return policy.Verdict{Reason: reason, Have: have, Want: want}
		}
		return policy.Verdict{}
	}
}

// scoreBy scores nodes by a label.
func scoreBy(label string) func(*snapshot.Node) int64 {
	return func(n *snapshot.Node) int64 { return number(n, label) }
}

// toLargest scales the scores so that the largest is 100.
func toLargest(scores []int64) {
	var largest int64
	for _, s := range scores {
		largest = max(largest, s)
	}
	for i := range scores {
		if largest > 0 {
			scores[i] = scores[i] * 100 / largest
		}
	}
}

// object is a node in the form "name label=value …".
func object(line string) *corev1.Node {
	fields := strings.Fields(line)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}}}
	for _, field := range fields[1:] {
		label, value, _ := strings.Cut(field, "=")
		o.Labels[label] = value
	}
	return o
}

// viewOf is a view of nodes in the form of object.
func viewOf(lines ...string) *snapshot.View {
	var b snapshot.Builder
	for _, line := range lines {
		b.SetNode(object(line))
	}
	return b.View()
}

func podOf(uid, resourceVersion string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: resourceVersion}}
}

// asking is a request about the nodes with these names, in order; nodes that are not in the view
// are unknown.
func asking(pod *corev1.Pod, view *snapshot.View, names ...string) engine.Request {
	req := engine.Request{Pod: pod, View: view}
	for _, name := range names {
		req.Nodes = append(req.Nodes, view.Node(name))
	}
	return req
}

func newEngine(t testing.TB, members ...engine.WeightedPolicy) *engine.Engine {
	t.Helper()
	return newShortEngine(t, 0, members...)
}

func newShortEngine(t testing.TB, shortlist int, members ...engine.WeightedPolicy) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{Policies: members, Shortlist: shortlist})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// kept are the names of the nodes that the result keeps.
func kept(req engine.Request, result *engine.Result) string {
	var names []string
	for _, i := range result.Kept {
		names = append(names, req.Nodes[i].Name)
	}
	return strings.Join(names, " ")
}

// rejected describes each rejected node as "name:Code", with "!" if it is unresolvable; the name of
// an unknown node is "?".
func rejected(req engine.Request, result *engine.Result) string {
	var nodes []string
	for _, r := range result.Rejected {
		name := "?"
		if n := req.Nodes[r.Index]; n != nil {
			name = n.Name
		}
		if r.Unresolvable {
			name += "!"
		}
		nodes = append(nodes, name+":"+r.Reason.Code)
	}
	return strings.Join(nodes, " ")
}

func plainView(nodes int) *snapshot.View {
	var b snapshot.Builder
	for i := range nodes {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", i)}})
	}
	return b.View()
}

func allNodes(view *snapshot.View) []*snapshot.Node {
	nodes := make([]*snapshot.Node, 0, view.Len())
	for n := range view.All() {
		nodes = append(nodes, n)
	}
	return nodes
}
