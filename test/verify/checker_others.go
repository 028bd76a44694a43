package main

import (
	"maps"
	"slices"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func (j *checker) scores(q *request, a *response, r scoreResult) {
	if len(r) == 0 {
		return
	}
	asked := positions(q.names)
	known := func(s extenderv1.HostPriority) bool { _, known := asked[s.Host]; return known }
	wild, found := firstOf(r, func(s extenderv1.HostPriority) bool { return s.Score < 0 || s.Score > extenderv1.MaxExtenderPriority })
	j.check(ruleScoreRange, !found, q, a, "%s has score %d, which is not between 0 and %d", wild.Host, wild.Score, extenderv1.MaxExtenderPriority)
	stranger, found := firstOf(r, func(s extenderv1.HostPriority) bool { return !known(s) })
	j.check(ruleScoreKnown, !found, q, a, "%q is scored and is not in the request", stranger.Host)

	seen := make(map[string]bool, len(r))
	twice, found := firstOf(r, func(s extenderv1.HostPriority) bool {
		again := seen[s.Host]
		seen[s.Host] = true
		return again
	})
	j.check(ruleScoreOnce, !found, q, a, "%s is scored twice", twice.Host)
	for _, s := range r {
		seen[s.Host] = true
	}
	left, found := firstOf(q.names, func(name string) bool { return !seen[name] })
	j.check(ruleScoreAll, !found, q, a, "%s has no score", left)
}

func (j *checker) preempt(q *request, a *response, r *preemptResult, c *fixtures) bool {
	kept := r.NodeNameToMetaVictims
	if !j.check(rulePreemptForm, len(kept) > 0 || !slices.Contains([]byte(r.NodeNameToVictims), '"'), q, a, "the response has NodeNameToVictims alone") {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		victims := kept[name]
		null := victims == nil || slices.Contains(victims.Pods, nil)
		if !j.check(rulePreemptNull, !null, q, a, "%s, or a pod on it, is null", name) {
			continue
		}
		if offered := q.victims[name]; j.check(rulePreemptNodes, offered != nil, q, a, "%q is not in the request", name) {
			j.victims(q, a, name, victims, offered, c)
		}
	}
	if len(kept) == 0 {
		j.check(rulePreemptNull, true, q, a, "")
		j.check(rulePreemptNodes, true, q, a, "")
	}
	return true
}

// victims checks which victims of one node the response keeps and adds.
func (j *checker) victims(q *request, a *response, name string, got *extenderv1.MetaVictims, offered *extenderv1.Victims, c *fixtures) {
	if !j.check(rulePreemptEmpty, len(got.Pods) > 0, q, a, "%s is kept with no victim", name) {
		return
	}
	uids := uidsOf(got)
	trimmed := ""
	for _, pod := range offered.Pods {
		if uid := string(pod.UID); !uids[uid] {
			trimmed = uid
		} else {
			delete(uids, uid)
		}
	}
	if j.check(rulePreemptKeeps, trimmed == "", q, a, "%s is kept without victim %s", name, trimmed) {
		j.check(rulePreemptPDB, got.NumPDBViolations >= offered.NumPDBViolations, q, a,
			"%s is kept with %d violated budgets; the request has %d", name, got.NumPDBViolations, offered.NumPDBViolations)
	}
	stray, found := firstOf(slices.Sorted(maps.Keys(uids)), func(uid string) bool { return !c.mayBeOn(name, uid) })
	j.check(rulePreemptKnown, !found, q, a, "victim %q is not a pod on %s", stray, name)
}
