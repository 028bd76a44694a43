package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func (j *checker) filter(q *request, a *response, r *filterResult, c *fixtures) bool {
	// An extender that knows only its own nodes may return an error for imaginary ones.
	if q.mode == ModeNodes || c.knownNodes > 0 || r.Error == "" {
		j.check(ruleNoError, r.Error == "", q, a, "Error is %q", shorten(r.Error))
	}
	if r.Error != "" {
		return false
	}
	passed, inMode := r.passed(q.mode)
	if !j.check(ruleMode, inMode, q, a, "the request is in %s mode, the response is not", q.mode) {
		return false
	}
	asked := positions(q.names)
	if len(q.names) > 0 {
		stranger, found := firstOf(passed, func(name string) bool { _, known := asked[name]; return !known })
		j.check(ruleSubset, !found, q, a, "%q passes and is not in the request", stranger)
	}
	j.passedList(q, a, passed, asked)
	j.failedMaps(q, a, r, passed, asked)
	j.unchanged(q, a, r)
	return true
}

// unchanged checks the returned objects of nodes that were sent.
func (j *checker) unchanged(q *request, a *response, r *filterResult) {
	compared, difference := false, ""
	for _, node := range r.Nodes.nodes {
		if sent := q.nodes[node.Name]; sent != nil && difference == "" {
			compared = true
			if place := nodeDifference(sent, node); place != "" {
				difference = node.Name + ": " + place
			}
		}
	}
	if compared {
		j.check(ruleUnchanged, difference == "", q, a, "%s", difference)
	}
}

// passedList checks order and duplicates among the nodes of the request.
func (j *checker) passedList(q *request, a *response, passed []string, asked map[string]int) {
	seen := make(map[string]bool, len(passed))
	last, before, after, twice := -1, "", "", ""
	for _, name := range passed {
		position, known := asked[name]
		switch {
		case !known:
			continue
		case seen[name]:
			twice = name
			continue
		case position < last && after == "":
			before, after = q.names[last], name
		}
		seen[name] = true
		last = max(last, position)
	}
	if len(seen) > 0 {
		j.check(ruleDuplicates, twice == "", q, a, "%s passes twice", twice)
	}
	if len(seen) > 1 {
		j.check(ruleOrder, after == "", q, a, "%s comes after %s, but before it in the request", after, before)
	}
}

func (j *checker) failedMaps(q *request, a *response, r *filterResult, passed []string, asked map[string]int) {
	failed, unresolvable := r.FailedNodes.value, r.FailedAndUnresolvableNodes.value
	if len(passed) == 0 && len(q.names) > 0 {
		silent, found := firstOf(q.names, func(name string) bool { return failed[name] == "" && unresolvable[name] == "" })
		j.check(ruleReasons, !found, q, a, "no node passes, and %s has no reason", silent)
	}
	reasons := maps.Clone(failed)
	if reasons == nil {
		reasons = make(map[string]string)
	}
	maps.Copy(reasons, unresolvable)
	if len(reasons) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(reasons))
	stranger, found := firstOf(names, func(name string) bool { _, known := asked[name]; return !known })
	j.check(ruleFailedKnown, !found, q, a, "%q is listed as failed and is not in the request", stranger)
	both, found := firstOf(names, func(name string) bool {
		_, one := failed[name]
		_, two := unresolvable[name]
		return one && two
	})
	j.check(ruleDisjoint, !found, q, a, "%s is in both", both)
	twofold, found := firstOf(passed, func(name string) bool { _, fails := reasons[name]; return fails })
	j.check(ruleNotPassed, !found, q, a, "%s passes and fails (%q)", twofold, shorten(reasons[twofold]))

	const enough = 8
	if len(reasons) >= enough {
		texts := make(map[string]bool)
		for _, text := range reasons {
			texts[text] = true
		}
		j.check(ruleReasonsGroup, len(texts) < len(reasons), q, a, "%d nodes have %d different texts, for example %q",
			len(reasons), len(texts), shorten(reasons[names[0]]))
	}
}

// nodeDifference names the first place where the node that came back differs from
// the one that was sent, as kube-scheduler would see them; "" if it does not.
func nodeDifference(sent, got *corev1.Node) string {
	if equality.Semantic.DeepEqual(sent, got) {
		return ""
	}
	if place := firstDifference(generic(sent), generic(got), ""); place != "" {
		return place
	}
	return "it differs"
}

func generic(node *corev1.Node) (value any) {
	data, err := json.Marshal(node)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		return nil
	}
	return value
}

// firstDifference compares decoded JSON. It returns the path of the first difference, without
// values.
func firstDifference(sent, got any, path string) string {
	if reflect.DeepEqual(sent, got) {
		return ""
	}
	a, isObject := sent.(map[string]any)
	b, bothObjects := got.(map[string]any)
	if !isObject || !bothObjects {
		return path + " is changed"
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, found := b[key]; !found {
			return fmt.Sprintf("%s.%s is dropped", path, key)
		}
		if place := firstDifference(a[key], b[key], path+"."+key); place != "" {
			return place
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, found := a[key]; !found {
			return fmt.Sprintf("%s.%s is added", path, key)
		}
	}
	return ""
}

// positions maps each name to its first place in the list.
func positions(names []string) map[string]int {
	places := make(map[string]int, len(names))
	for i, name := range slices.Backward(names) {
		places[name] = i
	}
	return places
}
