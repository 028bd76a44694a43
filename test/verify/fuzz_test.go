package main

import (
	"encoding/json"
	"errors"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// Checking any response of an extender causes no panic, and decodes exactly what kube-scheduler decodes.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `[null]`, `{"NodeNames":["outboard-verify-node-0","x"],"FailedNodes":{"y":""}}`,
		`{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"outboard-verify-node-0"}},null]},"Error":""}`,
		`{"nodes":{"items":{}}}`, `{"Nodes":{"items":null},"Nodes":null}`, `{"Nodes":7}`, `{"FailedAndUnresolvableNodes":{"x":1}}`,
		`[{"Host":"outboard-verify-node-0","Score":11},{"host":"x","score":-1},{"Host":"x"}]`, `[{"Score":1.5}]`, `[{"Score":99999999999999999999}]`,
		`{"NodeNameToMetaVictims":{"outboard-verify-node-0":null,"outboard-verify-node-1":{"Pods":[null,{"UID":"x"}]},"z":{}}}`,
		`{"NodeNameToVictims":{"outboard-verify-node-0":{}}}`, `{"NodeNameToVictims":7}`, `{"Error":"not found"}`, `{"Error":5}`,
	} {
		f.Add([]byte(seed))
	}
	c, err := newFixtures(Options{})
	if err != nil {
		f.Fatal(err)
	}
	ask := func(verb decision.Verb, mode Mode) *request {
		return askAbout(verb, string(verb), mode, c.pod, c.sample()[:4], "")
	}
	cases := []struct {
		request *request
		theirs  func() any
	}{
		{ask(decision.Filter, ModeNames), func() any { return &extenderv1.ExtenderFilterResult{} }},
		{ask(decision.Filter, ModeNodes), func() any { return &extenderv1.ExtenderFilterResult{} }},
		{ask(decision.Prioritize, ModeNames), func() any { return &extenderv1.HostPriorityList{} }},
		{askPreempt("preempt", ModeNames, c, ""), func() any { return &extenderv1.ExtenderPreemptionResult{} }},
		{askBind("bind", "x"), func() any { return &extenderv1.ExtenderBindingResult{} }},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		for _, test := range cases {
			a := response{status: 200, head: data}
			a.result, a.err = test.request.decode(data)
			if errors.Is(a.err, errTooMany) {
				continue
			}
			if theirs := json.Unmarshal(data, test.theirs()); (a.err == nil) != (theirs == nil) {
				t.Fatalf("%s: decoding returns %v, in kube-scheduler %v", test.request.verb, a.err, theirs)
			}
			if a.err != nil {
				a.failure = notJSON
			}
			j := newChecker()
			j.response(test.request, &a, c)
			if a.err == nil {
				v := a.result.verdict(test.request)
				if d := v.difference(v); d != "" {
					t.Fatalf("a verdict differs from itself: %s", d)
				}
			}
		}
	})
}
