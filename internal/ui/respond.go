package ui

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/internal/respond"
)

// maxKept is how many responses are kept: one for each kind of query that somebody polls.
const maxKept = 16

// responses keeps the latest responses, so that many browsers cost as much as one.
type responses struct {
	mu   sync.Mutex
	kept map[string]response // by path and query
}

type response struct {
	respond.Response
	state any // what it was made of
}

// handler responds with the JSON of what the function returns. What has the same state, if it is
// not nil, is made once.
func (s *responses) handler(state func() any, of func(*http.Request) (value, unstamped any)) http.Handler {
	return Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.of(r, state(), of)
		if err != nil {
			respond.Failed(w, err)
			return
		}
		p.Write(w, r)
	}))
}

// of returns the response to a request. Only one is made at a time.
func (s *responses) of(r *http.Request, state any, of func(*http.Request) (value, unstamped any)) (response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.Path + "?" + r.URL.RawQuery
	if p, ok := s.kept[key]; ok && state != nil && p.state == state {
		return p, nil
	}
	made, err := respond.New(of(r))
	p := response{made, state}
	if err != nil {
		return p, err
	}
	if state != nil {
		if s.kept == nil || len(s.kept) >= maxKept {
			s.kept = map[string]response{}
		}
		s.kept[key] = p
	}
	return p, nil
}

// Handlers returns the handlers of the data and of the page, by pattern.
func Handlers(s Source) map[string]http.Handler {
	var kept responses
	var latest atomic.Pointer[resources]
	var holding atomic.Pointer[holders]
	var counting sync.Mutex
	var calls lately
	var past history
	waiting := newRoster(&s)
	holds := func() *holders {
		h := holding.Load()
		if c := s.Config(); h == nil || h.config != c {
			h = newHolders(c)
			holding.Store(h)
		}
		return h
	}
	page := Handler()
	overview := func() Overview {
		counting.Lock()
		defer counting.Unlock()
		return s.overview(&latest, waiting, &calls, &past)
	}
	if s.Repeat != nil {
		s.Repeat(func() { overview() })
	}
	return map[string]http.Handler{
		"GET " + Path: page,
		"GET /{$}":    page,
		"GET " + OverviewPath: kept.handler(always, func(*http.Request) (any, any) {
			o := overview()
			return o, o.Unstamped()
		}),
		"GET " + UnitsPath: kept.handler(s.viewed, func(r *http.Request) (any, any) {
			return s.units(r.URL.Query().Get("resource"), s.resources(&latest), ""), nil
		}),
		"GET " + WaitingPath: kept.handler(func() any { return waiting.state() }, func(r *http.Request) (any, any) {
			return Group(waiting.rows(), QueryOf(r.URL.Query())), nil
		}),
		"GET " + WaitingPodsPath: kept.handler(func() any { return waiting.state() }, func(*http.Request) (any, any) { return waiting.rows(), nil }),
		"GET " + HeldPath:        kept.handler(s.audited, func(r *http.Request) (any, any) { return holds().held(&s, r.URL.Query()), nil }),
		"GET " + NodePath: kept.handler(s.audited, func(r *http.Request) (any, any) {
			return s.node(r.URL.Query().Get("name"), s.resources(&latest), holds()), nil
		}),
		"GET " + DevicesPath: kept.handler(s.viewed, func(r *http.Request) (any, any) { return s.devices(r.URL.Query().Get("node")), nil }),
		"GET " + FindPath:    kept.handler(always, func(r *http.Request) (any, any) { return s.find(r.URL.Query().Get("text")), nil }),
		"GET " + HistoryPath: kept.handler(always, func(*http.Request) (any, any) {
			counting.Lock()
			defer counting.Unlock()
			return past.of(s.Name), nil
		}),
		"GET " + SignalsPath: kept.handler(always, func(*http.Request) (any, any) { return s.signals(), nil }),
	}
}

// What responses are made of: see responses.handler.

func always() any { return nil }

func (s *Source) viewed() any { return [2]any{s.View(), s.Config()} }

func (s *Source) audited() any {
	var at time.Time
	if s.Audit != nil {
		at, _ = s.Audit()
	}
	return [3]any{s.View(), s.Config(), at}
}
