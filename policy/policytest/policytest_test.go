package policytest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// options fit any policy that counts pods or reads labels.
func options(build func() (policy.Policy, error)) policytest.Options {
	return policytest.Options{
		New: build,
		Pods: policytest.Pods(`
- metadata: {name: new, labels: {app: web}, annotations: {example.com/size: "3"}}
  spec:
    containers:
    - {name: web, image: web, env: [{name: SIZE, value: "3"}], resources: {requests: {cpu: 1}}}
- metadata: {name: other}
`),
		Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {zone: east}}
  status: {allocatable: {cpu: 4}, addresses: [{type: InternalIP, address: 192.0.2.7}]}
- metadata: {name: b}
- metadata: {name: c}
`),
		Assigned: policytest.Pods(`
- {metadata: {name: z}, spec: {nodeName: a}}
- {metadata: {name: w}, spec: {nodeName: a}}
- {metadata: {name: x}, spec: {nodeName: b}}
`),
	}
}

// prepareFunc is a policy that consists of its Prepare.
type prepareFunc func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error)

func (f prepareFunc) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	return f(ctx, pod, view)
}

// Inputs is for policies that count pods; others may say so, too.
func (prepareFunc) Inputs() policy.Inputs { return policy.Inputs{CountsPods: true} }

type filterFunc func(*snapshot.Node) policy.Verdict

func (f filterFunc) Filter(n *snapshot.Node) policy.Verdict { return f(n) }

type scoreFunc func(*snapshot.Node) int64

func (f scoreFunc) Score(n *snapshot.Node) int64 { return f(n) }

type normalized struct {
	scoreFunc
	normalize func([]int64)
}

func (n normalized) NormalizeScore(scores []int64) { n.normalize(scores) }

type signed struct {
	scoreFunc
	signature string
}

func (s signed) Signature() string { return s.signature }

// scoresRows scores all rows of a View alike.
type scoresRows struct{ scoreFunc }

func (scoresRows) ScoreRows(_ []int32, scores []int64) {
	for i := range scores {
		scores[i] = 7
	}
}

// wrongScore has a Score with another result than policy.Score.
type wrongScore struct{ filterFunc }

func (wrongScore) Score(*snapshot.Node) int { return 1 }

// pointerScore has a Score only if it is a pointer.
type pointerScore struct{ filterFunc }

func (*pointerScore) Score(*snapshot.Node) int64 { return 1 }

// halfReserver has one of the two methods of policy.Reserver.
type halfReserver struct{ prepareFunc }

func (halfReserver) Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	return policy.Allocation{}, policy.Verdict{}
}

type normalizeOnly struct{}

func (normalizeOnly) NormalizeScore([]int64) {}

var tooMany = &policy.Reason{Code: "TooMany", Text: "too many pods on the node", Unit: "pods"}

// filterBy is a policy that filters every pod with f.
func filterBy(f filterFunc) policy.Policy {
	return prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) { return f, nil })
}

// explaining is a policy whose explanation of every node is the line.
func explaining(line string) policy.Policy {
	return cycleOf(struct {
		filterFunc
		explainFunc
	}{atMostOne, func(*snapshot.Node) []string { return []string{line} }})
}

type explainFunc func(*snapshot.Node) []string

func (f explainFunc) Explain(n *snapshot.Node) []string { return f(n) }

// cycleOf is a policy with one Cycle for every pod.
func cycleOf(c policy.Cycle) policy.Policy {
	return prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) { return c, nil })
}

func atMostOne(n *snapshot.Node) policy.Verdict {
	if have := int64(1 - len(n.Pods)); have < 1 {
		return policy.Verdict{Reason: tooMany, Have: have, Want: 1}
	}
	return policy.Verdict{}
}

// good is a policy with every optional part: an error, no Cycle for some pods, a Fact, a Filter, and normalized scores.
type good struct{ pods *snapshot.Fact[int64] }

func newGood() (policy.Policy, error) {
	return &good{snapshot.NewFact(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })}, nil
}

func (g *good) Prepare(ctx context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	switch size := pod.Annotations["example.com/size"]; size {
	case "":
		return nil, nil
	case "3":
		return goodCycle{g}, ctx.Err()
	default:
		return nil, fmt.Errorf("annotation example.com/size is %q: must be 3", size)
	}
}

func (*good) Inputs() policy.Inputs { return policy.Inputs{CountsPods: true} }

type goodCycle struct{ *good }

func (c goodCycle) Filter(n *snapshot.Node) policy.Verdict {
	if have := *c.pods.Of(n); have > 1 {
		return policy.Verdict{Reason: tooMany, Have: have, Want: 1}
	}
	return policy.Verdict{}
}

func (c goodCycle) Score(n *snapshot.Node) int64 { return *c.pods.Of(n) }

func (c goodCycle) NormalizeScore(scores []int64) {
	most := max(1, slices.Max(scores))
	for i, pods := range scores {
		scores[i] = policy.MaxScore * (most - pods) / most
	}
}

func TestGoodPolicyPasses(t *testing.T) {
	policytest.Run(t, options(newGood))
}

// broken lists the rules that failed.
func broken(errs []error) []string {
	rules := map[string]bool{}
	for _, err := range errs {
		rule, _, _ := strings.Cut(err.Error(), ": ")
		rules[rule] = true
	}
	return slices.Sorted(maps.Keys(rules))
}

// cpu says that a policy allocates something that is no extended resource.
type cpu struct{ policy.Policy }

func (cpu) Inputs() policy.Inputs {
	return policy.Inputs{Resources: []corev1.ResourceName{"cpu"}, CountsPods: true}
}

// scoreOnly says that a policy only scores.
type scoreOnly struct{ policy.Policy }

func (scoreOnly) Inputs() policy.Inputs { return policy.Inputs{ScoreOnly: true} }

// stale says that a policy counts no pods.
type stale struct{ policy.Policy }

func (stale) Inputs() policy.Inputs { return policy.Inputs{} }

// unheard counts pods in calls that are not made.
type unheard struct{ policy.Policy }

func (unheard) Inputs() policy.Inputs { return policy.Inputs{CountsPods: true, ScoreOnly: true} }

// filterOnly says that a policy only filters.
type filterOnly struct{ policy.Policy }

func (filterOnly) Inputs() policy.Inputs { return policy.Inputs{FilterOnly: true} }

func TestBrokenPoliciesFail(t *testing.T) {
	var calls atomic.Int64 // for policies whose result depends on the number of calls
	scoring := func(score func(*snapshot.Node) int64) policy.Policy { return cycleOf(scoreFunc(score)) }
	for _, tc := range []struct {
		name   string
		rule   string   // must fail
		also   []string // rules that unavoidably fail as well
		says   string   // in a failure of the rule
		policy policy.Policy
	}{
		{
			name: "crashes in Prepare on a pod without containers", rule: "survives", says: "Prepare panicked: runtime error: index out of range",
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				_ = pod.Spec.Containers[0]
				return filterFunc(atMostOne), nil
			}),
		},
		{
			name: "crashes in Filter on a node without labels", rule: "survives", says: `Filter of node "b" panicked: assignment to entry in nil map`,
			policy: filterBy(func(n *snapshot.Node) policy.Verdict {
				if n.Object.Labels == nil {
					n.Object.Labels["seen"] = ""
				}
				return policy.Verdict{}
			}),
		},
		{
			name: "crashes in Score on a node without allocatable", rule: "survives", says: `panicked: runtime error: integer divide by zero`,
			policy: scoring(func(n *snapshot.Node) int64 { return 4 / n.Object.Status.Allocatable.Cpu().Value() }),
		},
		{
			name: "crashes in NormalizeScore when all scores are 0", rule: "survives", says: "NormalizeScore panicked",
			policy: cycleOf(normalized{func(n *snapshot.Node) int64 { return int64(len(n.Pods)) }, func(scores []int64) {
				most := slices.Max(scores)
				for i := range scores {
					scores[i] = 100 * scores[i] / most
				}
			}}),
		},
		{
			name: "a signature without what the pod asks for", rule: "signature", says: `has the signature of pod "default/new"`,
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				return signed{func(*snapshot.Node) int64 { return int64(len(pod.Labels)) }, "the same"}, nil
			}),
		},
		{
			name: "a signature without what the View says", rule: "signature", says: "the score is first",
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
				nodes := int64(min(view.Len(), 100))
				return signed{func(*snapshot.Node) int64 { return nodes }, pod.Name}, nil
			}),
		},
		{
			name: "other scores for rows than for nodes", rule: "rows", says: "ScoreRows returns",
			policy: cycleOf(scoresRows{func(n *snapshot.Node) int64 { return int64(len(n.Name)) }}),
		},
		{
			name: "a Cycle that filters, of a policy that says that it only scores", rule: "cycle", says: "implements Filter, and Inputs().ScoreOnly is true",
			policy: scoreOnly{cycleOf(filterFunc(atMostOne))},
		},
		{
			name: "a Cycle that scores, of a policy that says that it only filters", rule: "cycle", says: "implements Score, and Inputs().FilterOnly is true",
			policy: filterOnly{cycleOf(scoreFunc(func(*snapshot.Node) int64 { return 1 }))},
		},
		{
			name: "a resource for which kube-scheduler cannot call", rule: "cycle", says: `Inputs().Resources[0]: Invalid value: "cpu": must be an extended resource`,
			policy: cpu{cycleOf(filterFunc(atMostOne))},
		},
		{
			name: "filters by pods that it does not wait for", rule: "counts", says: `node "a": Filter returned first "TooMany, have -1, want 1", then "fits": set Inputs().CountsPods`,
			policy: stale{filterBy(atMostOne)},
		},
		{
			name: "scores by pods that it does not wait for", rule: "counts", says: `node "b": the score is first 1, then 0: set Inputs().CountsPods`,
			policy: stale{scoring(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })},
		},
		{
			name: "waits in a call that is not made", rule: "cycle", says: "set ScoreOnly to false",
			policy: unheard{scoring(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })},
		},
		{name: "a Cycle that does nothing", rule: "cycle", says: "implements neither Filter nor Score", policy: cycleOf(struct{}{})},
		{name: "a Cycle that normalizes nothing", rule: "cycle", says: "NormalizeScore without Score", policy: cycleOf(normalizeOnly{})},
		{name: "a nil pointer in a Cycle", rule: "cycle", says: "which is not a nil Cycle", policy: cycleOf((*goodCycle)(nil))},
		{
			name: "applies to no pod", rule: "exercised", says: "so nothing can be checked",
			policy: cycleOf(nil),
		},
		{
			name: "unresolvable without a reason", rule: "verdict", says: "Unresolvable without a Reason",
			policy: filterBy(func(*snapshot.Node) policy.Verdict { return policy.Verdict{Unresolvable: true} }),
		},
		{
			name: "two reasons with one code", rule: "reasons", says: `two different *Reason have the code "TooMany"`,
			policy: filterBy(func() filterFunc {
				other := *tooMany
				return func(n *snapshot.Node) policy.Verdict {
					if n.Name == "b" {
						return policy.Verdict{Reason: &other}
					}
					return policy.Verdict{Reason: tooMany}
				}
			}()),
		},
		{
			name: "a reason that names the node", rule: "reasons", says: `the code "TooMany" has two texts`,
			policy: func() policy.Policy {
				reasons := map[string]*policy.Reason{}
				for _, name := range []string{"", "a", "b", "c", "policytest-unknown"} {
					reasons[name] = &policy.Reason{Code: "TooMany", Text: "too many pods on node " + name}
				}
				return filterBy(func(n *snapshot.Node) policy.Verdict { return policy.Verdict{Reason: reasons[n.Name]} })
			}(),
		},
		{
			name: "a reason without a code", rule: "reasons", says: `the code "" is neither in CamelCase nor a name such as no-spot`,
			policy: filterBy(rejectWith(&policy.Reason{Text: "too many pods"})),
		},
		{
			name: "a reason without a text", rule: "reasons", says: "must be one line, and not empty",
			policy: filterBy(rejectWith(&policy.Reason{Code: "TooMany"})),
		},
		{
			name: "a reason with a number", rule: "reasons", says: `"node has 3 pods" of TooMany contains a number`,
			policy: filterBy(rejectWith(&policy.Reason{Code: "TooMany", Text: "node has 3 pods"})),
		},
		{
			name: "a reason that changes", rule: "reasons", says: "must be constant",
			policy: func() policy.Policy {
				mine := *tooMany
				return prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
					mine.Text = "too many pods beside " + strings.Repeat("this ", int(calls.Add(1))) + "pod"
					return filterFunc(rejectWith(&mine)), nil
				})
			}(),
		},
		{
			name: "explains in a sentence", rule: "explanation", says: `the line "The node has 3 pods." does not have the form <what>: <value>`,
			policy: explaining("The node has 3 pods."),
		},
		{
			name: "answers by how often it was asked", rule: "repeatable", says: `the score is first`,
			policy: scoring(func(*snapshot.Node) int64 { return calls.Add(1) % 100 }),
			also:   []string{"without"},
		},
		{
			name: "answers by the order of nodes", rule: "repeatable", says: "called for a View built anew, in reverse order",
			policy: prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
				var first atomic.Pointer[snapshot.Node]
				return filterFunc(func(n *snapshot.Node) policy.Verdict {
					if first.CompareAndSwap(nil, n); first.Load() != n {
						return policy.Verdict{Reason: tooMany}
					}
					return policy.Verdict{}
				}), nil
			}),
			also: []string{"without"},
		},
		{
			name: "an error that changes", rule: "repeatable", says: "Prepare returned first",
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				if pod.Name == "other" {
					return nil, fmt.Errorf("attempt %d", calls.Add(1))
				}
				return filterFunc(atMostOne), nil
			}),
		},
		{
			name: "writes to the pod", rule: "read-only", says: "the policy changed the pod to place",
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				pod.Spec.NodeName = "a"
				return filterFunc(atMostOne), nil
			}),
		},
		{
			name: "writes to a node's labels", rule: "read-only", says: "the policy changed the Node object",
			policy: filterBy(func(n *snapshot.Node) policy.Verdict {
				if n.Object.Labels != nil {
					n.Object.Labels["seen"] = ""
				}
				return policy.Verdict{}
			}),
		},
		{
			name: "writes to a pod on a node", rule: "read-only", says: "the policy changed the pods on the node",
			policy: filterBy(func(n *snapshot.Node) policy.Verdict {
				if len(n.Pods) == 1 {
					n.Pods[0].Status.Phase = corev1.PodRunning
				}
				return policy.Verdict{}
			}),
		},
		{
			name: "allocates in Filter", rule: "allocations", says: "Filter allocates 1 times: compute it in Prepare, or in a snapshot.Fact",
			policy: filterBy(func(n *snapshot.Node) policy.Verdict {
				if pods := slices.Clone(n.Pods); len(pods) > 1 {
					return policy.Verdict{Reason: tooMany}
				}
				return policy.Verdict{}
			}),
		},
		{
			name: "scores above 100", rule: "score", says: "the score is 101: must be within 0..100",
			policy: scoring(func(*snapshot.Node) int64 { return 101 }),
		},
		{
			name: "normalizes beyond 100", rule: "score", says: "the score is 150 when NormalizeScore gets [50]",
			policy: cycleOf(normalized{func(*snapshot.Node) int64 { return 50 }, func(scores []int64) {
				if len(scores) == 1 {
					scores[0] = 150
				}
			}}),
		},
		{
			name: "normalizes to what means no opinion", rule: "score", says: "NormalizeScore replaces 50 with NoOpinion",
			policy: cycleOf(normalized{func(*snapshot.Node) int64 { return 50 }, func(scores []int64) {
				for i := range scores {
					scores[i] = 49 - scores[i]
				}
			}}),
		},
		{
			name: "keeps notes in the Cycle", rule: "concurrent", says: "called by 8 goroutines concurrently",
			policy: prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
				var judging atomic.Pointer[snapshot.Node]
				return filterFunc(func(n *snapshot.Node) policy.Verdict {
					judging.Store(n)
					for range 10 {
						runtime.Gosched() // lets other goroutines run
					}
					return atMostOne(judging.Load())
				}), nil
			}),
		},
		{
			name: "takes a cancelled context for a pod to which it does not apply", rule: "repeatable", says: "Prepare returned a nil Cycle: first false, then true",
			policy: prepareFunc(func(ctx context.Context, _ *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				if ctx.Err() != nil {
					return nil, nil
				}
				return filterFunc(atMostOne), nil
			}),
		},
		{
			name: "scores with another type", rule: "methods", policy: cycleOf(wrongScore{atMostOne}),
			says: "policytest_test.wrongScore has a method Score, but does not implement policy.Score, so it is never called: the type policytest_test.wrongScore itself must have Score(*snapshot.Node) int64",
		},
		{
			name: "scores by pointer", rule: "methods", policy: cycleOf(pointerScore{atMostOne}),
			says: "the type policytest_test.pointerScore itself must have Score(*snapshot.Node) int64",
		},
		{
			name: "reserves nowhere", rule: "methods", policy: halfReserver{cycleOf(filterFunc(atMostOne)).(prepareFunc)},
			says: "must have Ledgers(*v1.Pod, *snapshot.Node) ([]snapshot.LedgerKey, error) and Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict)",
		},
		{
			name: "signs all sizes alike", rule: "signature", says: "with other numbers in labels and annotations",
			policy: prepareFunc(func(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
				size, err := strconv.ParseInt(pod.Annotations["example.com/size"], 10, 32)
				if err != nil || size < 1 {
					return nil, nil
				}
				return signed{func(*snapshot.Node) int64 { return size }, "sized"}, nil
			}),
		},
		{
			name: "creates a Fact for each pod", rule: "allocations", says: "Score allocates 1 times: compute it in Prepare, or in a snapshot.Fact that is created once, with the policy",
			policy: prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
				pods := snapshot.NewFact(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })
				return scoreFunc(func(n *snapshot.Node) int64 { return min(100, *pods.Of(n)) }), nil
			}),
		},
		{
			name: "rejects nodes that the View does not hold", rule: "without", says: `node "a": Filter returned first "fits", then "TooMany`,
			policy: filterBy(func(n *snapshot.Node) policy.Verdict {
				if n.Row() < 0 {
					return policy.Verdict{Reason: tooMany}
				}
				return policy.Verdict{}
			}),
		},
		{
			name: "looks the node up in the View", rule: "without", says: "do not look up its name",
			policy: prepareFunc(func(_ context.Context, _ *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
				return filterFunc(func(n *snapshot.Node) policy.Verdict {
					if known := view.Node(n.Name); known != nil {
						n = known
					}
					return atMostOne(n)
				}), nil
			}),
		},
		{
			name: "remembers verdicts by name", rule: "without", says: "do not look up its name",
			policy: prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
				var verdicts sync.Map
				return filterFunc(func(n *snapshot.Node) policy.Verdict {
					v, known := verdicts.Load(n.Name)
					if !known {
						v, _ = verdicts.LoadOrStore(n.Name, atMostOne(n))
					}
					return v.(policy.Verdict)
				}), nil
			}),
			also: []string{"allocations"}, // the name becomes a map key
		},
		{
			name: "remembers verdicts by object", rule: "without", says: "and an equal node of snapshot.NewNode",
			policy: prepareFunc(func(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
				var verdicts sync.Map
				return filterFunc(func(n *snapshot.Node) policy.Verdict {
					v, known := verdicts.Load(n.Object)
					if !known {
						v, _ = verdicts.LoadOrStore(n.Object, atMostOne(n))
					}
					return v.(policy.Verdict)
				}), nil
			}),
			also: []string{"allocations"}, // the map is in the Cycle
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls.Store(0)
			errs := policytest.Check(options(func() (policy.Policy, error) { return tc.policy, nil }))
			says := false
			for _, err := range errs {
				text := err.Error()
				says = says || strings.HasPrefix(text, tc.rule+": ") && strings.Contains(text, tc.says)
			}
			if !says {
				t.Errorf("no failure of rule %q says %q:\n%v", tc.rule, tc.says, errors.Join(errs...))
			}
			for _, rule := range broken(errs) {
				if rule != tc.rule && !slices.Contains(tc.also, rule) {
					t.Errorf("rule %q failed too:\n%v", rule, errors.Join(errs...))
				}
			}
		})
	}
}

func TestHangingPolicyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which five seconds pass at once
		release := make(chan struct{})
		defer close(release)
		errs := policytest.Check(options(func() (policy.Policy, error) {
			return filterBy(func(*snapshot.Node) policy.Verdict { <-release; return policy.Verdict{} }), nil
		}))
		if len(errs) != 3 || !strings.Contains(errs[0].Error(), `Filter of node "" was running when the policy had taken 5s`) {
			t.Errorf("got %v", errors.Join(errs...))
		}
	})
}

func rejectWith(r *policy.Reason) filterFunc {
	return func(*snapshot.Node) policy.Verdict { return policy.Verdict{Reason: r} }
}

func TestPolicyThatIsNotBuiltFails(t *testing.T) {
	for name, tc := range map[string]struct {
		build func() (policy.Policy, error)
		says  string
	}{
		"error":   {func() (policy.Policy, error) { return nil, errors.New("no such selector") }, "builds: New returned an error: no such selector"},
		"nothing": {func() (policy.Policy, error) { return nil, nil }, "builds: New returned neither a policy nor an error"},
		"panic":   {func() (policy.Policy, error) { panic("oops") }, "builds: New panicked: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := policytest.Check(options(tc.build))
			if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.says) {
				t.Errorf("got %v, want %q", errs, tc.says)
			}
		})
	}
}

func TestNoCasesFail(t *testing.T) {
	errs := policytest.Check(policytest.Options{New: newGood})
	if want := "exercised: Options has 0 Pods and 0 Nodes: at least one of each is needed"; len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %q", errs, want)
	}
}
