package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Change is a field that differs between two configurations.
type Change = strictyaml.Change

// Comparison has the differences between two valid configurations.
type Comparison struct {
	// Changes are the fields that differ. Profiles are compared by path, and policies and signals
	// by name. Indexes are those of the new configuration.
	Changes []Change `json:"changes,omitempty"`
	// Risks has a line for each change that makes calls fail, or lets kube-scheduler bind pods
	// without the new configuration, because kube-scheduler reads its own only when it starts; and
	// one for the changes that have no effect until Outboard is restarted.
	Risks []string `json:"risks,omitempty"`
	// Restart is true if a change has no effect until Outboard is restarted.
	Restart bool `json:"-"`
}

// Observed is what a running process knows. The zero value is that nothing is known.
type Observed struct {
	// View has the pods and their allocations; nil if they are not known.
	View *snapshot.View
	// Plugin says that the process is kube-scheduler, with the plugin: no extender calls the
	// profiles.
	Plugin bool
}

// Compare compares the configuration in use with a new one.
func Compare(old, new *Config, seen Observed) Comparison {
	// (The contents of certificate files are not configuration; the server reloads them itself.)
	c := Comparison{Changes: strictyaml.Diff("", old.encoded(), new.encoded())}
	if !seen.Plugin {
		c.Risks = callRisks(old, new)
	}
	c.Risks = slices.Concat(c.Risks, countingRisks(old, new, seen.View), allocationRisks(old, new, seen.View))
	var waiting []string
	for _, change := range c.Changes {
		if withinAny(change.Path, ReadAtStart()) {
			waiting = append(waiting, change.Path)
		}
	}
	if c.Restart = len(waiting) > 0; c.Restart {
		risk := strings.Join(waiting, ", ") + ": no effect until a restart"
		if !seen.Plugin {
			risk += ", in a cluster by kubectl --namespace outboard-system rollout restart deployment/outboard"
		}
		c.Risks = append(c.Risks, risk)
	}
	return c
}

// encoded returns the whole configuration.
func (c *Config) encoded() strictyaml.Value {
	d := c.document()
	if d.Signals == nil {
		d.Signals = []strictyaml.Value{} // so that the first one is a change of its own
	}
	value, err := strictyaml.Encode(d)
	if err != nil {
		panic(err) // it was decoded, or encoded already
	}
	return value
}

// ReadAtStart returns the names of the fields that are read only when the process starts: those of
// Process.
func ReadAtStart() []string { return strictyaml.Fields(&Process{}) }

func paths(c *Config) (paths []string) {
	for i := range c.Profiles {
		paths = append(paths, c.Profiles[i].Path)
	}
	return paths
}

// callRisks returns the risks until kube-scheduler has the extenders of the new configuration.
func callRisks(old, new *Config) (risks []string) {
	add := func(p *Profile, format string, args ...any) {
		risks = append(risks, fmt.Sprintf("profile %s: "+format, append([]any{p.Path}, args...)...)+" until kube-scheduler is restarted with what outboard setup scheduler prints")
	}
	served := func(c *Config) (urls []string) {
		for i := range c.Profiles {
			for _, r := range c.Profiles[i].Routes() {
				urls = append(urls, r.Path)
			}
		}
		return urls
	}
	before, after := served(old), served(new)
	for i := range new.Profiles {
		p := &new.Profiles[i]
		allocator, filters := p.Allocator(), p.Filters()
		former := &Profile{}
		if j := slices.Index(paths(old), p.Path); j >= 0 {
			former = &old.Profiles[j]
		} else if slices.ContainsFunc(p.Routes(), func(r Route) bool { return slices.Contains(before, r.Path) }) {
			continue // a verb of another profile
		}
		if risk := excludedRisk(former, p); risk != "" && former.Path != "" {
			risks = append(risks, risk)
		}
		switch {
		case former.Path == "" && allocator == "":
			add(p, "kube-scheduler does not call it")
		case former.Path == "":
			add(p, "kube-scheduler does not call it, so that pods get no allocations of %s,", allocator)
		case allocator != "" && former.Allocator() == "":
			add(p, "kube-scheduler binds pods without allocations of %s", allocator)
		case former.Verb == nil && p.Verb == nil && len(filters) > 0 && !former.NeedsFilter():
			add(p, "kube-scheduler places pods on nodes that %s rejects", strings.Join(filters, " or "))
		case !maps.Equal(former.managed(), p.managed()):
			add(p, "kube-scheduler calls for the pods of the former managedResources, and counts resources as these say,")
		}
	}
	for i := range old.Profiles {
		p := &old.Profiles[i]
		var gone []string
		for _, r := range p.Routes() {
			if !slices.Contains(after, r.Path) {
				gone = append(gone, r.Path)
			}
		}
		if len(gone) > 0 {
			add(p, "nothing serves %s any more: calls fail with status 404, and its pods (%s) stay pending, or are placed without it if the extender has ignorable: true or only prioritizeVerb,", strings.Join(gone, ", "), p.Pods())
		}
	}
	return risks
}

// managed returns the managedResources, with their ignoredByScheduler.
func (p *Profile) managed() map[string]bool {
	all := map[string]bool{}
	for _, r := range p.ManagedResources {
		all[r.Name] = r.IgnoredByScheduler
	}
	return all
}

// excludedRisk is the risk for the pods that bind accepted before, and does not any more; "" if
// there are none.
func excludedRisk(old, new *Profile) string {
	excluded := func(name string) bool { return !slices.Contains(new.SchedulerNames, name) }
	if len(new.SchedulerNames) == 0 || len(old.SchedulerNames) > 0 && !slices.ContainsFunc(old.SchedulerNames, excluded) {
		return ""
	}
	return fmt.Sprintf("profile %s: bind fails for pods whose scheduler is not %s, and these pods stay pending", new.Path, strings.Join(new.SchedulerNames, " or "))
}

// allocationRisks returns the risk of allocations for which no policy of the new configuration is
// responsible.
func allocationRisks(old, new *Config, view *snapshot.View) []string {
	var lost []string
	if view != nil {
		for resource, pods := range orphanedAllocations(old, new, view) {
			lost = append(lost, fmt.Sprintf("%s (pods with allocations: %d)", resource, pods))
		}
	} else {
		remaining := new.allocates()
		for what := range old.allocates() {
			if !remaining[what] {
				lost = append(lost, what)
			}
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	return []string{fmt.Sprintf("no policy allocates %s any more: Outboard does not count the allocations that pods hold, and pods that are bound from then on have none: kubectl get ledgers lists them", strings.Join(lost, " or "))}
}

// allocates returns the resources that policies allocate, and for a policy that allocates without a
// resource, its type.
func (c *Config) allocates() map[string]bool {
	all := map[string]bool{}
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			q := &c.Profiles[i].Policies[j]
			for _, resource := range q.Inputs().Resources {
				all[string(resource)] = true
			}
			if q.allocatesUnnamed() {
				all[q.Type] = true
			}
		}
	}
	return all
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

// UnreadRequest says what the pod requests in a way that no policy reads; "" if there is nothing.
func (c *Config) UnreadRequest(pod *corev1.Pod) (text string) {
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			if p, ok := c.Profiles[i].Policies[j].Policy.(policy.UnreadRequester); ok {
				if text = p.UnreadRequest(pod); text == "" {
					return "" // this one may read it
				}
			}
		}
	}
	return text
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
