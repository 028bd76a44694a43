package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Change is a field that differs between two configurations.
type Change = strictyaml.Change

// Comparison has the differences between two valid configurations.
type Comparison struct {
	// Changes are the fields that differ. Profiles are compared by path, and policies and signals
	// by name; those that then have no counterpart are compared in order. Indexes are those of the
	// new configuration. Of a policy with another type only the type is a change.
	Changes []Change `json:"changes,omitempty"`
	// Risks has a line for each change that makes calls fail, or lets kube-scheduler place pods
	// without the new configuration, because kube-scheduler reads its own only when it starts; and
	// for each change of Process, which has no effect until Outboard is restarted: what it exposes
	// to more callers, or else that it requires the restart.
	Risks []string `json:"risks,omitempty"`
	// Restart is true if a change has no effect until Outboard is restarted.
	Restart bool `json:"-"`
}

// Observed is what a running process knows about its cluster and its callers. The zero value is
// that nothing is known.
type Observed struct {
	// View has the pods and their allocations; nil if they are not known.
	View *snapshot.View
	// SchedulerNames returns the schedulers that called the profile with the path; nil if they are
	// not known.
	SchedulerNames func(path string) []string
	// Plugin says that the process is kube-scheduler, with the plugin: no extender calls the
	// profiles.
	Plugin bool
}

// Compare compares the configuration in use with a new one.
func Compare(old, new *Config, seen Observed) Comparison {
	// (The contents of certificate files are not configuration; the server reloads them itself.)
	restart := differ("", old.Process, new.Process)
	c := Comparison{Changes: append(restart, listed(old, new)...), Risks: risks(old, new, seen), Restart: len(restart) > 0}
	how := ", in a cluster by kubectl --namespace outboard-system rollout restart deployment/outboard"
	if seen.Plugin {
		how = ""
	}
	exposed := exposures(&old.Process, &new.Process, seen.Plugin)
	for _, e := range exposed {
		c.Risks = append(c.Risks, e.String())
	}
	for _, change := range restart {
		if slices.ContainsFunc(exposed, func(e exposure) bool { return e.explains(change) }) {
			continue // how to restart Outboard would be how to expose it
		}
		c.Risks = append(c.Risks, change.String()+": has no effect until Outboard is restarted"+how)
	}
	return c
}

// ReadAtStart returns the names of the fields that are read only when the process starts: those of
// Process.
func ReadAtStart() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Process]()) {
		names = append(names, f.Tag.Get("json"))
	}
	return names
}

// listed returns the changes of bypass, signals and profiles.
func listed(old, new *Config) []Change {
	names := func(c *Config) (names []string) {
		for _, s := range c.Signals {
			names = append(names, s.Name)
		}
		return names
	}
	changes := differ("bypass", old.Bypass, new.Bypass)
	changes = append(changes, listChanges("signals", names(old), names(new), func(path string, i, j int) []Change {
		return strictyaml.Diff(path, old.Signals[i].written, new.Signals[j].written)
	})...)
	return append(changes, listChanges("profiles", paths(old), paths(new), func(path string, i, j int) []Change {
		return profileChanges(path, &old.Profiles[i], &new.Profiles[j])
	})...)
}

func differ(path string, old, new any) []Change {
	encoded := func(v any) strictyaml.Value {
		value, err := strictyaml.Encode(v)
		if err != nil {
			panic(err) // it was decoded, or encoded already
		}
		return value
	}
	return strictyaml.Diff(path, encoded(old), encoded(new))
}

func profileChanges(path string, old, new *Profile) []Change {
	names := func(p *Profile) (names []string) {
		for _, q := range p.Policies {
			names = append(names, q.Name)
		}
		return names
	}
	before, after := *old, *new
	before.Policies, after.Policies = nil, nil
	return append(differ(path, before, after), listChanges(path+".policies", names(old), names(new), func(path string, i, j int) []Change {
		p, q := old.Policies[i], new.Policies[j]
		if p.Type != q.Type {
			return []Change{{Path: path + ".type", Old: p.Type, New: q.Type}}
		}
		return differ(path, p, q)
	})...)
}

// listChanges returns the changes of the list at path, whose items have these names. each returns
// those of item i of the old list, which is item j of the new one.
func listChanges(path string, old, new []string, each func(path string, i, j int) []Change) []Change {
	var changes []Change
	left := make([]bool, len(old)) // the items without a counterpart
	for i, name := range old {
		left[i] = !slices.Contains(new, name)
	}
	for j, name := range new {
		at := fmt.Sprintf("%s[%d]", path, j)
		i := slices.Index(old, name)
		if i < 0 {
			i = slices.Index(left, true)
		}
		if i < 0 {
			changes = append(changes, Change{Path: at, New: name})
			continue
		}
		left[i] = false
		changes = append(changes, each(at, i, j)...)
	}
	for i, name := range old {
		if left[i] {
			changes = append(changes, Change{Path: fmt.Sprintf("%s[%d]", path, i), Old: name})
		}
	}
	return changes
}

func paths(c *Config) (paths []string) {
	for i := range c.Profiles {
		paths = append(paths, c.Profiles[i].Path)
	}
	return paths
}

// restarted is how kube-scheduler reads a configuration for the new file.
const restarted = "is restarted with what outboard setup scheduler --config FILE prints"

// risks returns the risks of changes of profiles. A risk that an operator can look into or end
// names the command.
func risks(old, new *Config, seen Observed) []string {
	if seen.Plugin {
		return append(countingRisks(old, new, seen.View), allocationRisks(old, new, seen.View)...)
	}
	var risks []string
	served := map[string]bool{}
	for i := range new.Profiles {
		for _, r := range new.Profiles[i].Routes() {
			served[r.Path] = true
		}
	}
	risks = append(risks, addedRisks(old, new)...)
	for i := range old.Profiles {
		p := &old.Profiles[i]
		gone := slices.DeleteFunc(p.Routes(), func(r Route) bool { return served[r.Path] })
		if len(gone) > 0 {
			risks = append(risks, p.goneRisk(gone))
		}
		if j := slices.Index(paths(new), p.Path); j >= 0 {
			risks = append(risks, profileRisks(p, &new.Profiles[j], seen)...)
		}
	}
	return slices.Concat(risks, countingRisks(old, new, seen.View), allocationRisks(old, new, seen.View))
}

// addedRisks returns the risks of profiles at new URLs, which no extender calls.
func addedRisks(old, new *Config) (risks []string) {
	served := map[string]bool{}
	for i := range old.Profiles {
		for _, r := range old.Profiles[i].Routes() {
			served[r.Path] = true
		}
	}
	for i := range new.Profiles {
		p := &new.Profiles[i]
		if slices.Contains(paths(old), p.Path) || !slices.ContainsFunc(p.Routes(), func(r Route) bool { return !served[r.Path] }) {
			continue
		}
		if allocator := p.Allocator(); allocator != "" {
			risks = append(risks, fmt.Sprintf("profile %s: is new, and %s allocates resources: kube-scheduler binds no pod with these allocations until it %s, which has an extender for this profile that has bindVerb", p.Path, allocator, restarted))
		} else {
			risks = append(risks, fmt.Sprintf("profile %s: is new: its policies have no effect until kube-scheduler %s, which has an extender for this profile", p.Path, restarted))
		}
	}
	return risks
}

// goneRisk is the risk of routes of the profile that nothing serves any more. No other profile
// takes their place: kube-scheduler calls the URLs of its own configuration, and only an extender
// that is ignorable, or that only scores, may fail.
func (p *Profile) goneRisk(gone []Route) string {
	var urls []string
	scoresOnly := true
	for _, r := range gone {
		urls = append(urls, r.Path)
		scoresOnly = scoresOnly && r.Verb == decision.Prioritize
	}
	until := "stay pending, or are placed without the profile if its extender has ignorable: true or only prioritizeVerb"
	if scoresOnly {
		until = "are placed without its scores"
	}
	pods := "all pods"
	if len(p.ManagedResources) > 0 {
		pods = p.Pods()
	}
	return fmt.Sprintf("profile %s: nothing serves %s any more: calls of kube-scheduler fail with status 404 until it %s. Until then, %s %s",
		p.Path, strings.Join(urls, ", "), restarted, pods, until)
}

// profileRisks returns the risks of a profile that both configurations serve at the same path.
func profileRisks(old, new *Profile, seen Observed) []string {
	var risks []string
	if risk := excludedRisk(old, new, seen); risk != "" {
		risks = append(risks, risk)
	}
	if len(old.ManagedResources) > 0 && len(new.ManagedResources) == 0 && new.Allocator() != "" {
		risks = append(risks, fmt.Sprintf("profile %s: is now for every pod: with a new configuration, kube-scheduler places no pod while Outboard does not respond", new.Path))
	} else {
		risks = append(risks, managedRisks(old, new)...)
	}
	if allocator := new.Allocator(); allocator != "" && old.Allocator() == "" {
		risks = append(risks, fmt.Sprintf("profile %s: %s allocates resources, and no policy of the profile did so before: kube-scheduler binds pods without allocations until it %s, which has bindVerb for this profile", new.Path, allocator, restarted))
	} else if old.Verb == nil && new.Verb == nil && !old.NeedsFilter() {
		if filters := new.Filters(); len(filters) > 0 {
			risks = append(risks, fmt.Sprintf("profile %s: %s can reject nodes, and no policy of the profile did so before: kube-scheduler places pods on such nodes until it %s, which has filterVerb for this profile", new.Path, strings.Join(filters, " and "), restarted))
		} else if new.Listed() > 0 {
			risks = append(risks, fmt.Sprintf("profile %s: shortlist has no effect until kube-scheduler %s, which has filterVerb for this profile", new.Path, restarted))
		}
	}
	return append(risks, weightRisks(old, new)...)
}

// weightRisks returns the risk of a change of the weight of the profile's extender.
func weightRisks(old, new *Profile) []string {
	before, after := old.ExtenderWeight(), new.ExtenderWeight()
	scores := func(p *Profile) bool { return p.Verb == nil || p.OnlyVerb() == decision.Prioritize }
	switch {
	case before == after || after == 0 || !scores(old) || !scores(new):
		return nil
	case before == 0:
		return []string{fmt.Sprintf("profile %s: its scores count now, and did not before: they have no effect until kube-scheduler %s, which has prioritizeVerb and weight: %d for this profile", new.Path, restarted, after)}
	}
	return []string{fmt.Sprintf("profile %s: the weights of its policies add up to %d, and added up to %d before: kube-scheduler multiplies its scores by the former weight until it %s, which has weight: %[2]d for this profile", new.Path, after, before, restarted)}
}

// managedRisks returns the risks of a change of managedResources, in whatever order they are.
func managedRisks(old, new *Profile) (risks []string) {
	ignored := func(p *Profile) map[string]bool {
		all := map[string]bool{}
		for _, r := range p.ManagedResources {
			all[r.Name] = r.IgnoredByScheduler
		}
		return all
	}
	before, after := ignored(old), ignored(new)
	if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
		risks = append(risks, fmt.Sprintf("profile %s: managedResources differ: kube-scheduler calls for the pods of its own list until it %s", new.Path, restarted))
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, kept := before[name]
		switch {
		case !kept || was == after[name]:
		case was:
			risks = append(risks, fmt.Sprintf("profile %s: ignoredByScheduler of %s is false, and was true: when kube-scheduler %s, its plugin NodeResourcesFit counts the resource, too, and rejects pods that request it on nodes that do not report it or have less of it free", new.Path, name, restarted))
		default:
			risks = append(risks, fmt.Sprintf("profile %s: ignoredByScheduler of %s is true, and was false: until kube-scheduler %s, its plugin NodeResourcesFit still counts the resource, and rejects pods that request it on nodes that do not report it or have less of it free", new.Path, name, restarted))
		}
	}
	return risks
}

// excludedRisk is the risk for the schedulers whose pods bind accepted before, and does not any
// more; "" if there are none.
func excludedRisk(old, new *Profile, seen Observed) string {
	excluded := func(name string) bool { return !slices.Contains(new.SchedulerNames, name) }
	without, whose := "and were not limited before", "all other schedulers"
	selector := "spec.schedulerName!=" + strings.Join(new.SchedulerNames, ",spec.schedulerName!=") // a field has one value, so several names cannot be selected
	if len(old.SchedulerNames) > 0 {
		gone := slices.DeleteFunc(slices.Clone(old.SchedulerNames), func(name string) bool { return !excluded(name) })
		if whose = strings.Join(gone, " and "); len(gone) == 1 {
			selector = "spec.schedulerName=" + whose
		}
		without = "without " + whose
	}
	if len(new.SchedulerNames) == 0 || whose == "" {
		return ""
	}
	risk := fmt.Sprintf("profile %s: schedulerNames are %s, %s: bind calls for the pods of %s fail, and these pods stay pending (kubectl get pods --all-namespaces --field-selector %s,status.phase=Pending lists them)",
		new.Path, strings.Join(new.SchedulerNames, " and "), without, whose, selector)
	if seen.SchedulerNames != nil {
		if called := slices.DeleteFunc(seen.SchedulerNames(new.Path), func(name string) bool { return !excluded(name) }); len(called) > 0 {
			risk += ". These have called: " + strings.Join(called, ", ")
		}
	}
	return risk
}

// allocationRisks returns the risks of allocations for which no policy of the new configuration is
// responsible. When the next pods are bound depends on what kube-scheduler calls until it is
// restarted, which the other risks say.
func allocationRisks(old, new *Config, view *snapshot.View) []string {
	const consequence = "Outboard does not count them, and pods that are bound from then on have none: kubectl get ledgers lists them"
	if view != nil {
		orphaned := orphanedAllocations(old, new, view)
		var lost []string
		for _, resource := range slices.Sorted(maps.Keys(orphaned)) {
			lost = append(lost, fmt.Sprintf("%s (pods with allocations: %d)", resource, orphaned[resource]))
		}
		if len(lost) == 0 {
			return nil
		}
		return []string{fmt.Sprintf("no policy allocates %s any more, and there are allocations: %s", strings.Join(lost, " or "), consequence)}
	}
	allocated := map[string]bool{}
	allocations := map[string]bool{} // by type of policy
	for i := range new.Profiles {
		p := &new.Profiles[i]
		for _, r := range p.AllocatedResources() {
			allocated[string(r.Name)] = true
		}
		for _, q := range p.Policies {
			allocations[q.Type] = true
		}
	}
	var lost, risks []string
	for i := range old.Profiles {
		p := &old.Profiles[i]
		resources := p.AllocatedResources()
		for _, r := range resources {
			if !allocated[string(r.Name)] {
				allocated[string(r.Name)] = true // once
				lost = append(lost, string(r.Name))
			}
		}
		if name := p.Allocator(); len(resources) == 0 && name != "" && !slices.ContainsFunc(p.Policies, func(q Policy) bool { return q.Name == name && allocations[q.Type] }) {
			risks = append(risks, fmt.Sprintf("no profile has %s any more: if pods hold allocations of it, %s", name, consequence))
		}
	}
	if len(lost) > 0 {
		risks = append(risks, fmt.Sprintf("no policy allocates %s any more: if pods hold allocations, %s", strings.Join(lost, " or "), consequence))
	}
	return risks
}

// countingRisks returns the risks of allocations that a policy of both configurations counts in
// another way than before.
func countingRisks(old, new *Config, view *snapshot.View) (risks []string) {
	for i := range old.Profiles {
		p := &old.Profiles[i]
		j := slices.Index(paths(new), p.Path)
		if j < 0 {
			continue
		}
		others := new.Profiles[j].Policies
		for k := range p.Policies {
			q := &p.Policies[k]
			if l := slices.IndexFunc(others, func(r Policy) bool { return r.Name == q.Name && r.Type == q.Type }); l >= 0 {
				if risk := p.countingRisk(q, others[l].Config, view); risk != "" {
					risks = append(risks, risk)
				}
			}
		}
	}
	return risks
}

// countingRisk returns the risk of another configuration of the policy; "" if there is none.
func (p *Profile) countingRisk(q *Policy, new strictyaml.Value, view *snapshot.View) string {
	differ := slices.DeleteFunc(slices.Clone(q.Inputs().AllocationFields), func(name string) bool {
		return len(strictyaml.Diff("", q.Config.At(name), new.At(name))) == 0
	})
	if len(differ) == 0 {
		return ""
	}
	holders := ""
	if view != nil {
		n := p.holders(q, view)
		if n == 0 {
			return ""
		}
		holders = fmt.Sprintf(" (pods with allocations: %d)", n)
	}
	return fmt.Sprintf("profile %s: a change of %s of %s does not change the allocations that pods hold%s: until these pods end, units may be allocated twice, or stay unused",
		p.Path, strings.Join(differ, " and "), q.Name, holders)
}

// holders returns how many pods hold allocations for which the policy is responsible.
func (p *Profile) holders(q *Policy, view *snapshot.View) (sum int) {
	for n := range view.All() {
		for _, pod := range n.Pods {
			holds := false
			p.eachAllocation(q, n, pod, func(key snapshot.LedgerKey) { holds = holds || view.Ledger(key).Pod(pod.UID) != nil })
			if holds {
				sum++
			}
		}
	}
	return sum
}

// eachAllocation calls visit for each ledger in which the pod must have an allocation of the policy
// to be bound to the node.
func (p *Profile) eachAllocation(q *Policy, n *snapshot.Node, pod *corev1.Pod, visit func(snapshot.LedgerKey)) {
	reserver, ok := q.Policy.(policy.Reserver)
	if !ok || !p.Manages(pod) {
		return
	}
	keys, err := reserver.Ledgers(pod, n)
	if err != nil {
		return // it cannot be bound, and so holds no allocation of this policy
	}
	for _, key := range keys {
		visit(key)
	}
}

// EachAllocation calls visit for each ledger in which the pod must have an allocation to be bound
// to the node.
func (c *Config) EachAllocation(n *snapshot.Node, pod *corev1.Pod, visit func(snapshot.LedgerKey)) {
	for i := range c.Profiles {
		p := &c.Profiles[i]
		for j := range p.Policies {
			p.eachAllocation(&p.Policies[j], n, pod, visit)
		}
	}
}

// orphanedAllocations returns how many pods of the view hold allocations for which a policy of the
// old configuration is responsible, and none of the new one, by resource.
func orphanedAllocations(old, new *Config, view *snapshot.View) map[string]int {
	orphaned := map[string]int{}
	for n := range view.All() {
		for _, pod := range n.Pods {
			responsible := map[snapshot.LedgerKey]bool{}
			new.EachAllocation(n, pod, func(key snapshot.LedgerKey) { responsible[key] = true })
			old.EachAllocation(n, pod, func(key snapshot.LedgerKey) {
				if !responsible[key] && view.Ledger(key).Pod(pod.UID) != nil {
					responsible[key] = true // once
					orphaned[key.Resource]++
				}
			})
		}
	}
	return orphaned
}
