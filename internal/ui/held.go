package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/snapshot"
)

// held returns who holds what, by the ledgers.
func (s *Source) held(q url.Values) Held {
	h := Held{Findings: []audit.Finding{}, Rows: []HeldRow{}}
	if s.Audit != nil {
		at, findings := s.Audit()
		h.Audited = at
		h.Findings = append(h.Findings, findings...)
	}
	view := s.View()
	selects := func(r *HeldRow) bool {
		resource, node, find := q.Get("resource"), q.Get("node"), q.Get("find")
		return (resource == "" || r.Resource == resource || strings.HasPrefix(r.Resource, resource+"/")) && (node == "" || r.Node == node || r.Node == "" && r.Unit == node) &&
			strings.Contains(r.Namespace+"/"+r.Pod+" "+r.Owner+" "+r.Node+" "+r.Unit, find)
	}
	pods := map[types.UID]*corev1.Pod{}
	for n := range view.All() {
		if len(n.Ledgers) == 0 {
			continue
		}
		for _, pod := range n.Pods {
			pods[pod.UID] = pod
		}
		for _, l := range n.Ledgers {
			h.Rows = appendHeld(h.Rows, l, pods, selects)
		}
		clear(pods)
	}
	for l := range view.Pools() {
		for i := range l.Pods {
			if n := view.Node(l.Pods[i].Node); n != nil {
				for _, pod := range n.Pods {
					pods[pod.UID] = pod
				}
			}
		}
		h.Rows = appendHeld(h.Rows, l, pods, selects)
	}
	h.Rows = s.appendUnclaimed(h.Rows, view, selects)
	h.Total = len(h.Rows)
	slices.SortFunc(h.Rows, func(a, b HeldRow) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
	})
	h.Rows = h.Rows[:min(maxRows, len(h.Rows))]
	return h
}

// appendHeld appends the claims of the ledger that are selected. pods are those of its node.
func appendHeld(rows []HeldRow, l *snapshot.Ledger, pods map[types.UID]*corev1.Pod, selects func(*HeldRow) bool) []HeldRow {
	_, pool, isPool := strings.Cut(l.Resource, "/")
	for i := range l.Units {
		for _, claim := range l.Units[i].Claims {
			r := HeldRow{Resource: l.Resource, Node: l.Node, Unit: l.Units[i].Name, UID: string(claim.Pod), Amount: claim.Amount, State: "deleted"}
			if l.Node == "" && isPool {
				r.Unit = pool // its seats are divided into units for ledgers alone
			}
			if p := l.Pod(claim.Pod); p != nil {
				r.Namespace, r.Pod = p.Namespace, p.Name
			}
			if pod := pods[claim.Pod]; pod != nil {
				r.describe(pod)
			}
			if selects(&r) {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// appendUnclaimed appends the pods on nodes that lack a claim.
func (s *Source) appendUnclaimed(rows []HeldRow, view *snapshot.View, selects func(*HeldRow) bool) []HeldRow {
	c := s.Config()
	for n := range view.All() {
		for _, pod := range n.Pods {
			if pod.Spec.NodeName == "" {
				continue // it is being bound
			}
			c.EachClaim(n, pod, func(key snapshot.LedgerKey) {
				if view.Ledger(key).Pod(pod.UID) != nil {
					return
				}
				amount := snapshot.PodRequests(pod)[corev1.ResourceName(key.Resource)]
				r := HeldRow{Resource: key.Resource, Node: n.Name, UID: string(pod.UID), Amount: amount.Value(), Unclaimed: true}
				r.describe(pod)
				if selects(&r) && (len(rows) == 0 || rows[len(rows)-1] != r) { // several profiles may require the claim
					rows = append(rows, r)
				}
			})
		}
	}
	return rows
}

// describe sets what the pod says about itself.
func (r *HeldRow) describe(pod *corev1.Pod) {
	r.Namespace, r.Pod, r.Owner, r.State = pod.Namespace, pod.Name, ownerOf(pod), stateOf(pod)
	if at, known := snapshot.BoundBefore(pod); known {
		r.Since = at
	}
}

func stateOf(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "terminating"
	case pod.Spec.NodeName == "":
		return "pending"
	case snapshot.Ended(pod):
		return "ended"
	case pod.Status.Phase == corev1.PodRunning:
		return "running"
	}
	return "bound"
}
