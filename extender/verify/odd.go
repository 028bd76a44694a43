package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// expectation is what may be said to an odd question.
type expectation int

const (
	refuse   expectation = iota // it is no question: say so
	anything                    // a refusal or any answer of the right form
	asBase                      // it is the ordinary question: the ordinary answer
	notFound                    // it is at no verb's address: anything but 200
	notPost                     // it is not POSTed: anything but a verdict
)

type oddity struct {
	question *question
	expect   expectation
}

// oddities asks what kube-scheduler would not, and after each the ordinary
// question again.
func (r *run) oddities(t *target) {
	for _, odd := range r.oddQuestions(t) {
		if odd.expect == asBase && !t.stable {
			continue
		}
		a := r.ask(odd.question)
		if a.failure == notAsked {
			return
		}
		again := r.ask(t.base)
		if again.failure == notAsked {
			return
		}
		if !r.survived(t, odd.question, &again) {
			return
		}
		r.odd(t, odd, &a)
	}
}

// survived judges the ordinary question after the odd one. If it gets no answer
// the extender is not asked anything more.
func (r *run) survived(t *target, odd *question, again *answer) bool {
	if again.failure != answered {
		r.dead = true
		r.note("it was not asked further after this: %s", odd.sent())
		return r.judge.check(ruleSurvives, false, t.base, again, "after %q (%s) it no longer answers", odd.what, odd.httpMethod())
	}
	if !t.stable {
		return r.judge.check(ruleSurvives, true, t.base, again, "")
	}
	d := t.verdict.difference(again.result.verdict(t.base))
	return r.judge.check(ruleSurvives, d == "", t.base, again, "after %q (%s): %s", odd.what, odd.httpMethod(), d)
}

func (r *run) odd(t *target, odd oddity, a *answer) {
	q := odd.question
	if !r.judge.check(ruleOdd, a.failure != noReply && a.failure != late && a.failure != tooLarge, q, a, "there is no complete reply of a sensible size") {
		return
	}
	switch odd.expect {
	case notFound:
		r.judge.check(ruleUnknownPath, a.status != http.StatusOK, q, a, "the status is 200")
		return
	case notPost:
		r.judge.check(ruleMethod, a.failure != answered || a.result.refusal() != "" || !says(a.result, q), q, a, "it is answered as a question")
		return
	case asBase:
		if r.judge.check(ruleForms, a.failure == answered, q, a, "the ordinary spelling is answered") {
			d := t.verdict.difference(a.result.verdict(q))
			r.judge.check(ruleForms, d == "", q, a, "%s", d)
		}
		return
	}
	// prioritize and preempt have no Error: a status or an empty answer will do.
	hasError := t.verb == verbFilter || t.verb == verbBind
	if a.failure != answered || a.result.refusal() != "" {
		if hasError {
			r.judge.check(ruleErrorForm, a.failure == answered, q, a, "a refusal must be 200 with Error in JSON")
		}
		if odd.expect == refuse {
			r.judge.check(ruleRefuses, true, q, a, "")
		}
		return
	}
	if odd.expect == refuse {
		r.judge.check(ruleRefuses, !hasError && !says(a.result, q), q, a, "it is not refused")
		return
	}
	stranger, found := firstOf(mentioned(a.result), func(name string) bool {
		return !slices.Contains(q.names, name) && t.verdict[name] == "" // else it is in every answer
	})
	r.judge.check(ruleOdd, !found, q, a, "%q was not asked about", stranger)
}

// says reports whether the answer has something to say about any node.
func says(r result, q *question) bool { return len(r.verdict(q)) > 0 }

// mentioned returns the nodes that the answer would have kube-scheduler use.
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

func (r *run) oddQuestions(t *target) []oddity {
	base := t.base
	var all []oddity
	add := func(expect expectation, what string, body []byte) *question {
		q := base.variant(what, body)
		q.nodes = nil
		all = append(all, oddity{q, expect})
		return q
	}
	add(refuse, "an empty body", []byte{})
	add(refuse, "text that is not JSON", []byte("this is not JSON"))
	add(refuse, "the ordinary question cut in half", base.body[:len(base.body)/2])
	add(refuse, "a JSON list", []byte(`[1,2,3]`))
	add(refuse, "keys with values of the wrong type", []byte(`{"Pod":"probe","Nodes":7,"NodeNames":{"a":1},"NodeNameToVictims":[],"NodeNameToMetaVictims":[],"PodName":1}`))
	for _, s := range base.spellings() {
		add(asBase, s.what, s.body)
	}
	deep := fmt.Appendf(nil, `{"Deep":%s%s,`, strings.Repeat("[", deepLevels), strings.Repeat("]", deepLevels))
	add(anything, fmt.Sprintf("an unknown key with %d levels of lists", deepLevels), append(deep, base.body[1:]...))
	switch t.verb {
	case verbBind:
		add(refuse, "an empty object", []byte(`{}`))
	case verbPreempt:
		add(anything, "no pod", encode(preemptArgs(t.mode, nil, base.victims)))
		add(anything, "no candidates", encode(preemptArgs(t.mode, r.cast.pod, nil))).names = nil
		add(anything, "a null candidate", nullCandidate(t.mode, r.cast.pod, base.names))
	default:
		r.oddNodes(t, add)
	}
	get := add(notPost, "the ordinary question", base.body)
	get.method = http.MethodGet
	lost := add(notFound, "the ordinary question at an unknown path", base.body)
	lost.path += "-outboard-verify-no-such-verb"
	return all
}

// deepLevels is where Go's decoder gives up; others overflow their stack.
const deepLevels = 10000

// oddNodes adds questions of filter and prioritize whose pod or nodes are odd.
func (r *run) oddNodes(t *target, add func(expectation, string, []byte) *question) {
	pod := r.cast.pod
	ask := func(what string, args extenderv1.ExtenderArgs, names []string) {
		add(anything, what, encode(args)).names = names
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
		add(anything, "no pod", encode(noPod))
		noPod["Pod"] = json.RawMessage("{}")
		add(anything, "an empty pod", encode(noPod))
	}
	ask("neither nodes nor names", extenderv1.ExtenderArgs{Pod: pod}, nil)
	ask("both nodes and names", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(names...), NodeNames: &names}, names)
	unknown := append([]string{"outboard-verify-unknown", "../../etc", "<script>", "", strings.Repeat("n", 5000)}, names[0])
	twice := slices.Concat(names, names)
	if t.mode == ModeNodes {
		ask("an empty list of nodes", extenderv1.ExtenderArgs{Pod: pod, Nodes: list()}, nil)
		ask("nodes with nothing but odd names", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(unknown...)}, unknown)
		ask("the same nodes twice", extenderv1.ExtenderArgs{Pod: pod, Nodes: list(twice...)}, names)
		return
	}
	ask("an empty list of names", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &none}, nil)
	ask("odd names", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &unknown}, unknown)
	ask("the same names twice", extenderv1.ExtenderArgs{Pod: pod, NodeNames: &twice}, names)
	broken := bytes.Replace(encode(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{"byte-?", names[0]}}), []byte("byte-?"), []byte("byte-\xff"), 1)
	add(anything, "a name that is not UTF-8", broken).names = []string{"byte-\uFFFD", names[0]}
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
