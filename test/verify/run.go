package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
)

// Run calls the extender and reports. The error is about the options, about files
// that they name, or ctx's if it ends first; the report has all that the extender does.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := newFixtures(o)
	if err != nil {
		return nil, err
	}
	asker, err := newClient(o.URL, o.https(), o.TLS, o.HTTPTimeout)
	if err != nil {
		return nil, err
	}
	defer asker.close()

	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, o.Budget)
	defer cancel()
	r := &run{ctx: limited, options: o, fixtures: c, client: asker, checker: newChecker(), timeouts: make(map[string]int)}
	r.all()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if limited.Err() != nil {
		r.note("stopped after %s; calls not made by then are not checked", o.Budget)
	}
	return &Report{
		URL: redacted(o.URL), Verbs: r.verbs(), Modes: r.modes, Results: r.checker.finish(r.verbs()),
		Notes: r.notes,
		Calls: int(asker.calls.Load()), Connections: int(asker.connections.Load()), Took: time.Since(start),
	}, nil
}

// run is one run in progress. Only ask may be called concurrently, and only
// through the client.
type run struct {
	ctx      context.Context
	options  Options
	fixtures *fixtures
	client   *client
	checker  *checker

	modes    []Mode
	targets  []*target
	notes    []string
	timeouts map[string]int // by verb and mode
	dead     bool           // a malformed request ended it
}

// target is one verb in one mode. base is its ordinary request; ok says that it
// gets a verdict, and stable that it gets the same one each time.
type target struct {
	verb       decision.Verb
	path       string
	mode       Mode
	base       *request
	first      response
	verdict    verdict
	ok, stable bool
}

func (t *target) reads() bool { return t.verb == decision.Filter || t.verb == decision.Prioritize }

func (r *run) all() {
	if proxy := r.client.proxy(); proxy != "" {
		r.note("calls go through the proxy %s, like those of kube-scheduler in the same environment", proxy)
	}
	r.modes = r.findModes()
	for _, mode := range r.modes {
		for _, verb := range r.verbs() {
			if verb != decision.Bind {
				r.targets = append(r.targets, r.newTarget(verb, mode))
			}
		}
	}
	if r.options.Verbs[decision.Bind] != "" {
		r.targets = append(r.targets, r.newTarget(decision.Bind, ""))
	}
	stages := []func(*target){r.contract, r.consistency, r.effects, r.reuse, r.concurrency, r.size, r.malformed}
	for i, stage := range stages {
		for _, t := range r.targets {
			if (i == 0 || t.ok) && !r.dead {
				stage(t)
			}
		}
		if i == 0 {
			r.security()
			r.explainNoPasses()
		}
	}
}

func (r *run) verbs() []decision.Verb {
	return slices.DeleteFunc(decision.Verbs(), func(verb decision.Verb) bool { return r.options.Verbs[verb] == "" })
}

func (r *run) newTarget(verb decision.Verb, mode Mode) *target {
	t := &target{verb: verb, path: r.options.Verbs[verb], mode: mode}
	switch verb {
	case decision.Preempt:
		t.base = askPreempt(t.path, mode, r.fixtures, "candidates with victims")
	case decision.Bind:
		t.base = askBind(t.path, r.fixtures.nodes[0].Name)
	default:
		nodes := r.fixtures.sample()
		t.base = r.about(t, r.fixtures.pod, nodes, fmt.Sprintf("%d nodes", len(nodes)))
	}
	return t
}

func (r *run) about(t *target, pod *corev1.Pod, nodes []*corev1.Node, what string) *request {
	return askAbout(t.verb, t.path, t.mode, pod, nodes, what)
}

// ask sends the request, unless too many requests of the verb have timed out: further
// ones would use up the time of the other verbs.
func (r *run) ask(q *request) response {
	const maxTimeouts = 3
	key := string(q.verb) + " " + string(q.mode)
	if r.timeouts[key] >= maxTimeouts || r.ctx.Err() != nil {
		return response{failure: notAsked}
	}
	a := r.client.ask(r.ctx, q)
	if a.failure == late {
		if r.timeouts[key]++; r.timeouts[key] == maxTimeouts {
			r.note("%s: no further calls were made after %d timeouts", strings.TrimSpace(key), maxTimeouts)
		}
	}
	return a
}

// findModes returns the modes to check. In ModeAuto, these are the modes in which an
// ordinary request gets a result that kube-scheduler can use; names if there is none.
func (r *run) findModes() []Mode {
	switch r.options.Mode {
	case ModeNames, ModeNodes:
		return []Mode{r.options.Mode}
	case ModeBoth:
		return []Mode{ModeNames, ModeNodes}
	}
	verb := decision.Filter
	if r.options.Verbs[decision.Filter] == "" {
		verb = decision.Prioritize
	}
	path := r.options.Verbs[verb]
	if path == "" {
		return []Mode{ModeNames}
	}
	var modes []Mode
	got := make(map[Mode]string)
	for _, mode := range []Mode{ModeNames, ModeNodes} {
		a := r.client.ask(r.ctx, askAbout(verb, path, mode, r.fixtures.pod, r.fixtures.sample(), ""))
		if got[mode] = a.got(); usable(&a, mode) {
			modes = append(modes, mode)
		}
	}
	switch {
	case len(modes) == 0:
		modes = []Mode{ModeNames}
	case len(modes) == 1 && modes[0] == ModeNames:
		r.note("whole nodes get no result (%s): set nodeCacheCapable: true in kube-scheduler's configuration", got[ModeNodes])
	case len(modes) == 1 && r.fixtures.knownNodes == 0:
		r.note("names of imaginary nodes get no result (%s), so only whole nodes are checked: give nodes that the extender knows with --objects", got[ModeNames])
	case len(modes) == 1:
		r.note("node names get no result (%s): set nodeCacheCapable: false in kube-scheduler's configuration, which makes calls much slower", got[ModeNames])
	}
	return modes
}

func usable(a *response, mode Mode) bool {
	if a.failure != responded {
		return false
	}
	switch r := a.result.(type) {
	case *filterResult:
		names, inMode := r.passed(mode)
		return r.Error == "" && inMode && (len(names) > 0 || len(r.FailedNodes.value)+len(r.FailedAndUnresolvableNodes.value) > 0)
	case *scoreResult:
		return len(*r) > 0
	}
	return false
}

// contract makes the ordinary requests.
func (r *run) contract(t *target) {
	if t.verb == decision.Preempt && len(t.base.names) == 0 {
		r.note("preempt was not called: there is no pod on the given nodes")
		return
	}
	t.first = r.ask(t.base)
	if t.ok = r.checker.response(t.base, &t.first, r.fixtures); !t.ok {
		return
	}
	t.verdict = t.first.result.verdict(t.base)
	t.stable = true
	if t.reads() {
		nodes := r.fixtures.sample()
		r.askAndCheck(r.about(t, r.fixtures.pod, nodes[:1], "one node, as for a nominated pod"))
		r.askAndCheck(r.about(t, r.fixtures.unschedulablePod(), nodes, fmt.Sprintf("%d nodes, a pod that fits on no node", len(nodes))))
	}
}

// askAndCheck makes one well-formed request and checks the response.
func (r *run) askAndCheck(q *request) (a response, ok bool) {
	a = r.ask(q)
	return a, r.checker.response(q, &a, r.fixtures)
}

// consistency repeats the request, and then reverses the order of its nodes.
func (r *run) consistency(t *target) {
	for range 2 {
		a, ok := r.askAndCheck(t.base)
		if !ok {
			t.stable = false
			return
		}
		if d := t.verdict.difference(a.result.verdict(t.base)); !r.checker.check(ruleSame, d == "", t.base, &a, "%s", d) {
			t.stable = false
			return
		}
	}
	if !t.reads() || len(t.base.names) < 2 {
		return
	}
	nodes := slices.Clone(r.fixtures.sample())
	slices.Reverse(nodes)
	q := r.about(t, r.fixtures.pod, nodes, fmt.Sprintf("the same %d nodes in reverse order", len(nodes)))
	if a, ok := r.askAndCheck(q); ok {
		d := t.verdict.difference(a.result.verdict(q))
		r.checker.check(ruleIndependent, d == "", q, &a, "%s", d)
	}
}

// effects makes requests for many pods, and then repeats that for the first.
func (r *run) effects(t *target) {
	if !t.reads() || !t.stable || r.options.ImaginaryPods < 0 {
		return
	}
	for i := range r.options.ImaginaryPods {
		if _, ok := r.askAndCheck(r.about(t, r.fixtures.unknownPod(i), r.fixtures.sample(), "an imaginary pod")); !ok {
			return
		}
	}
	if a, ok := r.askAndCheck(t.base); ok {
		d := t.verdict.difference(a.result.verdict(t.base))
		t.stable = r.checker.check(ruleNoEffect, d == "", t.base, &a, "after requests for %d other pods: %s", r.options.ImaginaryPods, d)
	}
}

// explainNoPasses adds a note when no node passed, because most rules then are not checked.
func (r *run) explainNoPasses() {
	for _, t := range r.targets {
		if f, isFilter := t.first.result.(*filterResult); isFilter {
			if names, _ := f.passed(t.mode); len(names) == 0 && r.fixtures.knownNodes == 0 {
				r.note("filter (%s mode) passed no imaginary node, so few rules could be checked: give nodes that the extender knows, and a pod that it manages, with --objects", t.mode)
			}
		}
	}
}

func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, printable(fmt.Sprintf(format, args...)))
}

func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// unauthenticated returns the same options without a client certificate.
func (o Options) unauthenticated() Options {
	o.TLS.CertFile, o.TLS.KeyFile, o.TLS.CertData, o.TLS.KeyData = "", "", nil, nil
	return o
}
