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

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/snapshot"
)

// maxRows bounds the rows of a response.
const maxRows = 500

// Query selects waiting pods.
type Query struct {
	// Find is a part of the name of the pod or of the owner, Reason the code, and Owner the owner;
	// "" selects any.
	Find, Reason, Owner string
	// Namespace is the namespace of the pods; "" is all.
	Namespace string
	// Sort is the order of the rows: one of orders, or those that wait longest first.
	Sort string
	// Limit is the maximum number of rows.
	Limit int
}

// QueryOf returns the query in the parameters of a request.
func QueryOf(q url.Values) Query {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		limit = 50
	}
	return Query{Find: q.Get("find"), Reason: q.Get("reason"), Owner: q.Get("owner"), Sort: q.Get("sort"), Limit: min(limit, maxRows)}
}

func (q *Query) selects(w *WaitingRow) bool {
	return (q.Namespace == "" || strings.HasPrefix(w.Pod, q.Namespace+"/")) && (q.Reason == "" || q.Reason == w.Reason) && (q.Owner == "" || q.Owner == w.Owner) &&
		(strings.Contains(w.Pod, q.Find) || strings.Contains(w.Owner, q.Find))
}

// row says why one pod waits.
func (s *Source) row(pod *corev1.Pod, profiles []*config.Profile) *WaitingRow {
	why := s.Waits(pod, profiles)
	w := &WaitingRow{
		Owner: ownerOf(pod), Pods: 1, Pod: pod.Namespace + "/" + pod.Name, Since: pod.CreationTimestamp.Time, Requests: requests(pod), Reason: why.Code, Text: why.Text,
	}
	if why.LastCall.IsZero() || why.Code == pending.Gated {
		return w
	}
	w.Since, w.Requeues, w.LastCall = why.Since, why.Requeues, why.LastCall
	if main := &why.Rejection; why.Code != pending.Failed {
		w.Unit, w.Rejected, w.Nodes = main.Unit, main.Nodes, why.Nodes
		if len(main.Nearest) > 0 {
			w.Nearest = &main.Nearest[0]
		}
	}
	return w
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

func longest(a, b *WaitingRow) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod, b.Pod))
}

// group is one row before it is copied: the pod of it that waits longest, and how many it has.
type group struct {
	first *WaitingRow
	pods  int
}

// orders are the orders of rows, by their names in queries. Of equal rows, those that wait longest
// come first.
var orders = map[string]func(a, b group) int{
	"pods":   func(a, b group) int { return cmp.Compare(b.pods, a.pods) },
	"reason": func(a, b group) int { return cmp.Compare(a.first.Reason, b.first.Reason) },
}

// Group returns what the query selects of rows of one pod each: the owners, or the pods of one
// owner. It changes neither the slice nor the rows.
func Group(pods []*WaitingRow, q Query) Waiting {
	w := Waiting{Pods: len(pods), Reasons: []Reason{}, Rows: []WaitingRow{}}
	if !slices.IsSortedFunc(pods, longest) {
		pods = slices.SortedFunc(slices.Values(pods), longest)
	}
	reasons, owners, at := map[string]int{}, map[string]bool{}, map[string]int{}
	var groups []group
	for _, p := range pods {
		reasons[p.Reason]++
		owners[p.Owner] = true
		if !q.selects(p) {
			continue
		}
		w.Shown++
		if i, ok := at[p.Owner]; ok && q.Owner == "" {
			groups[i].pods++
			continue
		}
		at[p.Owner] = len(groups)
		groups = append(groups, group{p, 1})
	}
	w.Owners, w.Total = len(owners), len(groups)
	if w.Total > 0 {
		w.Since = groups[0].first.Since
	}
	if order := orders[q.Sort]; order != nil {
		slices.SortStableFunc(groups, order)
	}
	for _, g := range groups[:max(0, min(q.Limit, w.Total))] {
		w.Rows = append(w.Rows, *g.first)
		row := &w.Rows[len(w.Rows)-1]
		row.Pods, row.Title = g.pods, pending.Title(row.Reason)
	}
	for code, n := range reasons {
		w.Reasons = append(w.Reasons, Reason{code, pending.Title(code), n})
	}
	slices.SortFunc(w.Reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Code, b.Code)) })
	return w
}
