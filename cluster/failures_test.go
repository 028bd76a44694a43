package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outboard.dev/outboard/ledger"
)

// The API server's time is learned from the dates of its answers, and of nobody else's.
func TestTransportLearnsTheTime(t *testing.T) {
	ahead := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		code    int
		date    string
		learned bool
	}{
		"answered": {200, ahead.UTC().Format(http.TimeFormat), true},
		"refused":  {403, ahead.UTC().Format(http.TimeFormat), true},
		"in its place, somebody says that it is not there": {503, ahead.UTC().Format(http.TimeFormat), false},
		"no date":  {200, "", false},
		"nonsense": {200, "yesterday", false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := ledger.NewClock(nil)
			next := roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: test.code, Header: http.Header{"Date": {test.date}}, Body: http.NoBody}, nil
			})
			resp, err := (&transport{next, new(atomic.Uint64), clock}).RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if learned := !clock.Earliest().Before(ahead); learned != test.learned {
				t.Errorf("the clock says %v, and the answer was of %q", clock.Earliest(), test.date)
			}
		})
	}
}

// The log says what a failed request means, and what helps; once, until it means something else.
func TestMeaningOfFailures(t *testing.T) {
	resource := schema.GroupResource{Group: "outboard.dev", Resource: "ledgers"}
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no"))
	missing := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", resource, "", "404 page not found", 0, true)
	var log bytes.Buffer
	f := &feed{resource: "ledgers", failed: func() {}, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for i, step := range []struct {
		err          error
		want, logged string
	}{
		{nil, "", ""},
		{missing, "ledgers (the API server does not serve a resource: the server could not find the requested resource (list ledgers.outboard.dev); kubectl apply -f ledger/crd.yaml)", "does not serve"},
		{missing, "ledgers (the API server does not serve a resource: the server could not find the requested resource (list ledgers.outboard.dev); kubectl apply -f ledger/crd.yaml)", ""},
		{forbidden, "ledgers (the API server forbids reading a resource: ledgers.outboard.dev is forbidden: no; grant the verbs list and watch on ledgers.outboard.dev)", "forbids"},
		{errors.New("timeout"), "ledgers (the API server does not answer: timeout)", "does not answer"},
		{errors.New("another"), "ledgers (the API server does not answer: another)", ""},
		{apierrors.NewUnauthorized("who"), "ledgers (the API server does not accept the credentials: who; see cluster.kubeconfig)", "credentials"},
		{nil, "", "answers again"},
		{nil, "", ""},
	} {
		log.Reset()
		_ = f.observe(step.err)
		if got := f.trouble(); got != step.want {
			t.Errorf("step %d: it says %q, want %q", i, got, step.want)
		}
		if got := log.String(); (got == "") != (step.logged == "") || !strings.Contains(got, step.logged) {
			t.Errorf("step %d: the log says %q, want %q", i, got, step.logged)
		}
	}
}
