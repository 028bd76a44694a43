package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
)

// kube-scheduler shows the Error of a response in the pod's events, but nothing of a 403. So the
// response to a caller without permission is the response of its verb, with an Error.
func TestRefusedCallersGetAnError(t *testing.T) {
	s := servingOf(t, slog.DiscardHandler)
	for _, test := range []struct{ method, path, want string }{
		{"POST", "/filter", `{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":"no, \"x\""}`},
		{"POST", "/bind", `{"Error":"no, \"x\""}`},
		{"GET", "/filter", ""},
		{"POST", "/unknown", ""},
	} {
		w := httptest.NewRecorder()
		told := s.refused(w, httptest.NewRequest(test.method, test.path, strings.NewReader("x")), errors.New(`no, "x"`))
		if told != (test.want != "") || w.Body.String() != test.want {
			t.Errorf("%s %s: %v, %s", test.method, test.path, told, w.Body)
		}
	}
}

// kube-scheduler shows only the status 404 of a wrong path, so the log has the path, and a metric the number of calls. Probes use other
// methods.
func TestCallsOfUnknownPathsAreLoggedAndCounted(t *testing.T) {
	var log bytes.Buffer
	s := servingOf(t, slog.NewTextHandler(&log, nil))
	for _, test := range []struct {
		method, path string
		logged       bool
	}{
		{"POST", "/scheduler/filter", true},
		{"POST", "/scheduler/sort", true},
		{"POST", "/bind/", true},
		{"GET", "/", false},
		{"GET", "/scheduler/bind", false},
		{"POST", "/filter", false},
	} {
		log.Reset()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(test.method, test.path, strings.NewReader("{}")))
		if logged := strings.Contains(log.String(), `level=WARN msg="nothing is served at the path of a call" path=`+test.path); logged != test.logged {
			t.Errorf("%s %s: the log is %q", test.method, test.path, log.String())
		}
	}
	const want = `
# HELP outboard_server_unserved_requests_total Calls of paths at which nothing is served, by the verb at the end of the path (or other).
# TYPE outboard_server_unserved_requests_total counter
outboard_server_unserved_requests_total{verb="bind"} 0
outboard_server_unserved_requests_total{verb="filter"} 1
outboard_server_unserved_requests_total{verb="other"} 2
outboard_server_unserved_requests_total{verb="preempt"} 0
outboard_server_unserved_requests_total{verb="prioritize"} 0
`
	if err := testutil.GatherAndCompare(s.options.Registry, strings.NewReader(want), "outboard_server_unserved_requests_total"); err != nil {
		t.Error(err)
	}
}

// servingOf serves one profile, without a cluster.
func servingOf(t *testing.T, log slog.Handler) *serving {
	t.Helper()
	c, err := config.Parse("test", []byte("{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, serving: {insecure: true}, clientConnection: {enabled: false}, profiles: [{policies: [{type: ImageLocality}]}]}"), typesOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(service.Options{Config: c, Types: typesOf(nil), Registry: prometheus.NewRegistry(), Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
