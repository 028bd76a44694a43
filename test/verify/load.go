package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// reuse counts the connections that consecutive calls open. The responses are so long
// that the server's HTTP library does not buffer them to compute their length, and have
// different lengths, because a client reads some chunked responses to their end by chance.
func (r *run) reuse(t *target) {
	if !t.reads() {
		return
	}
	const calls, allowed = 20, 2
	nodes := r.fixtures.sample()
	if t.mode == ModeNames {
		nodes = r.fixtures.nodes[:min(500, orDefault(r.fixtures.knownNodes, len(r.fixtures.nodes)))]
	}
	opened, chunked := 0, 0
	var q *request
	var a response
	for i := range calls {
		count := len(nodes) - len(nodes)*i/(2*calls)
		q = r.about(t, r.fixtures.pod, nodes[:count], fmt.Sprintf("%d nodes, call %d in a row", count, i+1))
		if a = r.ask(q); !r.large(t, q, &a, 0) {
			return
		}
		if a.newConn {
			opened++
		}
		if a.chunked {
			chunked++
		}
	}
	r.checker.check(ruleReuse, opened <= allowed, q, &a, "%d calls opened %d connections; %d responses had no Content-Length", calls, opened, chunked)
}

// concurrency makes calls for different nodes sequentially, and then concurrently.
func (r *run) concurrency(t *target) {
	if !t.reads() || !t.stable {
		return
	}
	const askers, calls = 8, 4
	sample := r.fixtures.sample()
	requests := make([]*request, askers)
	expected := make([]verdict, askers)
	for i := range requests {
		nodes := slices.Concat(sample[i%len(sample):], sample[:i%len(sample)])[:1+i*3%len(sample)]
		requests[i] = r.about(t, r.fixtures.pod, nodes, fmt.Sprintf("%d nodes, with %d concurrent calls", len(nodes), askers-1))
		requests[i].nodes = nil
		a, ok := r.askAndCheck(requests[i])
		if !ok {
			return
		}
		expected[i] = a.result.verdict(requests[i])
	}
	var responses [askers][calls]response
	var group sync.WaitGroup
	for i, q := range requests {
		group.Go(func() {
			for k := range responses[i] {
				responses[i][k] = r.client.ask(r.ctx, q)
				if responses[i][k].failure != responded {
					return
				}
			}
		})
	}
	group.Wait()
	for i, q := range requests {
		for k := range responses[i] {
			a := &responses[i][k]
			if a.failure == notAsked {
				return
			}
			if a.failure != responded {
				r.checker.check(ruleConcurrent, false, q, a, "a single call succeeds")
				break
			}
			d := expected[i].difference(a.result.verdict(q))
			r.checker.check(ruleConcurrent, d == "", q, a, "%s", d)
		}
	}
}

// size makes calls with many nodes.
func (r *run) size(t *target) {
	if !t.reads() {
		return
	}
	for _, size := range slices.Sorted(slices.Values(r.options.Sizes)) {
		q := r.about(t, r.fixtures.pod, r.fixtures.nodes[:size], "")
		q.what = fmt.Sprintf("%d nodes, %d bytes", size, len(q.body))
		imaginary := size
		if r.fixtures.knownNodes > 0 {
			imaginary = max(0, size-r.fixtures.knownNodes)
		}
		a := r.ask(q)
		if !r.large(t, q, &a, imaginary) {
			return
		}
	}
}

// large checks the first response to a request of full size. If it fails and the
// ordinary request did not, the size is the reason.
func (r *run) large(t *target, q *request, a *response, imaginary int) bool {
	switch a.failure {
	case notAsked, late, tooLarge:
		r.checker.reply(q, a)
		return false
	case responded:
	default:
		r.checker.check(ruleLarge, false, q, a, "the same request with %d nodes gets a response", len(t.base.names))
		return false
	}
	if text := a.result.rejection(); text != "" {
		if r.fixtures.knownNodes > 0 && imaginary > 0 && q.mode == ModeNames {
			r.note("%s with %d nodes, %d of them imaginary, gets an error (%q)", t.verb, len(q.names), imaginary, shorten(text))
			return false
		}
		detail := "the same request with %d nodes succeeds"
		if strings.Contains(text, "busy") {
			detail = "the extender is busy; " + detail + ". It may still work on calls of this run that have timed out, so a longer --timeout may help"
		}
		r.checker.check(ruleLarge, false, q, a, detail, len(t.base.names))
		return false
	}
	r.checker.check(ruleLarge, true, q, a, "")
	return r.checker.response(q, a, r.fixtures)
}
