package policytest

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

type prepared struct {
	cycle    policy.Cycle
	err      error
	panicked string
}

func prepare(ctx context.Context, p policy.Policy, pod *corev1.Pod, view *snapshot.View) prepared {
	var r prepared
	if crash := guard(func() { r.cycle, r.err = p.Prepare(ctx, pod, view) }); crash != "" {
		return prepared{panicked: crash}
	}
	if r.err != nil {
		r.cycle = nil
	}
	return r
}

// invalid returns why the Cycle is invalid for a policy that declares in, or "".
func (r prepared) invalid(in policy.Inputs) string {
	if r.cycle == nil {
		return ""
	}
	_, filters := r.cycle.(policy.Filter)
	_, scores := r.cycle.(policy.Score)
	_, normalizes := r.cycle.(policy.NormalizeScore)
	v := reflect.ValueOf(r.cycle)
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Sprintf("Prepare returned a nil %T in a Cycle, which is not a nil Cycle; return nil itself when the policy does not apply to the pod", r.cycle)
	case normalizes && !scores:
		return fmt.Sprintf("the Cycle (%T) implements NormalizeScore without Score", r.cycle)
	case !filters && !scores:
		return fmt.Sprintf("the Cycle (%T) implements neither Filter nor Score; return nil when the policy does not apply to the pod", r.cycle)
	case in.CountsPods && in.ScoreOnly:
		return "Inputs().CountsPods and Inputs().ScoreOnly are both true: filter calls wait for pods, and kube-scheduler makes none for a policy that only scores: set ScoreOnly to false"
	case filters && in.ScoreOnly:
		return fmt.Sprintf("the Cycle (%T) implements Filter, and Inputs().ScoreOnly is true: kube-scheduler does not call filter for the policy", r.cycle)
	case scores && in.FilterOnly:
		return fmt.Sprintf("the Cycle (%T) implements Score, and Inputs().FilterOnly is true: the weight of the policy does not count", r.cycle)
	}
	return ""
}

// results are what a policy has returned for one pod. The slices are in the order of the nodes,
// whatever the order of the calls; they are nil if the Cycle does not implement the method.
type results struct {
	panicked string
	err      error
	none     bool // a nil Cycle
	verdicts []policy.Verdict
	raw      []int64 // as Score returned them
	scores   []int64 // after NormalizeScore
	said     []string
}

// evaluate calls the Cycle for the nodes in the order of the given indices.
func (r prepared) evaluate(nodes []*snapshot.Node, order []int) results {
	a := results{err: r.err, none: r.cycle == nil && r.err == nil}
	if r.panicked != "" {
		a.panicked = "Prepare " + r.panicked
		return a
	}
	var calling atomic.Value // a string
	each := func(method string, call func(i int)) {
		for _, i := range order {
			calling.Store(method + " of " + nodeName(nodes[i]))
			call(i)
		}
	}
	crash := guard(func() {
		if filter, ok := r.cycle.(policy.Filter); ok {
			a.verdicts = make([]policy.Verdict, len(nodes))
			each("Filter", func(i int) { a.verdicts[i] = filter.Filter(nodes[i]) })
		}
		if explainer, ok := r.cycle.(policy.Explainer); ok {
			calling.Store("Explain of the pod")
			a.said = explainer.Explain(nil)
			each("Explain", func(i int) { a.said = append(a.said, explainer.Explain(nodes[i])...) })
			slices.Sort(a.said) // calls come in any order
		}
		if score, ok := r.cycle.(policy.Score); ok {
			a.raw, a.scores = make([]int64, len(nodes)), make([]int64, len(nodes))
			var inOrder []int64
			each("Score", func(i int) {
				a.raw[i] = score.Score(nodes[i])
				inOrder = append(inOrder, a.raw[i])
			})
			calling.Store("NormalizeScore")
			if n, ok := r.cycle.(policy.NormalizeScore); ok && len(inOrder) > 0 {
				n.NormalizeScore(inOrder)
			}
			for at, i := range order {
				a.scores[i] = inOrder[at]
			}
		}
	})
	if crash != "" {
		return results{panicked: fmt.Sprint(calling.Load(), " ", crash)} // a may still be written
	}
	return a
}

// difference describes how two results for nodes with the given names differ, or returns "".
// Neither may be a panic.
func difference(nodes []*snapshot.Node, first, second results) string {
	switch {
	case errorText(first.err) != errorText(second.err):
		return fmt.Sprintf("Prepare returned first %s, then %s", errorText(first.err), errorText(second.err))
	case first.none != second.none:
		return fmt.Sprintf("Prepare returned a nil Cycle: first %t, then %t", first.none, second.none)
	case len(first.verdicts) != len(second.verdicts) || len(first.scores) != len(second.scores):
		return "the Cycle implements Filter or Score in one call and not in another"
	}
	if !slices.Equal(first.said, second.said) {
		return fmt.Sprintf("Explain returned first %q, then %q", first.said, second.said)
	}
	for i, verdict := range first.verdicts {
		if !sameVerdict(verdict, second.verdicts[i]) {
			return fmt.Sprintf("%s: Filter returned first %q, then %q", nodeName(nodes[i]), describe(verdict), describe(second.verdicts[i]))
		}
	}
	for i, score := range first.scores {
		if score != second.scores[i] {
			return fmt.Sprintf("%s: the score is first %d, then %d", nodeName(nodes[i]), score, second.scores[i])
		}
	}
	return ""
}

// sameVerdict compares by Code: another policy of the same configuration may
// have Reasons of its own.
func sameVerdict(a, b policy.Verdict) bool {
	if a.Reason != nil && b.Reason != nil && a.Reason.Code == b.Reason.Code {
		a.Reason = b.Reason
	}
	return a == b
}

func describe(v policy.Verdict) string {
	if v.Fits() {
		return "fits"
	}
	text := fmt.Sprintf("%s, have %d, want %d", v.Reason.Code, v.Have, v.Want)
	if v.Unresolvable {
		text += ", unresolvable"
	}
	return text
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprintf("the error %q", err.Error())
}

func nodeName(n *snapshot.Node) string { return fmt.Sprintf("node %q", n.Name) }

// maxTime is how long a policy may take for one pod and all nodes: more than kube-scheduler waits,
// so that a busy machine fails no test.
const maxTime = 5 * time.Second

// guard calls f and returns the text of its panic, with the stack, or "". If f takes longer than
// maxTime, it returns that, and f goes on.
func guard(f func()) (crash string) {
	done := make(chan string, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Sprintf("panicked: %v\n%s", p, debug.Stack())
			}
			close(done)
		}()
		f()
	}()
	select {
	case crash = <-done:
		return crash
	case <-time.After(maxTime):
		return fmt.Sprintf("was running when the policy had taken %v: kube-scheduler waits up to 3 s for all nodes", maxTime)
	}
}

func forward(n int) []int { return rotated(n, 0) }

func rotated(n, by int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + by) % n
	}
	return order
}

func backward(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	return order
}

// methods fails the rule if the engine would not find a method, because only its name is that of an
// optional interface. what is a policy or a Cycle.
func (s *suite) methods(what any, optional ...reflect.Type) {
	t := reflect.TypeOf(what)
	if t == nil || s.types[t] {
		return
	}
	s.types[t] = true
	named := t // also has the methods with a pointer receiver
	if t.Kind() != reflect.Pointer {
		named = reflect.PointerTo(t)
	}
	for _, i := range optional {
		if t.Implements(i) {
			continue
		}
		var wanted []string
		has := ""
		for method := range i.Methods() {
			wanted = append(wanted, method.Name+strings.TrimPrefix(method.Type.String(), "func"))
			if _, ok := named.MethodByName(method.Name); ok {
				has = method.Name
			}
		}
		if has != "" {
			s.fail("methods", "", "%v has a method %s, but does not implement %v, so it is never called: the type %v itself must have %s", t, has, i, t, strings.Join(wanted, " and "))
		}
	}
}
