package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/test/baseline"
)

// The prioritize call that the player makes after a filter call is that of kube-scheduler: the same
// pod, and the nodes that passed.
func TestPrioritizeBody(t *testing.T) {
	const list = `["node-00007","node-00001","node-00003"]`
	body := []byte(`{"Pod":{"metadata":{"name":"web","uid":"1"}},"Nodes":null,"NodeNames":` + list + `}`)
	for name, handler := range map[string]http.HandlerFunc{tutorialArm: baseline.Tutorial, idealArm: baseline.Ideal(0)} {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodPost, "/filter", bytes.NewReader(body)))
		got, err := prioritizeBody(body, w.Body.Bytes())
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("after the response of %s, the player's call is\n%s\nwant the nodes of the filter call\n%s", name, got, body)
		}
	}
	some, err := prioritizeBody(body, []byte(`{"Nodes":null,"NodeNames":["node-00001"],"FailedNodes":null}`))
	if want := `{"Pod":{"metadata":{"name":"web","uid":"1"}},"Nodes":null,"NodeNames":["node-00001"]}`; err != nil || string(some) != want {
		t.Errorf("when one node passes, the player's call is\n%s (%v)\nwant\n%s", some, err, want)
	}
}

// The measured arm responds to its calls with each profile, also after the cluster has changed.
func TestOutboardArmResponds(t *testing.T) {
	for _, profile := range []string{cheapProfile, gpuProfile, leastWasteProfile} {
		t.Run(profile, func(t *testing.T) { testResponses(t, profile) })
	}
}

func testResponses(t *testing.T, profile string) {
	calls, err := readRecording("../../internal/extender/testdata/wire/filter-5000-default.jsonl.gz", profile)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := newOutboard(calls, profile, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, body []byte) []byte {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
		return w.Body.Bytes()
	}
	for _, c := range calls[:3] {
		body, err := prioritizeBody(c.body, post("/filter", c.body))
		if err != nil || !bytes.Equal(body, c.body) {
			t.Fatalf("not all nodes pass: the next call is %.2000s (%v)", body, err)
		}
		var scores []struct{ Host string }
		if answer := post("/prioritize", body); json.Unmarshal(answer, &scores) != nil {
			t.Fatalf("prioritize returns %.2000s", answer)
		}
		post(changePath, nil)
	}
}
