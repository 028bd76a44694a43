package ui

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// holders finds who holds what. What the pods of one node hold is kept with the node.
type holders struct {
	config *config.Config
	nodes  *snapshot.Fact[nodeHolders]
}

// nodeHolders are the holders of one node.
type nodeHolders struct {
	// rows are for allocations in the ledgers of the node, and for pods that lack such an
	// allocation, in the order of compareHeld.
	rows []HeldRow
	// inPools are the rows for allocations in pools that pods of the node must have, as if they
	// lacked them.
	inPools []HeldRow
}

func newHolders(c *config.Config) *holders {
	return &holders{config: c, nodes: snapshot.NewFact(func(n *snapshot.Node) nodeHolders { return holdersOf(c, n) })}
}

func holdersOf(c *config.Config, n *snapshot.Node) (h nodeHolders) {
	for _, l := range n.Ledgers {
		h.rows = appendHeld(h.rows, l, func(uid types.UID) *corev1.Pod { return podOn(n, uid) })
	}
	for _, pod := range n.Pods {
		if pod.Spec.NodeName == "" {
			continue // it is being bound
		}
		required := map[snapshot.LedgerKey]bool{} // several profiles may require one allocation
		c.EachAllocation(n, pod, func(key snapshot.LedgerKey) {
			if required[key] || key.Node != "" && n.Ledger(key.Resource).Pod(pod.UID) != nil {
				return
			}
			required[key] = true
			amount := snapshot.PodRequests(pod)[corev1.ResourceName(key.Resource)]
			r := HeldRow{Resource: key.Resource, Node: n.Name, UID: string(pod.UID), Amount: amount.Value(), Unallocated: true}
			r.describe(pod)
			if key.Node == "" {
				h.inPools = append(h.inPools, r)
			} else {
				h.rows = append(h.rows, r)
			}
		})
	}
	slices.SortFunc(h.rows, compareHeld)
	return h
}

// podOn returns the pod with the UID on the node, or nil.
func podOn(n *snapshot.Node, uid types.UID) *corev1.Pod {
	for _, pod := range n.Pods {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

// compareHeld is the order of rows.
func compareHeld(a, b HeldRow) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
}

// held returns who holds what, by the ledgers. It makes only what belongs to the node in the query,
// or to changed nodes.
func (h *holders) held(s *Source, q url.Values) Held {
	all := Held{Findings: []HeldFinding{}, Rows: []HeldRow{}}
	if s.Audit != nil {
		at, findings := s.Audit()
		all.Audited = at
		for _, f := range findings {
			all.Findings = append(all.Findings, HeldFinding{f, f.About()})
		}
	}
	selected := heldQuery{q.Get("resource"), q.Get("node"), q.Get("find")}
	view := s.View()
	byResource := map[string][]*HeldRow{}
	add := func(rows []HeldRow) {
		for i := range rows {
			if r := &rows[i]; selected.selects(r) {
				byResource[r.Resource] = append(byResource[r.Resource], r)
			}
		}
	}
	nodes := slices.Collect(view.All())
	if selected.node != "" {
		nodes = slices.DeleteFunc([]*snapshot.Node{view.Node(selected.node)}, func(n *snapshot.Node) bool { return n == nil })
	}
	add(h.pools(view, nodes))
	for _, n := range nodes {
		add(h.nodes.Of(n).rows)
	}
	add(h.devices(view, selected.node))
	by := q.Get("by")
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		rows := byResource[resource]
		all.Total += len(rows)
		if by == "namespace" || by == "owner" {
			all.Groups = append(all.Groups, groups(rows, by, h.capacityOf(resource, view))...)
			continue
		}
		for _, r := range rows[:min(len(rows), maxRows-len(all.Rows))] {
			all.Rows = append(all.Rows, *r)
		}
	}
	for i := range all.Rows {
		all.Rows[i].judge(&all)
	}
	all.Groups = all.Groups[:min(maxRows, len(all.Groups))]
	return all
}

// devices returns the rows for ResourceClaims on the node, or on all if that is "". These claims are
// in no ledger.
func (h *holders) devices(view *snapshot.View, node string) (rows []HeldRow) {
	known := map[[2]string]bool{}
	for lister := range listers(h.config) {
		if !listsDevices(lister) {
			continue
		}
		list := lister.Units(view)
		for i := range list.Nodes {
			n := &list.Nodes[i]
			key := [2]string{string(list.Resource), n.Node}
			if node != "" && n.Node != node || known[key] { // two policies have the same devices
				continue
			}
			known[key] = true
			rows = append(rows, rowsOfDevices(key[0], n, view.Node(n.Node))...)
		}
	}
	return rows
}

func rowsOfDevices(resource string, units *policy.NodeUnits, n *snapshot.Node) (rows []HeldRow) {
	for i := range units.Units {
		for _, holder := range units.Units[i].Holders {
			r := HeldRow{
				Resource: resource, Node: n.Name, Unit: units.Units[i].Name, Namespace: holder.Claim.Namespace, UID: "claim " + holder.Claim.Name,
				Amount: holder.Amount, Annotations: []string{"ResourceClaim: " + holder.Claim.Name}, State: "unknown", Audit: "not audited",
			}
			if pod := podOn(n, holder.Pod); pod != nil {
				r.UID = string(pod.UID)
				r.describe(pod)
			}
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, compareHeld)
	return rows
}

// judge sets what the audit says of the row.
func (r *HeldRow) judge(h *Held) {
	found := slices.IndexFunc(h.Findings, func(f HeldFinding) bool {
		return f.Resource == r.Resource && slices.ContainsFunc(f.Holders, func(p audit.Holder) bool { return string(p.UID) == r.UID })
	})
	switch {
	case r.Audit != "": // not of a ledger
	case found >= 0:
		r.Audit, r.Differs = string(h.Findings[found].Kind), true
	case r.Unallocated:
		r.Audit, r.Differs = "without an allocation", true
	case h.Audited.IsZero() || r.Since.After(h.Audited):
		r.Audit = "not yet"
	default:
		r.Audit = "agrees"
	}
}

// heldQuery selects rows.
type heldQuery struct{ resource, node, find string }

// selects reports whether the query selects the row. There are many rows, and a request looks at
// all of them, so it makes no text.
func (q *heldQuery) selects(r *HeldRow) bool {
	return (q.resource == "" || r.Resource == q.resource || strings.HasPrefix(r.Resource, q.resource) && r.Resource[len(q.resource)] == '/') &&
		(q.node == "" || r.Node == q.node || r.Node == "" && r.Unit == q.node) &&
		(q.find == "" || q.finds(r))
}

// finds reports whether the name of the pod with or without its namespace, its owner, the node or
// the unit has the text that is searched for.
func (q *heldQuery) finds(r *HeldRow) bool {
	if strings.Contains(r.Node, q.find) || strings.Contains(r.Pod, q.find) || strings.Contains(r.Owner, q.find) || strings.Contains(r.Namespace, q.find) || strings.Contains(r.Unit, q.find) {
		return true
	}
	namespace, pod, slash := strings.Cut(q.find, "/")
	return slash && strings.HasSuffix(r.Namespace, namespace) && strings.HasPrefix(r.Pod, pod)
}

// pools returns the rows for allocations in pools, and for pods of these nodes that lack such an
// allocation, in the order of compareHeld.
func (h *holders) pools(view *snapshot.View, nodes []*snapshot.Node) (rows []HeldRow) {
	allocated := map[string]map[types.UID]*snapshot.LedgerPod{} // by resource
	for l := range view.Pools() {
		pods := make(map[types.UID]*snapshot.LedgerPod, len(l.Pods))
		for i := range l.Pods {
			pods[l.Pods[i].UID] = &l.Pods[i]
		}
		allocated[l.Resource] = pods
		rows = appendHeld(rows, l, func(uid types.UID) *corev1.Pod {
			if p := pods[uid]; p != nil {
				if n := view.Node(p.Node); n != nil {
					return podOn(n, uid)
				}
			}
			return nil
		})
	}
	for _, n := range nodes {
		for _, r := range h.nodes.Of(n).inPools {
			if allocated[r.Resource][types.UID(r.UID)] == nil {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, compareHeld)
	return rows
}

// appendHeld appends the allocations of the ledger. find returns the pod that has an allocation, or
// nil.
func appendHeld(rows []HeldRow, l *snapshot.Ledger, find func(types.UID) *corev1.Pod) []HeldRow {
	names := make(map[types.UID]*snapshot.LedgerPod, len(l.Pods))
	for i := range l.Pods {
		names[l.Pods[i].UID] = &l.Pods[i]
	}
	_, pool, isPool := strings.Cut(l.Resource, "/")
	for i := range l.Units {
		for _, allocation := range l.Units[i].Allocations {
			r := HeldRow{Resource: l.Resource, Node: l.Node, Unit: l.Units[i].Name, UID: string(allocation.Pod), Amount: allocation.Amount, State: "deleted"}
			if l.Node == "" && isPool {
				r.Unit = pool // its seats are divided into units for ledgers alone
			}
			if p := names[allocation.Pod]; p != nil {
				r.Namespace, r.Pod = p.Namespace, p.Name
			}
			if pod := find(allocation.Pod); pod != nil {
				r.describe(pod)
				if p := names[allocation.Pod]; p != nil {
					r.annotate(pod, p)
				}
			}
			rows = append(rows, r)
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
