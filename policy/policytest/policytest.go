package policytest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Options say what to check. Nothing in them is written to.
type Options struct {
	// New builds the policy under test. It is called more than once; the
	// policies it returns have the same configuration.
	New func() (policy.Policy, error)
	// Pods are pods to place. At least one of them must concern the policy;
	// between them they should reach everything the policy looks at, because
	// the suite makes its hostile pods from them.
	Pods []*corev1.Pod
	// Nodes are the nodes of the View. Some should fit, some not.
	Nodes []*corev1.Node
	// Assigned are pods on these nodes, by their spec.nodeName. Their UIDs are
	// distinct.
	Assigned []*corev1.Pod
	// Signals are the signals of every View, also of one whose nodes are in the
	// request only.
	Signals []*snapshot.Signal
	// Allocates is for a policy that cannot judge a node without allocating. The zero
	// value is for all others.
	Allocates Allocates
	// Extend, if not nil, adds to a View what is more than nodes and pods, just
	// before it is published. As a node outside the View has nothing of that,
	// the rule "stranger" is then left out.
	Extend func(*snapshot.Builder)
	// Pools is for a policy that counts what all pods in the View hold, wherever
	// they are. Under a name that the View does not hold, a node without some of its
	// pods is another node, and those pods are still in the View: the comparison
	// with it, a part of the rule "without", is then left out.
	Pools bool
}

// Allocates bounds what one call of Filter or Score may allocate, and says why it must.
type Allocates struct {
	AtMost int
	// Why must be given if AtMost is not 0: who reads the test should agree.
	Why string
}

// Failure is a rule that a policy breaks. Its text says what happened and in
// which case.
type Failure struct {
	// Rule is one of those in the package's documentation.
	Rule string
	// Case names the pod, the cluster and the node; "" when none is to blame.
	Case string
	// Message says what broke.
	Message string
}

func (f *Failure) Error() string {
	if f.Case == "" {
		return f.Rule + ": " + f.Message
	}
	return fmt.Sprintf("%s: %s: %s", f.Rule, f.Case, f.Message)
}

// Run fails the test for every rule the policy breaks. The test must not be
// parallel to others, because allocations are counted.
func Run(t *testing.T, o Options) {
	t.Helper()
	for _, err := range Check(o) {
		t.Error(err)
	}
}

// Check returns a *[Failure] for every rule the policy breaks, a few for each;
// none when it keeps the contract. It must not run while parallel tests do.
func Check(o Options) []error {
	s := newSuite(o)
	if s.prepareCases() {
		s.exercised()
		s.checkRules()
	}
	return s.errors()
}

// maxFailures is how many failures of one rule are told; hostile cases are so
// many that a single mistake would fill the screen.
const maxFailures = 3

// suite is one run of Check.
type suite struct {
	options  Options
	policy   policy.Policy
	cases    []*testCase // those that can be judged at all
	failures []*Failure
	omitted  map[string]int // by rule

	concerned bool // a given pod got a Cycle
	byCode    map[string]*policy.Reason
	reasons   map[*policy.Reason]policy.Reason // as first seen
}

// testCase is one pod to place in one cluster, and what the policy said.
type testCase struct {
	name    string
	pod     *corev1.Pod // trimmed
	raw     *corev1.Pod // as it might come from the API server
	cluster *cluster
	want    answers
}

func newSuite(o Options) *suite {
	return &suite{
		options: o,
		omitted: map[string]int{},
		byCode:  map[string]*policy.Reason{},
		reasons: map[*policy.Reason]policy.Reason{},
	}
}

// prepareCases asks the policy about every case once, and keeps those it
// survives. It returns false when there is nothing to go on with.
func (s *suite) prepareCases() bool {
	if s.policy = s.build(); s.policy == nil {
		return false
	}
	for _, c := range allCases(s.options) {
		w := c.cluster.build(s.options.Extend, asPublished)
		asked := prepare(context.Background(), s.policy, c.pod.DeepCopy(), w.view)
		switch invalid := asked.invalid(); {
		case asked.panicked != "":
			s.fail("survives", c.name, "Prepare %s", asked.panicked)
			continue
		case invalid != "":
			s.fail("cycle", c.name, "%s", invalid)
			continue
		}
		c.want = asked.judge(w.nodes, forward(len(w.nodes)))
		if c.want.panicked != "" {
			s.fail("survives", c.name, "%s", c.want.panicked)
			continue
		}
		s.concerned = s.concerned || asked.cycle != nil
		s.cases = append(s.cases, c)
	}
	return true
}

func (s *suite) exercised() {
	if a := s.options.Allocates; a.AtMost < 0 || a.AtMost > 0 && a.Why == "" {
		s.fail("exercised", "", "Options allows %d allocations and does not say why", a.AtMost)
	}
	if len(s.options.Pods) == 0 || len(s.options.Nodes) == 0 {
		s.fail("exercised", "", "Options has %d Pods and %d Nodes: at least one of each is needed", len(s.options.Pods), len(s.options.Nodes))
	} else if !s.concerned && len(s.failures) == 0 {
		s.fail("exercised", "", "Prepare returned no Cycle for any pod: the cases prove nothing")
	}
}

func (s *suite) checkRules() {
	rules := []func(*testCase){
		s.verdicts, s.repeatable, s.readOnly, s.scoreRange, s.cancelled, s.trimmed, s.stranger, s.without, s.claims,
	}
	for _, rule := range rules {
		for _, c := range s.cases {
			rule(c)
		}
	}
	s.signatures()
	s.allocations()
	// A policy that writes where it should not may crash the whole process when
	// asked concurrently, and with it go the failures that say why.
	if len(s.failures) > 0 {
		return
	}
	for _, c := range s.cases {
		s.concurrent(c)
	}
}

func (s *suite) build() policy.Policy {
	var p policy.Policy
	var err error
	if crash := guard(func() { p, err = s.options.New() }); crash != "" {
		s.fail("builds", "", "New %s", crash)
		return nil
	}
	if err != nil {
		s.fail("builds", "", "New returned an error: %v", err)
		return nil
	}
	if p == nil {
		s.fail("builds", "", "New returned neither a policy nor an error")
	}
	return p
}

func (s *suite) fail(rule, where, format string, args ...any) {
	told := 0
	for _, f := range s.failures {
		if f.Rule == rule {
			told++
		}
	}
	if told == maxFailures {
		s.omitted[rule]++
		return
	}
	s.failures = append(s.failures, &Failure{Rule: rule, Case: where, Message: fmt.Sprintf(format, args...)})
}

func (s *suite) errors() []error {
	var errs []error
	last := map[string]*Failure{}
	for _, f := range s.failures {
		last[f.Rule] = f
		errs = append(errs, f)
	}
	for rule, n := range s.omitted {
		last[rule].Message += fmt.Sprintf("\n(and %d more failures of this rule)", n)
	}
	return errs
}
