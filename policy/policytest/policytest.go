package policytest

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// Options define what Check checks. It does not change them.
type Options struct {
	// New builds the policy under test. It is called several times; all policies that it returns
	// have the same configuration.
	New func() (policy.Policy, error)
	// Pods are pods to place. The policy must apply to at least one of them. Together they should
	// have everything that the policy reads, because Check derives hostile pods from them.
	Pods []*corev1.Pod
	// Nodes are the nodes of the View. Some should fit, some not.
	Nodes []*corev1.Node
	// Assigned are pods on these nodes, by their spec.nodeName. Their UIDs are unique.
	Assigned []*corev1.Pod
	// Signals are the signals of every View, including Views without nodes.
	Signals []*snapshot.Signal
	// Allocates is how often one call of Filter or Score may allocate, for a policy that cannot
	// evaluate a node without; 0 for others.
	Allocates int
	// Extend, if not nil, adds more than nodes and pods to a View just before it is published. The
	// rule "without" then compares no node that has all its pods, because a node outside the View
	// has none of that.
	Extend func(*snapshot.Builder)
	// Pools is for a policy that counts what all pods in the View hold, on any node. The rule
	// "without" then omits the comparison with a node of another name: the pods removed from such a
	// node are still in the View.
	Pools bool
}

// Run fails the test for every rule that the policy violates. The test must not run in parallel
// with others, because Run counts allocations.
func Run(t *testing.T, o Options) {
	t.Helper()
	for _, err := range Check(o) {
		t.Error(err)
	}
}

// Check returns an error for every rule that the policy violates, up to a few for each, and none if
// it keeps the contract. The text begins with the rule. It must not run while parallel tests run.
func Check(o Options) []error {
	s := newSuite(o)
	if s.prepareCases() {
		s.exercised()
		s.checkRules()
	}
	return s.failures
}

// maxFailures is how many failures of one rule are reported: with so many hostile cases, a single
// mistake would cause hundreds.
const maxFailures = 3

type suite struct {
	options  Options
	policy   policy.Policy
	other    policy.Policy // with the same configuration
	cases    []*testCase   // those that can be evaluated
	failures []error
	failed   map[string]int // by rule, also those that are not reported

	applies bool // a given pod got a Cycle
	byCode  map[string]*policy.Reason
	reasons map[*policy.Reason]policy.Reason // as first returned
	types   map[reflect.Type]bool            // of the policy and its Cycles, whose methods are checked
}

// testCase is one pod to place in one cluster, and the results of the policy.
type testCase struct {
	name      string
	pod       *corev1.Pod // trimmed
	unchanged bool        // a given pod
	cluster   *cluster
	want      results
}

func newSuite(o Options) *suite {
	return &suite{
		options: o,
		failed:  map[string]int{},
		byCode:  map[string]*policy.Reason{},
		reasons: map[*policy.Reason]policy.Reason{},
		types:   map[reflect.Type]bool{},
	}
}

// prepareCases calls the policy once for every case, and keeps the cases without a panic. It
// returns false if no case is left.
func (s *suite) prepareCases() bool {
	for _, p := range []*policy.Policy{&s.policy, &s.other} {
		if *p = s.build(); *p == nil {
			return false
		}
	}
	in := s.inputs()
	for i, name := range in.Resources { // kube-scheduler could not be told to call for others
		for _, err := range fields.ExtendedResource(field.NewPath("Inputs().Resources").Index(i), string(name)) {
			s.fail("cycle", "", "%v", err)
		}
	}
	s.methods(s.policy, reflect.TypeFor[policy.InputReader](), reflect.TypeFor[policy.Reserver](), reflect.TypeFor[policy.AllocationValidator]())
	for _, c := range allCases(s.options) {
		if s.failed["survives"] >= maxFailures {
			return false // each case may take maxTime
		}
		w := c.cluster.build(s.options.Extend)
		prep := prepare(context.Background(), s.policy, c.pod.DeepCopy(), w.view)
		s.methods(prep.cycle, reflect.TypeFor[policy.Filter](), reflect.TypeFor[policy.Score](), reflect.TypeFor[policy.NormalizeScore](),
			reflect.TypeFor[policy.Explainer](), reflect.TypeFor[policy.Signature](), reflect.TypeFor[policy.ScoreRows]())
		switch invalid := prep.invalid(in); {
		case prep.panicked != "":
			s.fail("survives", c.name, "Prepare %s", prep.panicked)
			continue
		case invalid != "":
			s.fail("cycle", c.name, "%s", invalid)
			continue
		}
		c.want = prep.evaluate(w.nodes, forward(len(w.nodes)))
		if c.want.panicked != "" {
			s.fail("survives", c.name, "%s", c.want.panicked)
			continue
		}
		s.applies = s.applies || prep.cycle != nil
		s.cases = append(s.cases, c)
	}
	return true
}

func (s *suite) inputs() (in policy.Inputs) {
	if reader, ok := s.policy.(policy.InputReader); ok {
		in = reader.Inputs()
	}
	return in
}

func (s *suite) exercised() {
	if len(s.options.Pods) == 0 || len(s.options.Nodes) == 0 {
		s.fail("exercised", "", "Options has %d Pods and %d Nodes: at least one of each is needed", len(s.options.Pods), len(s.options.Nodes))
	} else if !s.applies && len(s.failures) == 0 {
		s.fail("exercised", "", "Prepare returned no Cycle for any pod, so nothing can be checked")
	}
}

func (s *suite) checkRules() {
	rules := []func(*testCase){
		s.returned, s.repeatable, s.readOnly, s.scoreRange, s.counts, s.without, s.allocations, s.scoreRows,
	}
	for _, rule := range rules {
		for _, c := range s.cases {
			rule(c)
		}
	}
	s.signatures()
	s.allocatesNothing()
	// A policy that writes to shared memory may crash the process when it is called concurrently,
	// and the failures found so far would be lost.
	if len(s.failures) > 0 {
		return
	}
	for _, c := range s.cases {
		s.concurrent(c)
	}
}

// build returns nil after a failure.
func (s *suite) build() (p policy.Policy) {
	var err error
	switch crash := guard(func() { p, err = s.options.New() }); {
	case crash != "":
		s.fail("builds", "", "New %s", crash)
	case err != nil:
		s.fail("builds", "", "New returned an error: %v", err)
		return nil
	case p == nil:
		s.fail("builds", "", "New returned neither a policy nor an error")
	}
	return p
}

// fail records that the policy violates the rule. where names the pod, the cluster and the node, or
// is "".
func (s *suite) fail(rule, where, format string, args ...any) {
	if s.failed[rule]++; s.failed[rule] > maxFailures {
		return
	}
	if where != "" {
		rule += ": " + where
	}
	s.failures = append(s.failures, fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
}
