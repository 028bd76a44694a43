package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxKept is how many responses are kept: one for each kind of query that somebody polls.
const maxKept = 16

// responses keeps the latest responses, so that many browsers cost as much as one.
type responses struct {
	mu   sync.Mutex
	kept map[string]response // by path and query
}

type response struct {
	state  any // what it was made of
	etag   string
	body   []byte
	zipped []byte // nil: the body is short
}

// handler responds with the JSON of what the function returns. What has the same state, if it is not nil, is made once.
func (s *responses) handler(state func() any, of func(*http.Request) (value, unstamped any)) http.Handler {
	return Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.of(r, state(), of)
		if err != nil {
			http.Error(w, "internal error: "+err.Error(), http.StatusInternalServerError)
			return
		}
		p.write(w, r)
	}))
}

// Respond responds with the JSON of the value. The ETag changes exactly when unstamped does, which is the value without the times that change
// by themselves; nil if the value has none.
func Respond(w http.ResponseWriter, r *http.Request, value, unstamped any) {
	p, err := responseOf(value, unstamped)
	if err != nil {
		http.Error(w, "internal error: "+err.Error(), http.StatusInternalServerError)
		return
	}
	p.write(w, r)
}

func (p *response) write(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("ETag", p.etag)
	header.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == p.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json")
	body := p.body
	if p.zipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = p.zipped
	}
	_, _ = w.Write(body) // the connection is gone if this fails
}

func responseOf(value, unstamped any) (p response, err error) {
	if p.body, err = json.Marshal(value); err != nil {
		return p, err
	}
	stamp := p.body
	if unstamped != nil {
		if stamp, err = json.Marshal(unstamped); err != nil {
			return p, err
		}
	}
	p.etag = fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(stamp))[:24])
	if len(p.body) > 4096 {
		p.zipped = zip(p.body)
	}
	return p, nil
}

// of returns the response to a request. Only one is made at a time.
func (s *responses) of(r *http.Request, state any, of func(*http.Request) (value, unstamped any)) (response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.Path + "?" + r.URL.RawQuery
	if p, ok := s.kept[key]; ok && state != nil && p.state == state {
		return p, nil
	}
	p, err := responseOf(of(r))
	if err != nil {
		return p, err
	}
	if p.state = state; state != nil {
		if s.kept == nil || len(s.kept) >= maxKept {
			s.kept = map[string]response{}
		}
		s.kept[key] = p
	}
	return p, nil
}

func zip(body []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(body)                            // a Buffer accepts everything
	_ = z.Close()
	return b.Bytes()
}

// Handlers returns the handlers of the data and of the page, by pattern.
func Handlers(s Source) map[string]http.Handler {
	var kept responses
	var latest atomic.Pointer[resources]
	var holding atomic.Pointer[holders]
	waiting := newRoster(&s)
	page := Handler()
	return map[string]http.Handler{
		"GET " + Path: page,
		"GET /{$}":    page,
		"GET " + OverviewPath: kept.handler(always, func(*http.Request) (any, any) {
			o := s.overview(&latest, waiting)
			return o, o.Unstamped()
		}),
		"GET " + UnitsPath: kept.handler(s.viewed, func(r *http.Request) (any, any) { return s.units(r.URL.Query().Get("resource")), nil }),
		"GET " + WaitingPath: kept.handler(func() any { return waiting.state() }, func(r *http.Request) (any, any) {
			return Group(waiting.rows(), QueryOf(r.URL.Query())), nil
		}),
		"GET " + ChangesPath: kept.handler(always, func(r *http.Request) (any, any) { return waiting.since(r.URL.Query().Get("after")), nil }),
		"GET " + HeldPath: kept.handler(s.audited, func(r *http.Request) (any, any) {
			h := holding.Load()
			if c := s.Config(); h == nil || h.config != c {
				h = newHolders(c)
				holding.Store(h)
			}
			return h.held(&s, r.URL.Query()), nil
		}),
		"GET " + FindPath:    kept.handler(always, func(r *http.Request) (any, any) { return s.find(r.URL.Query().Get("text")), nil }),
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
