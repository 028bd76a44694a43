package app

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/service"
)

// kube-scheduler shows the Error of a response in the pod's events, but nothing of a 403. So the
// response to a caller without permission is the response of its verb, with an Error.
func TestCallersThatAreNotAllowedAreTold(t *testing.T) {
	c, err := config.Parse("test", []byte("{apiVersion: outboard.dev/v1alpha1, kind: OutboardConfiguration, clientConnection: None, profiles: [{policies: [{type: ImageLocality}]}]}"), typesOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServing(service.Options{Config: c, Types: typesOf(nil), Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
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
