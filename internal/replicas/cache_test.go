package replicas_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/respond"
)

// responder is a replica in memory.
type responder func(*http.Request) *http.Response

func (f responder) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func served(name string, h http.HandlerFunc) replicas.Replica {
	return replicas.At(name, &http.Client{Transport: responder(func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h(w, r)
		return w.Result()
	})})
}

// What has not changed is not sent again, each replica's for itself, and looks as if it had been.
func TestCache(t *testing.T) {
	text, sent := "1", new(atomic.Int32)
	serve := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			etag := fmt.Sprintf("%q", text)
			if r.URL.Path == "/failure" {
				http.Error(w, "broken", http.StatusInternalServerError)
				return
			}
			if w.Header().Set("ETag", etag); r.Header.Get("If-None-Match") == etag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			sent.Add(1)
			fmt.Fprintf(w, `"%s %s"`, name, r.URL.RequestURI()+text)
		}
	}
	var cache replicas.Cache
	all := cache.For([]replicas.Replica{served("a", serve("a")), served("b", serve("b"))})
	read := func(path string) (values []string) {
		for _, r := range replicas.FetchAll(t.Context(), all, replicas.FetchJSON[string](path)) {
			if r.Err != nil {
				r.Value = r.Err.Error()
			}
			values = append(values, r.Value)
		}
		return values
	}
	for step, tt := range []struct {
		path, text string
		want       []string
		sent       int32
	}{
		{"/x?q=1", "1", []string{"a /x?q=11", "b /x?q=11"}, 2},
		{"/x?q=1", "1", []string{"a /x?q=11", "b /x?q=11"}, 2},
		{"/x?q=2", "1", []string{"a /x?q=21", "b /x?q=21"}, 4},
		{"/x?q=1", "2", []string{"a /x?q=12", "b /x?q=12"}, 6},
		{"/x?q=1", "2", []string{"a /x?q=12", "b /x?q=12"}, 6},
		{"/failure", "2", []string{"the service responded with 500 Internal Server Error: broken", "the service responded with 500 Internal Server Error: broken"}, 6},
	} {
		text = tt.text
		if got := read(tt.path); !slices.Equal(got, tt.want) || sent.Load() != tt.sent {
			t.Errorf("step %d: %q after %d responses, want %q after %d", step, got, sent.Load(), tt.want, tt.sent)
		}
	}
	own, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/x?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	own.Header.Set("If-None-Match", `"2"`)
	if res, err := all[0].RoundTrip(own); err != nil || res.StatusCode != http.StatusNotModified {
		t.Errorf("a request with an ETag of its own: %v, %v", res, err)
	} else {
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// zeros counts what is read of it.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	return len(p), nil
}

// A response that is too large takes bounded memory, with an ETag as without.
func TestLargeResponses(t *testing.T) {
	for _, etag := range []string{`"1"`, ""} {
		body := new(zeros)
		replica := replicas.At("a", &http.Client{Transport: responder(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {etag}}, Body: io.NopCloser(io.LimitReader(body, 4*respond.MaxBody))}
		})})
		var cache replicas.Cache
		got := replicas.FetchAll(t.Context(), cache.For([]replicas.Replica{replica}), replicas.FetchJSON[string]("/x"))
		if got[0].Err == nil || body.read > 2*respond.MaxBody {
			t.Errorf("ETag %s: read %d bytes, error %v", etag, body.read, got[0].Err)
		}
	}
}
