package metricsapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/signal"
)

var limits = signal.Limits{Values: 100, Bytes: 1 << 20}

func source(t *testing.T, resource string, server *rest.Config) *metricsapi.Source {
	t.Helper()
	s, err := metricsapi.New(metricsapi.Config{Resource: resource}, server)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUnusualResponses: responses that no API server sends.
func TestUnusualResponses(t *testing.T) {
	item := func(n int) string { return strings.Repeat(`{"metadata":{"name":"a"},"usage":{"cpu":"1"}},`, n) }
	for name, tc := range map[string]struct {
		status int
		answer string
		err    string
		is     error
		count  int
	}{
		"an empty list":        {answer: `{"items":[]}`},
		"no list":              {answer: `{}`},
		"no name and no time":  {answer: `{"items":[{"usage":{"cpu":"1"}}]}`, count: 1},
		"as many as may be":    {answer: `{"items":[` + strings.TrimSuffix(item(100), ",") + `]}`, count: 100},
		"too many":             {answer: `{"items":[` + strings.TrimSuffix(item(101), ",") + `]}`, is: signal.ErrTooMany},
		"too long":             {answer: `{"x":[` + strings.Repeat(`"`+strings.Repeat("x", 1<<10)+`",`, 1<<10), is: signal.ErrTooLong},
		"no JSON":              {answer: `<html>`, err: "is not a list of metrics"},
		"no quantity":          {answer: `{"items":[{"usage":{"cpu":"much"}}]}`, err: "is not a list of metrics"},
		"an error":             {status: 500, answer: `{"kind":"Status","message":"it broke"}`, err: "500 Internal Server Error: it broke"},
		"an error in HTML":     {status: 502, answer: `<html>`, err: "502 Bad Gateway: <html>"},
		"a very long error":    {status: 502, answer: strings.Repeat("x", 1<<20), err: "502 Bad Gateway: xxx"},
		"an error and nothing": {status: 404, is: metricsapi.ErrNotServed},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				fmt.Fprint(w, tc.answer)
			}))
			defer server.Close()
			samples, err := source(t, "cpu", &rest.Config{Host: server.URL}).Read(t.Context(), limits)
			switch {
			case tc.is != nil && !errors.Is(err, tc.is), tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)), tc.is == nil && tc.err == "" && err != nil:
				t.Errorf("the error is %v", err)
			case err != nil && len(err.Error()) > 1000:
				t.Errorf("the error has %d characters", len(err.Error()))
			case len(samples) != tc.count:
				t.Errorf("read %d samples, want %d", len(samples), tc.count)
			}
		})
	}
}

// TestEndsWithItsContext: a request to a server that does not respond ends with the context.
func TestEndsWithItsContext(t *testing.T) {
	reached := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	if _, err := source(t, "cpu", &rest.Config{Host: server.URL}).Read(ctx, limits); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
