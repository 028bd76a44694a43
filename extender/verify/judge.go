package verify

import (
	"fmt"
	"slices"
)

// judge collects what the answers say about the rules. Not safe for concurrent use.
type judge struct {
	results []Result
	byID    map[string]*Result
}

func newJudge() *judge {
	j := &judge{results: make([]Result, len(rules)), byID: make(map[string]*Result, len(rules))}
	for i, rule := range rules {
		j.results[i] = Result{Rule: rule, Outcome: NotApplicable}
		j.byID[rule.ID] = &j.results[i]
	}
	return j
}

const maxFindings = 3

// check records that the answer keeps the rule, or breaks it as detail says, and
// returns ok.
func (j *judge) check(rule string, ok bool, q *question, a *answer, detail string, args ...any) bool {
	r := j.byID[rule]
	r.Judged++
	switch {
	case ok:
		if r.Outcome == NotApplicable {
			r.Outcome = Keeps
		}
	default:
		r.Outcome = Breaks
		r.Breaches++
		found := Finding{Sent: q.sent(), Got: a.got(), Detail: printable(fmt.Sprintf(detail, args...))}
		known := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Detail == found.Detail })
		if !known && len(r.Findings) < maxFindings {
			r.Findings = append(r.Findings, found)
		}
	}
	return ok
}

// reply judges what is common to the answers of all verbs, and returns whether
// there is a result to look into.
func (j *judge) reply(q *question, a *answer) bool {
	if a.failure == notAsked {
		return false
	}
	if !j.check(ruleAnswers, a.failure != noReply, q, a, "there is no complete reply") ||
		!j.check(ruleInTime, a.failure != late, q, a, "the time ran out before the reply was complete") ||
		!j.check(ruleBounded, a.failure != tooLarge, q, a, "no answer to this question needs more than %d bytes, or this many entries; reading stopped", q.answerLimit()) {
		return false
	}
	j.check(ruleRedirect, a.redirected == "", q, a, "the call was sent on")
	if !j.check(ruleStatus, a.failure != badStatus, q, a, "the status is %d", a.status) {
		return false
	}
	return j.check(ruleJSON, a.failure != notJSON, q, a, "it does not decode: %v", a.err)
}

// answer judges a well-formed question's answer by every rule that needs no other
// answer beside it, and returns whether there is a verdict.
func (j *judge) answer(q *question, a *answer, c *cast) bool {
	if !j.reply(q, a) {
		return false
	}
	switch r := a.result.(type) {
	case *filterResult:
		return j.filter(q, a, r, c)
	case *scoreResult:
		j.scores(q, a, *r, c)
	case *preemptResult:
		return j.preempt(q, a, r, c)
	case *bindResult:
		return j.check(ruleBindUnknown, r.Error != "", q, a, "it reports the pod as bound")
	}
	return true
}

// finish says of each rule that was not judged why it was not.
func (j *judge) finish(verbs []string) []Result {
	for i := range j.results {
		r := &j.results[i]
		if r.Outcome != NotApplicable {
			continue
		}
		served := func(verb string) bool { return slices.Contains(verbs, verb) }
		switch {
		case r.verbs != nil && !slices.ContainsFunc(r.verbs, served):
			r.Why = r.verbs[0] + " is not checked"
			if len(r.verbs) == 2 {
				r.Why = r.verbs[0] + " and " + r.verbs[1] + " are not checked"
			}
		case r.needs != "":
			r.Why = r.needs
		default:
			r.Why = "nothing to judge by"
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
