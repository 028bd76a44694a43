package httpdoc_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/internal/signals/source/httpdoc"
	"outboard.dev/outboard/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var limits = signal.Limits{Values: 2, Bytes: 100}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		content    format.Document
		status     int
		body, want string
	}{
		"yaml":        {format.Document{}, 200, "n1: 1", "[{n1 1 0001-01-01 00:00:00 +0000 UTC}]"},
		"json":        {format.Document{Value: "{.a}"}, 200, `{"a": 2}`, "[{ 2 0001-01-01 00:00:00 +0000 UTC}]"},
		"down":        {format.Document{}, 503, "not now", "/doc: 503 Service Unavailable: not now"},
		"not changed": {format.Document{}, 204, "", "/doc: 204 No Content"},
		"web page":    {format.Document{}, 200, "<html>Log in</html>", "/doc: not a mapping of keys to numbers"},
		"too many":    {format.Document{}, 200, "a: 1\nb: 1\nc: 1", signal.ErrTooMany.Error()},
		"too long":    {format.Document{}, 200, "a: 1" + strings.Repeat(" ", 100), signal.ErrTooLong.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.RequestURI() != "/doc?key=topsecret" || r.Header.Get("Accept") != "application/json, */*;q=0.1" {
					t.Errorf("%s %s, Accept %q", r.Method, r.URL, r.Header.Get("Accept"))
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			}))
			defer server.Close()
			s, err := httpdoc.New(httpdoc.Config{URL: server.URL + "/doc?key=topsecret", Document: tc.content})
			if err != nil {
				t.Fatal(err)
			}
			samples, err := s.Read(t.Context(), limits)
			got := fmt.Sprint(samples)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) || strings.Contains(got, "topsecret") {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDown(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s, err := httpdoc.New(httpdoc.Config{URL: server.URL + "/?key=topsecret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), limits); err == nil || !strings.HasPrefix(err.Error(), "http "+server.URL+"/: dial tcp") || errors.Is(err, signal.ErrTooLong) {
		t.Errorf("a server that is down: %v", err)
	}
}

func TestWrongPath(t *testing.T) {
	if _, err := httpdoc.New(httpdoc.Config{URL: "http://x", Document: format.Document{Value: "load"}}); err == nil {
		t.Error("New accepts a path without braces")
	}
}
