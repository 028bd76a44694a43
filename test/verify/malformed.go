package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// expectedResponse is what a malformed request may get.
type expectedResponse int

const (
	rejected    expectedResponse = iota // it is not a valid request: an error
	anyResponse                         // an error, or any well-formed response
	sameAsBase                          // it is equivalent to the ordinary request: the same response
	notFound                            // it is at an unknown path: any status but 200
	notPost                             // it is not a POST: anything but a verdict
)

type malformedRequest struct {
	request *request
	expect  expectedResponse
}

// malformed sends requests that kube-scheduler would not send, and after each one the
// ordinary request again.
func (r *run) malformed(t *target) {
	for _, m := range r.malformedRequests(t) {
		if m.expect == sameAsBase && !t.stable {
			continue
		}
		a := r.ask(m.request)
		if a.failure == notAsked {
			return
		}
		again := r.ask(t.base)
		if again.failure == notAsked {
			return
		}
		if !r.survived(t, m.request, &again) {
			return
		}
		r.checkMalformed(t, m, &a)
	}
}

// survived checks the ordinary request after the malformed one. If it gets no
// response, no further calls are made.
func (r *run) survived(t *target, sent *request, again *response) bool {
	if again.failure != responded {
		r.dead = true
		r.note("no further calls were made after: %s", sent.sent())
		return r.checker.check(ruleSurvives, false, t.base, again, "after %q (%s) the extender no longer responds", sent.what, sent.httpMethod())
	}
	if !t.stable {
		return r.checker.check(ruleSurvives, true, t.base, again, "")
	}
	d := t.verdict.difference(again.result.verdict(t.base))
	return r.checker.check(ruleSurvives, d == "", t.base, again, "after %q (%s): %s", sent.what, sent.httpMethod(), d)
}

func (r *run) checkMalformed(t *target, m malformedRequest, a *response) {
	q := m.request
	if !r.checker.check(ruleMalformed, a.failure != noReply && a.failure != late && a.failure != tooLarge, q, a, "there is no complete response of a reasonable size") {
		return
	}
	switch m.expect {
	case notFound:
		r.checker.check(ruleUnknownPath, a.status != http.StatusOK, q, a, "the status is 200")
		return
	case notPost:
		r.checker.check(ruleMethod, a.failure != responded || a.result.rejection() != "" || !says(a.result, q), q, a, "GET gets the response to a POST")
		return
	case sameAsBase:
		if r.checker.check(ruleForms, a.failure == responded, q, a, "the ordinary encoding gets a response") {
			d := t.verdict.difference(a.result.verdict(q))
			r.checker.check(ruleForms, d == "", q, a, "%s", d)
		}
		return
	}
	// prioritize and preempt have no Error: a status or an empty response is correct.
	hasError := t.verb == decision.Filter || t.verb == decision.Bind
	if a.failure != responded || a.result.rejection() != "" {
		if hasError {
			r.checker.check(ruleErrorForm, a.failure == responded, q, a, "an error must be status 200 with Error in JSON")
		}
		if m.expect == rejected {
			r.checker.check(ruleRejects, true, q, a, "")
		}
		return
	}
	if m.expect == rejected {
		r.checker.check(ruleRejects, !hasError && !says(a.result, q), q, a, "it gets a result")
		return
	}
	stranger, found := firstOf(mentioned(a.result), func(name string) bool {
		return !slices.Contains(q.names, name) && t.verdict[name] == "" // else it is in every response
	})
	r.checker.check(ruleMalformed, !found, q, a, "%q is not in the request", stranger)
}

// says reports whether the response has a result for any node.
func says(r result, q *request) bool { return len(r.verdict(q)) > 0 }

// mentioned returns the nodes that the response would have kube-scheduler use.
func mentioned(r result) (names []string) {
	switch r := r.(type) {
	case *filterResult:
		if r.NodeNames.value != nil {
			names = append(names, *r.NodeNames.value...)
		}
		return append(names, r.Nodes.names...)
	case *scoreResult:
		for _, s := range *r {
			names = append(names, s.Host)
		}
	case *preemptResult:
		for name := range r.NodeNameToMetaVictims {
			names = append(names, name)
		}
	}
	return names
}

func (r *run) malformedRequests(t *target) []malformedRequest {
	base := t.base
	var all []malformedRequest
	add := func(expect expectedResponse, what string, body []byte) *request {
		q := base.variant(what, body)
		q.nodes = nil
		all = append(all, malformedRequest{q, expect})
		return q
	}
	add(rejected, "an empty body", []byte{})
	add(rejected, "text that is not JSON", []byte("this is not JSON"))
	add(rejected, "the ordinary request cut in half", base.body[:len(base.body)/2])
	add(rejected, "a JSON list", []byte(`[1,2,3]`))
	add(rejected, "keys with values of the wrong type", []byte(`{"Pod":"probe","Nodes":7,"NodeNames":{"a":1},"NodeNameToVictims":[],"NodeNameToMetaVictims":[],"PodName":1}`))
	for _, s := range base.spellings() {
		add(sameAsBase, s.what, s.body)
	}
	deep := fmt.Appendf(nil, `{"Deep":%s%s,`, strings.Repeat("[", deepLevels), strings.Repeat("]", deepLevels))
	add(anyResponse, fmt.Sprintf("an unknown key with %d nested lists", deepLevels), append(deep, base.body[1:]...))
	switch t.verb {
	case decision.Bind:
		add(rejected, "an empty object", []byte(`{}`))
	case decision.Preempt:
		add(anyResponse, "no pod", encode(preemptArgs(t.mode, nil, base.victims)))
		add(anyResponse, "no candidates", encode(preemptArgs(t.mode, r.fixtures.pod, nil))).names = nil
		add(anyResponse, "a null candidate", nullCandidate(t.mode, r.fixtures.pod, base.names))
	default:
		r.oddNodes(t, add)
	}
	get := add(notPost, "the ordinary request", base.body)
	get.method = http.MethodGet
	lost := add(notFound, "the ordinary request at an unknown path", base.body)
	lost.path += "-outboard-verify-no-such-verb"
	return all
}

// deepLevels is more than Go's decoder accepts; others overflow their stack.
const deepLevels = 10000

// oddNodes adds requests of filter and prioritize whose pod or nodes are m.
func (r *run) oddNodes(t *target, add func(expectedResponse, string, []byte) *request) {
	pod := r.fixtures.pod
	ask := func(what string, args extenderv1.ExtenderArgs, names []string) {
		add(anyResponse, what, encode(args)).names = names
	}
	none, names := []string{}, t.base.names
	list := func(names ...string) *corev1.NodeList {
		nodes := &corev1.NodeList{Items: []corev1.Node{}}
		for _, name := range names {
			nodes.Items = append(nodes.Items, corev1.Node{})
			nodes.Items[len(nodes.Items)-1].Name = name
		}
		return nodes
	}
	var noPod map[string]json.RawMessage
	if json.Unmarshal(t.base.body, &noPod) == nil {
		noPod["Pod"] = json.RawMessage("null")
		add(anyResponse, "no pod", encode(noPod))
		noPod["Pod"] = json.RawMessage("{}")
		add(anyResponse, "an empty pod", encode(noPod))
	}
	ask("neither nodes nor names", extenderv1.ExtenderArgs{Pod: pod}, nil)
	ask("both nodes and names", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(names...), NodeNames: &names}, names)
	unknown := append([]string{"outboard-verify-unknown", "../../etc", "<script>", "", strings.Repeat("n", 5000)}, names[0])
	twice := slices.Concat(names, names)
	if t.mode == ModeNodes {
		ask("an empty list of nodes", extenderv1.ExtenderArgs{Pod: pod, Nodes: list()}, nil)
		ask("nodes with unusual names only", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(unknown...)}, unknown)
		ask("the same nodes twice", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(twice...)}, names)
		return
	}
	ask("an empty list of names", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &none}, nil)
	ask("unusual names", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &unknown}, unknown)
	ask("the same names twice", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &twice}, names)
	broken := bytes.Replace(encode(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"byte-?", names[0]}}), []byte("byte-?"), []byte("byte-\xff"), 1)
	add(anyResponse, "a name that is not UTF-8", broken).names = []string{"byte-\uFFFD", names[0]}
}

// nullCandidate offers a node with null in place of its victims.
func nullCandidate(mode Mode, pod *corev1.Pod, names []string) []byte {
	args := map[string]any{"Pod": pod, "NodeNameToMetaVictims": nil, "NodeNameToVictims": nil}
	key := "NodeNameToMetaVictims"
	if mode == ModeNodes {
		key = "NodeNameToVictims"
	}
	args[key] = map[string]any{names[0]: nil}
	return encode(args)
}
