package ui

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// maxRows bounds the rows of a response, and maxPods those for single pods.
const (
	maxRows = 500
	maxPods = 10_000
)

// Query selects waiting pods.
type Query struct {
	// Find is a part of the name of the pod or of the owner, Reason the code, and Owner the owner; "" selects any.
	Find, Reason, Owner string
	// Namespace is the namespace of the pods; "" is all.
	Namespace string
	// Limit is the maximum number of rows.
	Limit int
	// Pods asks for a row for each pod, and for all of them, to merge those of several replicas.
	Pods bool
}

// QueryOf returns the query in the parameters of a request.
func QueryOf(q url.Values) Query {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		limit = 50
	}
	return Query{Find: q.Get("find"), Reason: q.Get("reason"), Owner: q.Get("owner"), Limit: min(limit, maxRows), Pods: q.Get("pods") == "true"}
}

func (q *Query) selects(w *WaitingRow) bool {
	return (q.Namespace == "" || strings.HasPrefix(w.Pod, q.Namespace+"/")) && (q.Reason == "" || q.Reason == w.Reason) && (q.Owner == "" || q.Owner == w.Owner) &&
		(strings.Contains(w.Pod, q.Find) || strings.Contains(w.Owner, q.Find))
}

// waits yields the pods that wait for a node, and that a profile places.
func (s *Source) waits(yield func(pod *corev1.Pod, profiles []string)) {
	if s.Pods == nil {
		return
	}
	c := s.Config()
	for _, pod := range s.Pods() {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		var profiles []string
		for i := range c.Profiles {
			p := &c.Profiles[i]
			if (len(p.SchedulerNames) == 0 || slices.Contains(p.SchedulerNames, pod.Spec.SchedulerName)) && p.Manages(pod) {
				profiles = append(profiles, p.Path)
			}
		}
		if len(profiles) > 0 {
			yield(pod, profiles)
		}
	}
}

// waiting returns the waiting pods that the query selects.
func (s *Source) waiting(q Query) Waiting {
	all, pods := []WaitingRow{}, map[string]*corev1.Pod{}
	s.waits(func(pod *corev1.Pod, profiles []string) {
		all = append(all, s.row(pod, profiles))
		pods[pod.Namespace+"/"+pod.Name] = pod
	})
	w := Waiting{Pods: len(all), Shown: len(all), Reasons: []Reason{}}
	if q.Pods {
		slices.SortFunc(all, longest)
		w.Rows = all[:min(maxPods, len(all))]
	} else {
		w = Group(all, q)
	}
	for i := range w.Rows {
		w.Rows[i].Requests = requests(pods[w.Rows[i].Pod])
	}
	return w
}

// row says why one pod waits, without what it requests. Of several profiles that rejected it, the one counts that was asked last.
func (s *Source) row(pod *corev1.Pod, profiles []string) WaitingRow {
	w := WaitingRow{
		Owner: ownerOf(pod), Pods: 1, Pod: pod.Namespace + "/" + pod.Name, Since: pod.CreationTimestamp.Time, Requests: []string{}, Reason: NotAsked,
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			w.Text = c.Message
		}
	}
	if snapshot.Gated(pod) {
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		w.Reason, w.Text = Gated, strings.Join(gates, ", ")
		return w
	}
	for _, profile := range profiles {
		status, ok := s.Rejected(profile, pod.UID)
		if !ok || status.Rejection.Code == "" {
			continue
		}
		if w.LastCall.IsZero() || status.Since.Before(w.Since) {
			w.Since = status.Since
		}
		w.Requeues += status.Requeues
		if status.LastCall.Before(w.LastCall) {
			continue
		}
		main := &status.Rejection
		w.Reason, w.Text, w.Unit, w.Nearest = codeOf(main.Policy, main.Code), main.Text, main.Unit, nil
		w.Rejected, w.Nodes, w.LastCall = main.Nodes, status.Nodes, status.LastCall
		if len(main.Nearest) > 0 {
			w.Nearest = &main.Nearest[0]
		}
	}
	return w
}

func codeOf(policy, code string) string {
	if policy == "" {
		return code
	}
	return policy + "." + code
}

// ownerOf returns the controller of the pod as namespace/kind/name.
func ownerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return pod.Namespace + "/" + owner.Kind + "/" + owner.Name
	}
	return pod.Namespace + "/Pod/" + pod.Name
}

// requests lists what the pod requests: processors and memory, and then extended resources by name.
func requests(pod *corev1.Pod) []string {
	list := []string{}
	all := snapshot.PodRequests(pod)
	names := slices.SortedFunc(maps.Keys(all), func(a, b corev1.ResourceName) int {
		own := func(n corev1.ResourceName) int { return min(1, strings.Count(string(n), "/")) }
		return cmp.Or(cmp.Compare(own(a), own(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		amount := all[name]
		list = append(list, fmt.Sprintf("%s: %s", name, amount.String()))
	}
	return list
}

func longest(a, b WaitingRow) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod, b.Pod)) }

// Group returns what the query selects of rows of one pod each: the owners, or the pods of one owner.
func Group(pods []WaitingRow, q Query) Waiting {
	w := Waiting{Pods: len(pods), Reasons: []Reason{}, Rows: []WaitingRow{}}
	slices.SortFunc(pods, longest)
	reasons, owners, at := map[string]int{}, map[string]bool{}, map[string]int{}
	for i := range pods {
		p := &pods[i]
		reasons[p.Reason]++
		owners[p.Owner] = true
		if !q.selects(p) {
			continue
		}
		w.Shown++
		if row, ok := at[p.Owner]; ok && q.Owner == "" {
			w.Rows[row].Pods++
			continue
		}
		at[p.Owner] = len(w.Rows)
		w.Rows = append(w.Rows, *p)
	}
	w.Owners = len(owners)
	w.Rows = w.Rows[:min(q.Limit, len(w.Rows))]
	for code, n := range reasons {
		w.Reasons = append(w.Reasons, Reason{code, n})
	}
	slices.SortFunc(w.Reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Code, b.Code)) })
	return w
}
