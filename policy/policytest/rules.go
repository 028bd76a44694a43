package policytest

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// goroutines is how many goroutines the rule "concurrent" uses.
const goroutines = 8

var (
	reasonCode = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`)
	// explanation is the form of a line that policy.Explainer defines.
	explanation = regexp.MustCompile(`^[^\s:]([^:\n]*[^\s:])?: [^\n]*[^\s.]$`)
	number      = regexp.MustCompile(`(^|[^A-Za-z0-9])[0-9]+`) // "IPv6" is a word, "3 GPUs" has a number
)

// fresh builds the case's cluster anew and prepares the policy for it.
func (s *suite) fresh(c *testCase, p policy.Policy) (*world, prepared) {
	w := c.cluster.build(s.options.Extend)
	return w, prepare(context.Background(), p, c.pod.DeepCopy(), w.view)
}

// compare fails the rule if the results for the nodes differ from the first ones. It returns
// whether they are the same.
func (s *suite) compare(rule, where, how string, nodes []*snapshot.Node, first, got results) bool {
	for _, a := range []results{first, got} {
		if a.panicked != "" {
			s.fail("survives", where, "%s: %s", how, a.panicked)
			return false
		}
	}
	d := difference(nodes, first, got)
	if d != "" {
		s.fail(rule, where, "%s: %s", how, d)
	}
	return d == ""
}

func (s *suite) returned(c *testCase) {
	for _, line := range c.want.said {
		if !explanation.MatchString(line) {
			s.fail("explanation", c.name, "the line %q does not have the form <what>: <value>, without a full stop", line)
		}
	}
	w, prep := s.fresh(c, s.policy)
	for _, a := range []results{c.want, prep.evaluate(w.nodes, forward(len(w.nodes)))} {
		for i, v := range a.verdicts {
			where := c.name + ", " + nodeName(w.nodes[i])
			if v.Unresolvable && v.Reason == nil {
				s.fail("verdict", where, "the Verdict is Unresolvable without a Reason: a nil Reason means that the pod fits")
			}
			if v.Reason != nil {
				s.reason(where, v.Reason)
			}
		}
	}
}

func (s *suite) reason(where string, r *policy.Reason) {
	if first, ok := s.reasons[r]; ok {
		if first != *r {
			s.fail("reasons", where, "the Reason changed from %+v to %+v: it must be constant", first, *r)
			s.reasons[r] = *r
		}
		return
	}
	s.reasons[r] = *r
	switch other, ok := s.byCode[r.Code]; {
	case !ok:
		s.byCode[r.Code] = r
	case other.Text != r.Text:
		s.fail("reasons", where, "the code %q has two texts, %q and %q: put numbers in Have and Want, so that events can be grouped", r.Code, other.Text, r.Text)
	default:
		s.fail("reasons", where, "two different *Reason have the code %q: make it one package-level variable", r.Code)
	}
	if !reasonCode.MatchString(r.Code) {
		s.fail("reasons", where, "the code %q is neither in CamelCase nor a name such as no-spot", r.Code)
	}
	if strings.TrimSpace(r.Text) == "" || strings.ContainsAny(r.Text, "\r\n") {
		s.fail("reasons", where, "the text %q of %s must be one line, and not empty", r.Text, r.Code)
	}
	if number.MatchString(r.Text) {
		s.fail("reasons", where, "the text %q of %s contains a number: put numbers in Have and Want", r.Text, r.Code)
	}
}

func (s *suite) repeatable(c *testCase) {
	w, prep := s.fresh(c, s.policy)
	n := len(w.nodes)
	check := func(how string, got results) {
		s.compare("repeatable", c.name, how, w.nodes, c.want, got)
	}
	check("called for a View built anew, in reverse order", prep.evaluate(w.nodes, backward(n)))
	check("called a second time", prep.evaluate(w.nodes, rotated(n, 1)))
	check("prepared a second time", prepare(context.Background(), s.policy, c.pod.DeepCopy(), w.view).evaluate(w.nodes, forward(n)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if canceled := prepare(ctx, s.policy, c.pod.DeepCopy(), w.view); canceled.err == nil {
		check("prepared without an error with a canceled context", canceled.evaluate(w.nodes, forward(n)))
	}
	w, prep = s.fresh(c, s.other)
	check("called on another policy with the same configuration", prep.evaluate(w.nodes, backward(n)))
}

func (s *suite) readOnly(c *testCase) {
	was, w, pod := c.cluster.build(s.options.Extend), c.cluster.build(s.options.Extend), c.pod.DeepCopy()
	prepare(context.Background(), s.policy, pod, w.view).evaluate(w.nodes, forward(len(w.nodes)))
	same := func(where, what string, before, after any) {
		if reflect.DeepEqual(before, after) {
			return
		}
		d := cmp.Diff(before, after)
		if d == "" {
			d = "\ta value that the object caches, such as a Quantity's text"
		}
		s.fail("read-only", where, "the policy changed %s:\n%s", what, d)
	}
	same(c.name, "the pod to place", c.pod, pod)
	for i, n := range w.nodes {
		where := c.name + ", " + nodeName(was.nodes[i])
		same(where, "the Node object", was.nodes[i].Object, n.Object)
		same(where, "the pods on the node", was.nodes[i].Pods, n.Pods)
		same(where, "the Name of the snapshot.Node", was.nodes[i].Name, n.Name)
	}
}

func (s *suite) scoreRange(c *testCase) {
	if c.want.raw == nil {
		return
	}
	w, prep := s.fresh(c, s.policy)
	for i, score := range c.want.scores {
		s.inRange(c.name+", "+nodeName(w.nodes[i]), "", score, c.want.raw[i])
	}
	normalizer, ok := prep.cycle.(policy.NormalizeScore)
	if !ok {
		return
	}
	for i, raw := range c.want.raw {
		where := c.name + ", " + nodeName(w.nodes[i])
		for _, same := range []int{1, 3} {
			scores := slices.Repeat([]int64{raw}, same)
			how := fmt.Sprintf(" when NormalizeScore gets %v", scores)
			if crash := guard(func() { normalizer.NormalizeScore(scores) }); crash != "" {
				s.fail("survives", where, "NormalizeScore %s%s", crash, how)
				break
			}
			s.inRange(where, how, slices.Min(scores), raw)
			s.inRange(where, how, slices.Max(scores), raw)
		}
	}
}

// inRange checks a final score of a node for which Score returned raw.
func (s *suite) inRange(where, how string, score, raw int64) {
	switch {
	case score == policy.NoOpinion && raw == policy.NoOpinion:
	case score == policy.NoOpinion:
		s.fail("score", where, "NormalizeScore replaces %d with NoOpinion%s: only Score may return it", raw, how)
	case score < 0 || score > policy.MaxScore:
		s.fail("score", where, "the score is %d%s: must be within 0..%d, or NoOpinion", score, how, policy.MaxScore)
	}
}

func (s *suite) concurrent(c *testCase) {
	p := s.build()
	if p == nil {
		return
	}
	w, shared := s.fresh(c, p)
	pod := c.pod.DeepCopy()
	wrong := make(chan results, goroutines)
	start := make(chan struct{})
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			<-start
			own := prepare(context.Background(), p, pod, w.view)
			for i, prep := range []prepared{shared, own, shared, own} {
				got := prep.evaluate(w.nodes, rotated(len(w.nodes), g+i))
				if got.panicked != "" || difference(w.nodes, c.want, got) != "" {
					wrong <- got
					return
				}
			}
		})
	}
	close(start)
	all.Wait()
	if len(wrong) > 0 {
		s.compare("concurrent", c.name, fmt.Sprintf("called by %d goroutines concurrently", goroutines), w.nodes, c.want, <-wrong)
	}
}

// counts compares a node with the same node without its pods.
func (s *suite) counts(c *testCase) {
	in := s.inputs()
	if _, reserves := s.policy.(policy.Reserver); reserves || in.CountsPods || len(in.Signals) > 0 || c.cluster.name != givenNodes {
		return
	}
	w, prep := s.fresh(c, s.policy)
	for _, n := range w.nodes[:w.known] {
		reduced := n.Without(func(p *corev1.Pod) bool { return p.UID != c.pod.UID })
		full, empty := evaluateOne(prep, n), evaluateOne(prep, reduced)
		full.said, empty.said = nil, nil
		if full.panicked+empty.panicked != "" {
			continue // "without" reports it
		}
		if d := difference([]*snapshot.Node{n}, full, empty); d != "" {
			s.fail("counts", c.name, "with and without the pods on it, %s: set Inputs().CountsPods, or pods in quick succession are not counted", d)
		}
	}
}

// without calls the policy for nodes without some of their pods, as preemption does.
func (s *suite) without(c *testCase) {
	w, prep := s.fresh(c, s.policy)
	if prep.cycle == nil {
		return
	}
	prep.evaluate(w.nodes, forward(len(w.nodes))) // what the policy cached for the full nodes must not matter
	for _, n := range w.nodes[:w.known] {
		leavings := slices.Collect(slices.Chunk(n.Pods, 1))
		if len(n.Pods) > 1 {
			leavings = append(leavings, n.Pods)
		}
		if s.options.Extend == nil {
			leavings = append(leavings, nil)
		}
		for _, leaving := range leavings {
			if !s.withoutPods(c, prep, n, leaving) {
				return
			}
		}
	}
}

// withoutPods compares the node without the leaving pods to an equal NewNode, and to one of another
// name. It returns false after a failure.
func (s *suite) withoutPods(c *testCase, prep prepared, n *snapshot.Node, leaving []*corev1.Pod) bool {
	reduced := n.Without(func(p *corev1.Pod) bool { return slices.Contains(leaving, p) })
	where, left := c.name+", "+nodeName(n), fmt.Sprintf("without %d of its %d pods", len(leaving), len(n.Pods))
	compare := func(with string, got, other results) bool {
		return s.compare("without", where, left+", and "+with, []*snapshot.Node{n}, got, other)
	}
	equal := snapshot.NewNode(n.Object.DeepCopy(), copies(reduced.Pods)...)
	got := evaluateOne(prep, reduced)
	if !compare("an equal node of snapshot.NewNode", got, evaluateOne(prep, equal)) {
		return false
	}
	if s.options.Pools || len(leaving) == 0 {
		return true
	}
	object := n.Object.DeepCopy()
	object.Name = "policytest-unknown"
	renamed := snapshot.NewNode(object, reduced.Pods...)
	// A policy may depend on the names themselves. Then it does so in an empty View, too, in which
	// it cannot look up the name.
	alone := prepare(context.Background(), s.policy, c.pod.DeepCopy(), new(snapshot.View))
	if alone.cycle == nil || difference([]*snapshot.Node{n}, evaluateOne(alone, reduced), evaluateOne(alone, renamed)) != "" {
		return true
	}
	if len(c.cluster.signals) > 0 {
		as := *c
		as.cluster = c.cluster.saying(c.cluster.name, func(values map[string]snapshot.Value) {
			if value, ok := values[n.Name]; ok {
				values[object.Name] = value
			}
		})
		_, prep = s.fresh(&as, s.policy)
	}
	return compare("the same under a name that the View does not hold (evaluate the Node passed to Filter and Score, and do not look up its name)", got, evaluateOne(prep, renamed))
}

// evaluateOne calls the Cycle for one node; the score is the one before NormalizeScore.
func evaluateOne(prep prepared, n *snapshot.Node) results {
	a := prep.evaluate([]*snapshot.Node{n}, forward(1))
	a.scores = a.raw
	return a
}
