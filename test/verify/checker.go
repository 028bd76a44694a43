package main

import (
	"fmt"
	"slices"

	"outboard.dev/outboard/internal/decision"
)

// checker collects the outcomes of the rules. Not safe for concurrent use.
type checker struct {
	results []Result
	byID    map[string]*Result
}

func newChecker() *checker {
	j := &checker{results: make([]Result, len(rules)), byID: make(map[string]*Result, len(rules))}
	for i, rule := range rules {
		j.results[i] = Result{Rule: rule, Outcome: NotApplicable}
		j.byID[rule.ID] = &j.results[i]
	}
	return j
}

const maxFindings = 3

// check records that the response passes the rule, or violates it as detail says, and
// returns ok.
func (j *checker) check(rule string, ok bool, q *request, a *response, detail string, args ...any) bool {
	r := j.byID[rule]
	r.Checked++
	switch {
	case ok:
		if r.Outcome == NotApplicable {
			r.Outcome = Passed
		}
	default:
		r.Outcome = Failed
		r.Violations++
		found := Finding{Sent: q.sent(), Got: a.got(), Detail: printable(fmt.Sprintf(detail, args...))}
		known := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Detail == found.Detail })
		if !known && len(r.Findings) < maxFindings {
			r.Findings = append(r.Findings, found)
		}
	}
	return ok
}

// reply checks the rules common to all verbs, and reports whether there is a result to
// check further.
func (j *checker) reply(q *request, a *response) bool {
	if a.failure == notAsked {
		return false
	}
	if !j.check(ruleResponses, a.failure != noReply, q, a, "there is no complete response") ||
		!j.check(ruleInTime, a.failure != late, q, a, "the timeout ended before the response was complete: the extender is slow or busy; a longer --timeout, like a longer httpTimeout, lets it finish") ||
		!j.check(ruleBounded, a.failure != tooLarge, q, a, "no response to this request needs more than %d bytes, or so many entries; reading stopped", q.responseLimit()) {
		return false
	}
	j.check(ruleRedirect, a.redirected == "", q, a, "the call was redirected")
	if !j.check(ruleStatus, a.failure != badStatus, q, a, "the status is %d", a.status) {
		return false
	}
	return j.check(ruleJSON, a.failure != notJSON, q, a, "the response cannot be decoded: %v", a.err)
}

// response checks the response to a well-formed request by every rule that needs no
// other response, and reports whether there is a verdict.
func (j *checker) response(q *request, a *response, c *fixtures) bool {
	if !j.reply(q, a) {
		return false
	}
	switch r := a.result.(type) {
	case *filterResult:
		return j.filter(q, a, r, c)
	case *scoreResult:
		j.scores(q, a, *r)
	case *preemptResult:
		return j.preempt(q, a, r, c)
	case *bindResult:
		return j.check(ruleBindUnknown, r.Error != "", q, a, "the response reports the pod as bound")
	}
	return true
}

// finish adds the reason to each rule that was not checked.
func (j *checker) finish(verbs []decision.Verb) []Result {
	for i := range j.results {
		r := &j.results[i]
		if r.Outcome != NotApplicable {
			continue
		}
		served := func(verb decision.Verb) bool { return slices.Contains(verbs, verb) }
		switch {
		case r.verbs != nil && !slices.ContainsFunc(r.verbs, served):
			r.Why = string(r.verbs[0]) + " is not checked"
			if len(r.verbs) == 2 {
				r.Why = string(r.verbs[0] + " and " + r.verbs[1] + " are not checked")
			}
		case r.needs != "":
			r.Why = r.needs
		default:
			r.Why = "no response to check"
		}
	}
	return j.results
}

// firstOf returns the first element for which is holds, and whether there is one.
func firstOf[T any](list []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	var none T
	return none, false
}
