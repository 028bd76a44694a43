package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// reuse counts the connections that consecutive calls open. The answers are long
// enough not to be buffered and measured by the server's HTTP library, and of
// different lengths, as a chunked answer is now and then read to its end by luck.
func (r *run) reuse(t *target) {
	if !t.reads() {
		return
	}
	const calls, allowed = 20, 2
	nodes := r.cast.sample()
	if t.mode == ModeNames {
		nodes = r.cast.nodes[:min(500, orDefault(r.cast.known, len(r.cast.nodes)))]
	}
	opened, chunked := 0, 0
	var q *question
	var a answer
	for i := range calls {
		count := len(nodes) - len(nodes)*i/(2*calls)
		q = r.about(t, r.cast.pod, nodes[:count], fmt.Sprintf("%d nodes, call %d in a row", count, i+1))
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
	r.judge.check(ruleReuse, opened <= allowed, q, &a, "%d calls opened %d connections; %d answers came without Content-Length", calls, opened, chunked)
}

// concurrency asks about different nodes one by one, and then all at once.
func (r *run) concurrency(t *target) {
	if !t.reads() || !t.stable {
		return
	}
	const askers, calls = 8, 4
	sample := r.cast.sample()
	questions := make([]*question, askers)
	expected := make([]verdict, askers)
	for i := range questions {
		nodes := slices.Concat(sample[i%len(sample):], sample[:i%len(sample)])[:1+i*3%len(sample)]
		questions[i] = r.about(t, r.cast.pod, nodes, fmt.Sprintf("%d nodes, while %d others ask", len(nodes), askers-1))
		questions[i].nodes = nil
		a, ok := r.judged(questions[i])
		if !ok {
			return
		}
		expected[i] = a.result.verdict(questions[i])
	}
	var answers [askers][calls]answer
	var group sync.WaitGroup
	for i, q := range questions {
		group.Go(func() {
			for k := range answers[i] {
				answers[i][k] = r.client.ask(r.ctx, q)
				if answers[i][k].failure != answered {
					return
				}
			}
		})
	}
	group.Wait()
	for i, q := range questions {
		for k := range answers[i] {
			a := &answers[i][k]
			if a.failure == notAsked {
				return
			}
			if a.failure != answered {
				r.judge.check(ruleConcurrent, false, q, a, "asked alone, it is answered")
				break
			}
			d := expected[i].difference(a.result.verdict(q))
			r.judge.check(ruleConcurrent, d == "", q, a, "%s", d)
		}
	}
}

// size asks about many nodes, and times it.
func (r *run) size(t *target) {
	if !t.reads() {
		return
	}
	for _, size := range slices.Sorted(slices.Values(r.options.Sizes)) {
		q := r.about(t, r.cast.pod, r.cast.nodes[:size], "")
		q.what = fmt.Sprintf("%d nodes, %d bytes", size, len(q.body))
		imaginary := size
		if r.cast.known > 0 {
			imaginary = max(0, size-r.cast.known)
		}
		a := r.ask(q)
		if !r.large(t, q, &a, imaginary) {
			return
		}
		timed := *q
		timed.timed = true
		l := Latency{Verb: t.verb, Mode: t.mode, Nodes: size, Imaginary: imaginary}
		durations, failed := r.time(&timed, r.ask)
		if failed != nil {
			r.judge.reply(&timed, failed)
		}
		if len(durations) == 0 {
			return
		}
		l.Calls, l.P50, l.P99 = len(durations), quantile(durations, 0.5), quantile(durations, 0.99)
		if echo := r.echo(&timed); len(echo) > 0 {
			l.EchoP50, l.EchoP99 = quantile(echo, 0.5), quantile(echo, 0.99)
		}
		r.latencies = append(r.latencies, l)
	}
}

// large judges the first answer to a question of full size. Where it fails and the
// ordinary question did not, size is the reason.
func (r *run) large(t *target, q *question, a *answer, imaginary int) bool {
	switch a.failure {
	case notAsked, late, tooLarge:
		r.judge.reply(q, a)
		return false
	case answered:
	default:
		r.judge.check(ruleLarge, false, q, a, "the same question about %d nodes is answered", len(t.base.names))
		return false
	}
	if text := a.result.refusal(); text != "" {
		if r.cast.known > 0 && imaginary > 0 && q.mode == ModeNames {
			r.note("%s about %d nodes, %d of them imaginary, is refused (%q): its speed at this size is not known", t.verb, len(q.names), imaginary, shorten(text))
			return false
		}
		r.judge.check(ruleLarge, false, q, a, "the same question about %d nodes is judged", len(t.base.names))
		return false
	}
	r.judge.check(ruleLarge, true, q, a, "")
	return r.judge.answer(q, a, r.cast)
}

// time asks the question again and again, for at most three seconds, and returns
// how long each answer took, in order of length, and the call that failed, if one did.
func (r *run) time(q *question, ask func(*question) answer) (durations []time.Duration, failed *answer) {
	for end := time.Now().Add(3 * time.Second); len(durations) < r.options.TimedCalls; {
		a := ask(q)
		if a.failure != answered {
			failed = &a
			break
		}
		if durations = append(durations, a.took); time.Now().After(end) {
			break
		}
	}
	slices.Sort(durations)
	return durations, failed
}

// quantile of sorted durations: the smallest that at least this share does not exceed.
func quantile(sorted []time.Duration, share float64) time.Duration {
	return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
}

// echo times the question against a server in this process. nil without one.
func (r *run) echo(q *question) []time.Duration {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.note("not compared with a do-nothing server: %v", err)
		return nil
	}
	reply := everythingFits(q)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(reply)))
		_, _ = w.Write(reply)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()

	o := r.options.unauthenticated()
	caller, err := newClient("http://"+listener.Addr().String(), false, o.TLS, o.HTTPTimeout)
	if err != nil {
		return nil
	}
	defer caller.close()
	caller.ask(r.ctx, q) // opens the connection, as the extender's already is
	durations, _ := r.time(q, func(q *question) answer { return caller.ask(r.ctx, q) })
	return durations
}

// everythingFits is an extender's shortest honest answer when it has no opinion.
func everythingFits(q *question) []byte {
	if q.verb == verbPrioritize {
		list := make(extenderv1.HostPriorityList, len(q.names))
		for i, name := range q.names {
			list[i] = extenderv1.HostPriority{Host: name, Score: int64(i % 11)}
		}
		return encode(list)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(q.body, &fields); err != nil {
		return []byte("{}")
	}
	return object(fields, []string{"Nodes", "NodeNames"}, func(key string) string { return key })
}
