package replicas

import (
	"cmp"
	"slices"

	"outboard.dev/outboard/internal/ui"
)

// Overview puts the replicas side by side, with the names and the errors of those that do not
// respond. At least one responds.
func Overview(responses []Response[*ui.Overview], context string) *ui.Overview {
	merged := &ui.Overview{Context: context, Resources: []ui.Resource{}}
	for _, r := range responses {
		if r.Err != nil {
			merged.Replicas = append(merged.Replicas, ui.Replica{Name: r.Replica, Error: Reason(r.Err)})
			continue
		}
		for _, one := range r.Value.Replicas {
			one.Name = r.Replica
			merged.Replicas = append(merged.Replicas, one)
		}
		for _, resource := range r.Value.Resources {
			if !slices.Contains(merged.Resources, resource) {
				merged.Resources = append(merged.Resources, resource)
			}
		}
	}
	slices.SortFunc(merged.Resources, func(a, b ui.Resource) int { return cmp.Compare(a.Title, b.Title) })
	merged.Judge()
	return merged
}

// Waiting unites the pods that wait, by all replicas: each has a row for each pod. Of a pod that
// several replicas know, the row of the replica counts that kube-scheduler asked last; they have
// requeued it as often as all of them together, and since the first of them rejected it.
func Waiting(responses []Response[[]*ui.WaitingRow], q ui.Query) ui.Waiting {
	at := map[string]int{}
	var pods []*ui.WaitingRow
	for _, r := range responses {
		for _, row := range r.Value {
			i, known := at[row.Pod]
			if !known {
				at[row.Pod] = len(pods)
				pods = append(pods, row)
				continue
			}
			merged, other := *pods[i], row // a copy, because rows are shared
			if row.LastCall.After(merged.LastCall) {
				merged, other = *row, pods[i]
			}
			if !merged.LastCall.IsZero() && !other.LastCall.IsZero() {
				merged.Requeues += other.Requeues
				if other.Since.Before(merged.Since) {
					merged.Since = other.Since
				}
			}
			pods[i] = &merged
		}
	}
	return ui.Group(pods, q)
}

// Ready returns the replicas that are ready by the overview, those that are not after them, and
// those that do not respond last, each in the order of all.
func Ready(all []Replica, o *ui.Overview) []Replica {
	if o == nil {
		return all
	}
	rank := func(r Replica) int {
		i := slices.IndexFunc(o.Replicas, func(x ui.Replica) bool { return x.Name == r.Name })
		switch {
		case i < 0:
			return 1
		case o.Replicas[i].Error != "":
			return 2
		case slices.ContainsFunc(o.Replicas[i].Checks, func(c ui.Check) bool { return c.Error != "" }):
			return 1
		}
		return 0
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Replica) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted
}
