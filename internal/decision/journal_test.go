package decision_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outboard.dev/outboard/internal/decision"
)

// paper is a writer that can fail or hang.
type paper struct {
	mu   sync.Mutex
	text strings.Builder
	err  error
	hang chan struct{} // nil: it does not hang
}

func (p *paper) Write(b []byte) (int, error) {
	if p.hang != nil {
		<-p.hang
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		n, _ := p.text.Write(b[:5])
		return n, p.err
	}
	return p.text.Write(b)
}

func record(verb decision.Verb, change func(*decision.Record)) *decision.Record {
	r := &decision.Record{Time: time.Unix(0, 0), Verb: verb, Profile: "/", Pod: decision.Pod{Namespace: "ns", Name: "p", UID: "u"}, Nodes: 3}
	change(r)
	return r
}

func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := decision.NewLog(0), new(paper)
		j := decision.NewJournal(log, to, func(err error) { t.Error(err) })
		ctx, cancel := context.WithCancel(t.Context())
		go j.Run(ctx)
		log.Add(record(decision.Filter, func(r *decision.Record) { r.Fit = 2 }), nil)
		log.Add(record(decision.Filter, func(r *decision.Record) {
			for i := range 9 {
				r.Rejections = append(r.Rejections, decision.Rejection{Policy: "GPUMemory", Code: fmt.Sprint("C", i), Text: "t", Nodes: 9 - i})
			}
		}), nil)
		log.Add(record(decision.Prioritize, func(r *decision.Record) {
			r.Top = []decision.ScoredNode{{Node: "a", Total: 90}, {Node: "b<", Total: 80}, {Node: "c", Total: 70}}
		}), nil)
		log.Add(record(decision.Bind, func(r *decision.Record) { r.Nodes, r.Bound = 0, "b<" }), nil)
		log.Add(record(decision.Bind, func(r *decision.Record) { r.Nodes, r.Bound, r.Error, r.Pod.UID = 0, "a", "full", "other" }), nil)
		synctest.Wait()
		cancel()
		synctest.Wait()
		var got []string
		for line := range strings.Lines(to.text.String()) {
			var r decision.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			got = append(got, fmt.Sprintf("%s %s %d %d %s", r.Verb, r.Bound, len(r.Rejections), len(r.Top), r.Error))
		}
		if want := []string{"filter  9 0 ", "prioritize  0 3 ", "bind b< 0 0 ", "bind a 0 0 full"}; !slices.Equal(got, want) {
			t.Errorf("the journal is %q, want %q", got, want)
		}
		if j.Dropped() != 0 {
			t.Errorf("%d dropped", j.Dropped())
		}
	})
}

// A writer that hangs delays no call, and not the end for long; what it misses is counted, and nothing else is lost.
func TestJournalDropsRatherThanWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, to := decision.NewLog(0), &paper{hang: make(chan struct{})}
		j := decision.NewJournal(log, to, func(err error) { t.Error(err) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			j.Run(ctx)
		}()
		bind := func() { log.Add(record(decision.Bind, func(r *decision.Record) { r.Bound = "a" }), nil) }
		bind()
		synctest.Wait() // it is being written
		for range 2000 {
			bind()
		}
		if j.Dropped() != 2000-1024 {
			t.Errorf("%d dropped", j.Dropped())
		}
		cancel()
		<-ended
		close(to.hang)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(to.text.String()), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Fatalf("not JSON: %s", line)
			}
		}
		if len(lines) != 1025 {
			t.Errorf("%d lines", len(lines))
		}
	})
}

// After an error of the writer, the lines are counted as dropped, and later ones are written, each on its own line.
func TestJournalGoesOnAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, failures := errors.New("no space left on device"), 0
		log, to := decision.NewLog(0), &paper{err: full}
		j := decision.NewJournal(log, to, func(err error) {
			if !errors.Is(err, full) {
				t.Error(err)
			}
			failures++
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go j.Run(ctx)
		bind := func() { log.Add(record(decision.Bind, func(r *decision.Record) { r.Bound = "a" }), nil) }
		bind()
		synctest.Wait()
		to.err = nil
		bind()
		synctest.Wait()
		if failures != 1 || j.Dropped() != 1 || !strings.HasPrefix(to.text.String(), "{\"tim\n{") {
			t.Errorf("%d failures, %d dropped, %q", failures, j.Dropped(), &to.text)
		}
	})
}
