package verify

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Run asks the extender and reports. The error is about the options, about files
// they name, or ctx's when it ends first; whatever the extender does is in the
// report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := newCast(o)
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
	r := &run{ctx: limited, options: o, cast: c, client: asker, judge: newJudge(), timeouts: make(map[string]int)}
	r.all()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if limited.Err() != nil {
		r.note("stopped after %s; what was not asked by then is not judged", o.Budget)
	}
	return &Report{
		URL: redacted(o.URL), Verbs: r.verbs(), Modes: r.modes, Results: r.judge.finish(r.verbs()),
		Latencies: r.latencies, Notes: r.notes,
		Calls: int(asker.calls.Load()), Connections: int(asker.connections.Load()), Took: time.Since(start),
	}, nil
}

// run is one run in progress. Only ask may be called concurrently, and only
// through the client.
type run struct {
	ctx     context.Context
	options Options
	cast    *cast
	client  *client
	judge   *judge

	modes     []Mode
	targets   []*target
	latencies []Latency
	notes     []string
	timeouts  map[string]int // by verb and mode
	dead      bool           // an odd question ended it
}

// target is one verb in one mode. base is its ordinary question; ok says that it
// gets a verdict, and stable that it gets the same one each time.
type target struct {
	verb, path string
	mode       Mode
	base       *question
	first      answer
	verdict    verdict
	ok, stable bool
}

func (t *target) reads() bool { return t.verb == verbFilter || t.verb == verbPrioritize }

func (r *run) all() {
	if proxy := r.client.proxy(); proxy != "" {
		r.note("calls go through the proxy %s; so would kube-scheduler's with the same environment", proxy)
	}
	r.modes = r.findModes()
	for _, mode := range r.modes {
		for _, verb := range []string{verbFilter, verbPrioritize, verbPreempt} {
			if path := r.path(verb); path != "" {
				r.targets = append(r.targets, r.newTarget(verb, path, mode))
			}
		}
	}
	if path := r.path(verbBind); path != "" {
		r.targets = append(r.targets, r.newTarget(verbBind, path, ""))
	}
	stages := []func(*target){r.contract, r.consistency, r.effects, r.reuse, r.concurrency, r.size, r.oddities}
	for i, stage := range stages {
		for _, t := range r.targets {
			if (i == 0 || t.ok) && !r.dead {
				stage(t)
			}
		}
		if i == 0 {
			r.security()
			r.explainSilence()
		}
	}
}

func (r *run) path(verb string) string {
	return map[string]string{
		verbFilter: r.options.FilterVerb, verbPrioritize: r.options.PrioritizeVerb,
		verbPreempt: r.options.PreemptVerb, verbBind: r.options.BindVerb,
	}[verb]
}

func (r *run) verbs() []string {
	return slices.DeleteFunc([]string{verbFilter, verbPrioritize, verbPreempt, verbBind}, func(verb string) bool { return r.path(verb) == "" })
}

func (r *run) newTarget(verb, path string, mode Mode) *target {
	t := &target{verb: verb, path: path, mode: mode}
	switch verb {
	case verbPreempt:
		t.base = askPreempt(path, mode, r.cast, "candidates with victims")
	case verbBind:
		t.base = askBind(path, r.cast.nodes[0].Name)
	default:
		nodes := r.cast.sample()
		t.base = r.about(t, r.cast.pod, nodes, fmt.Sprintf("%d nodes", len(nodes)))
	}
	return t
}

func (r *run) about(t *target, pod *corev1.Pod, nodes []*corev1.Node, what string) *question {
	return askAbout(t.verb, t.path, t.mode, pod, nodes, what)
}

// ask sends the question, unless this verb has let too many time out: they would
// use up the time that other verbs need.
func (r *run) ask(q *question) answer {
	const patience = 3
	key := q.verb + " " + string(q.mode)
	if r.timeouts[key] >= patience || r.ctx.Err() != nil {
		return answer{failure: notAsked}
	}
	a := r.client.ask(r.ctx, q)
	if a.failure == late {
		if r.timeouts[key]++; r.timeouts[key] == patience {
			r.note("%s let %d questions time out and was not asked further", strings.TrimSpace(key), patience)
		}
	}
	return a
}

// findModes returns the modes to check. In ModeAuto, those in which an ordinary
// question gets an answer that kube-scheduler can use; names if there is none.
func (r *run) findModes() []Mode {
	switch r.options.Mode {
	case ModeNames, ModeNodes:
		return []Mode{r.options.Mode}
	case ModeBoth:
		return []Mode{ModeNames, ModeNodes}
	}
	verb := verbFilter
	if r.options.FilterVerb == "" {
		verb = verbPrioritize
	}
	path := r.path(verb)
	if path == "" {
		return []Mode{ModeNames}
	}
	var modes []Mode
	said := make(map[Mode]string)
	for _, mode := range []Mode{ModeNames, ModeNodes} {
		a := r.client.ask(r.ctx, askAbout(verb, path, mode, r.cast.pod, r.cast.sample(), ""))
		if said[mode] = a.got(); usable(&a, mode) {
			modes = append(modes, mode)
		}
	}
	switch {
	case len(modes) == 0:
		modes = []Mode{ModeNames}
	case len(modes) == 1 && modes[0] == ModeNames:
		r.note("whole nodes get no verdict (%s): kube-scheduler needs nodeCacheCapable: true", said[ModeNodes])
	case len(modes) == 1:
		r.note("node names get no verdict (%s): kube-scheduler needs nodeCacheCapable: false, which costs it most of its speed", said[ModeNames])
	}
	return modes
}

func usable(a *answer, mode Mode) bool {
	if a.failure != answered {
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

// contract asks the ordinary questions.
func (r *run) contract(t *target) {
	if t.verb == verbPreempt && len(t.base.names) == 0 {
		r.note("preempt was not asked: there is no pod on the nodes given")
		return
	}
	t.first = r.ask(t.base)
	if t.ok = r.judge.answer(t.base, &t.first, r.cast); !t.ok {
		return
	}
	t.verdict = t.first.result.verdict(t.base)
	t.stable = true
	if t.reads() {
		nodes := r.cast.sample()
		r.judged(r.about(t, r.cast.pod, nodes[:1], "one node, as for a nominated pod"))
		r.judged(r.about(t, r.cast.giant(), nodes, fmt.Sprintf("%d nodes, a pod that fits nowhere", len(nodes))))
	}
}

// judged asks and judges one well-formed question.
func (r *run) judged(q *question) (a answer, ok bool) {
	a = r.ask(q)
	return a, r.judge.answer(q, &a, r.cast)
}

// consistency asks the same again, and then the other way round.
func (r *run) consistency(t *target) {
	for range 2 {
		a, ok := r.judged(t.base)
		if !ok {
			t.stable = false
			return
		}
		if d := t.verdict.difference(a.result.verdict(t.base)); !r.judge.check(ruleSame, d == "", t.base, &a, "%s", d) {
			t.stable = false
			return
		}
	}
	if !t.reads() || len(t.base.names) < 2 {
		return
	}
	nodes := slices.Clone(r.cast.sample())
	slices.Reverse(nodes)
	q := r.about(t, r.cast.pod, nodes, fmt.Sprintf("the same %d nodes in reverse order", len(nodes)))
	if a, ok := r.judged(q); ok {
		d := t.verdict.difference(a.result.verdict(q))
		r.judge.check(ruleIndependent, d == "", q, &a, "%s", d)
	}
}

// effects asks about many pods, and then again about the first.
func (r *run) effects(t *target) {
	if !t.reads() || !t.stable || r.options.ImaginaryPods < 0 {
		return
	}
	for i := range r.options.ImaginaryPods {
		if _, ok := r.judged(r.about(t, r.cast.stranger(i), r.cast.sample(), "an imaginary pod")); !ok {
			return
		}
	}
	if a, ok := r.judged(t.base); ok {
		d := t.verdict.difference(a.result.verdict(t.base))
		t.stable = r.judge.check(ruleNoEffect, d == "", t.base, &a, "after questions about %d other pods: %s", r.options.ImaginaryPods, d)
	}
}

// explainSilence notes when no node passed, which leaves much unseen.
func (r *run) explainSilence() {
	for _, t := range r.targets {
		if f, isFilter := t.first.result.(*filterResult); isFilter {
			if names, _ := f.passed(t.mode); len(names) == 0 && r.cast.known == 0 {
				r.note("filter (%s mode) passed no imaginary node, so little could be judged: name nodes it knows, and a resource it manages", t.mode)
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
