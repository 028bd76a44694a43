package doctor

import (
	"cmp"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/wiring"
)

// match is a profile of Outboard that an extender calls.
type match struct {
	profile *config.Profile
	verbs   []decision.Verb // the verbs that it calls where the profile serves them
}

// matches returns the profiles that are served below urlPrefix, or at a path that the extender
// calls.
func (e *extenderAt) matches() []match {
	if e.Config == nil {
		return nil
	}
	_, prefix := e.prefix()
	var all []match
	for i := range e.Config.Profiles {
		p := &e.Config.Profiles[i]
		m := match{profile: p}
		for _, route := range p.Routes() {
			if e.called(route.Verb) == route.Path {
				m.verbs = append(m.verbs, route.Verb)
			}
		}
		if len(m.verbs) > 0 || p.Verb == nil && strings.TrimRight(p.Path, "/") == prefix {
			all = append(all, m)
		}
	}
	return all
}

// findOutboard finds the extenders that call Outboard: by its address, by the names in its
// certificate, by its Service in the namespace, by the resources of a profile, by the path of a
// profile that no other extender calls, or by the address of such an extender.
func (c *checker) findOutboard(all []extenderAt) {
	taken := map[*config.Profile]bool{}
	for i := range all {
		if e := &all[i]; e.atServing() || e.inCertificate() || e.deployedHere() || e.sameResources() {
			e.outboard = true
			for _, m := range e.matches() {
				taken[m.profile] = true
			}
		}
	}
	for i := range all {
		for _, m := range all[i].matches() {
			if len(m.verbs) > 0 && !taken[m.profile] && !all[i].foreign() {
				all[i].outboard, taken[m.profile] = true, true
			}
		}
	}
	addresses := map[string]bool{}
	for i := range all {
		addresses[all[i].address()] = addresses[all[i].address()] || all[i].outboard
	}
	for i := range all {
		all[i].outboard = addresses[all[i].address()]
	}
}

// foreign reports whether the extender has nothing but the root path, which many programs serve, in
// common with Outboard's file: it calls another port, and for other resources.
func (e *extenderAt) foreign() bool {
	_, port, _ := net.SplitHostPort(e.Config.Serving.Address)
	resources, u := e.extender.ManagedResources, e.url()
	known := func(r schedulerv1.ExtenderManagedResource) bool {
		return slices.ContainsFunc(e.Config.Profiles, func(p config.Profile) bool { return lists(&p, r.Name) || allocates(&p, r.Name) })
	}
	return strings.Trim(u.Path, "/") == "" && port != portOf(u) && !strings.HasPrefix(u.Hostname(), "outboard") && len(resources) > 0 && !slices.ContainsFunc(resources, known)
}

func lists(p *config.Profile, resource string) bool {
	return slices.ContainsFunc(p.ManagedResources, func(r config.ManagedResource) bool { return r.Name == resource })
}

func allocates(p *config.Profile, resource string) bool {
	return slices.ContainsFunc(p.AllocatedResources(), func(r config.AllocatedResource) bool { return string(r.Name) == resource })
}

// sameResources reports whether the extender has the managed resources of a profile.
func (e *extenderAt) sameResources() bool {
	resources := e.extender.ManagedResources
	return len(resources) > 0 && slices.ContainsFunc(e.Config.Profiles, func(p config.Profile) bool {
		return len(p.ManagedResources) == len(resources) && !slices.ContainsFunc(resources, func(r schedulerv1.ExtenderManagedResource) bool { return !lists(&p, r.Name) })
	})
}

// profiles compares the extenders with Outboard's configuration.
func (c *checker) profiles(all []extenderAt) {
	callers := map[*config.Profile][]*extenderAt{}
	lost := 0 // extenders that call no profile, and are reported
	for i := range all {
		e := &all[i]
		if c.unknownValue(e.field("urlPrefix")) {
			continue
		}
		if !e.outboard {
			c.omit(e.path+" with Outboard's configuration", "it is not Outboard, as far as "+e.ConfigFile+" says")
			continue
		}
		e.port()
		matches := e.matches()
		if len(matches) == 0 {
			e.nothingServed()
			lost++
			continue
		}
		e.served(matches)
		e.notAllocated(matches)
		e.weightDiffers(matches)
		if !c.Config.ClientConnection.Enabled && e.extender.NodeCacheCapable {
			e.report(Error, "NamesWithoutCluster", "nodeCacheCapable", "kube-scheduler sends names, and clientConnection.enabled is false", "Outboard knows no nodes, so every call fails", "set nodeCacheCapable: false, or connect Outboard to the API server")
		}
		for _, m := range matches {
			callers[m.profile] = append(callers[m.profile], e)
		}
	}
	for i := range c.Config.Profiles {
		p := &c.Config.Profiles[i]
		switch {
		case len(callers[p]) > 0:
			c.callersOf(p, callers[p], all)
		case len(all) == 0:
		case lost > 0:
			lost--
		default:
			c.notCalled(p, len(callers) == 0)
		}
	}
	if t := c.Config.Serving.TLS; t != nil {
		for _, file := range []struct{ field, name string }{{"certFile", t.CertFile}, {"keyFile", t.KeyFile}, {"clientCAFile", t.ClientCAFile}} {
			if m := missing(file.name, c.ReadConfigFile); m != nil {
				c.elsewhere(Error, "FileNotFound", c.ConfigFile, "serving.tls."+file.field, m.Error(), "Outboard does not start", "add the key, or name a file that the container has")
			}
		}
	}
}

// notCalled reports a profile that no extender calls. none says that no extender calls any profile.
func (c *checker) notCalled(p *config.Profile, none bool) {
	severity, why, fix := Warning, "its policies are not used", "outboard setup scheduler prints the extender for it"
	if none {
		severity = Error
	}
	ours := len(p.SchedulerNames) == 0 || slices.ContainsFunc(c.doc.config.schedulerNames(), func(name string) bool { return slices.Contains(p.SchedulerNames, name) })
	// Outboard's plugin may reserve for the profile, and an extender whose urlPrefix is unknown may
	// call it.
	if allocates := p.Allocator(); allocates != "" && ours && !c.plugged && len(c.broken) == 0 {
		severity = Error
		why += ", and " + allocates + " allocates resources: kube-scheduler binds pods without the allocations and annotations by which they get their resources"
		fix += "; if the pods that request these resources select another scheduler, which has the extender, ignore this, or name that scheduler in schedulerNames of the profile"
	}
	c.at(severity, "ProfileNotCalled", extendersPath, "no extender calls the profile "+p.Path+" of "+c.ConfigFile, why, fix)
}

// served checks that Outboard serves the verbs that kube-scheduler calls.
func (e *extenderAt) served(matches []match) {
	for _, v := range decision.Verbs() {
		path := e.called(v)
		if path == "" || slices.ContainsFunc(matches, func(m match) bool { return slices.Contains(m.verbs, v) }) {
			continue
		}
		_, prefix := e.prefix()
		fix := "remove it: no profile serves it below " + cmp.Or(prefix, "/")
		for i := range e.Config.Profiles {
			for _, r := range e.Config.Profiles[i].Routes() {
				if name, below := strings.CutPrefix(r.Path, prefix+"/"); r.Verb == v && below {
					fix = "write " + v.Field() + ": " + name
				}
			}
		}
		e.report(Error, "VerbNotServed", v.Field(), fmt.Sprintf("Outboard does not serve %s at %s", v, path), "every such call fails with status 404", fix)
	}
}

// nothingServed reports an extender that calls Outboard below a path without profile.
func (e *extenderAt) nothingServed() {
	var prefixes []string
	for _, p := range e.Config.Profiles {
		u := e.url()
		if u.Path = p.Path; p.Verb != nil {
			u.Path = path.Dir(p.Path)
		}
		u.Path = strings.TrimRight(u.Path, "/")
		if !slices.Contains(prefixes, u.String()) {
			prefixes = append(prefixes, u.String())
		}
	}
	_, prefix := e.prefix()
	e.report(Error, "VerbNotServed", "urlPrefix", fmt.Sprintf("Outboard has no profile with path %q", cmp.Or(prefix, "/")), "every call fails with status 404",
		"write urlPrefix: "+strings.Join(prefixes, " or "))
}

// callsOf reports whether the extender calls the verb of the profile, or a path for it that no
// profile serves, which served corrects.
func (e *extenderAt) callsOf(p *config.Profile, v decision.Verb) bool {
	route := config.Route{Verb: v, Path: e.called(v)}
	if p.Verb != nil || route.Path == "" || slices.Contains(p.Routes(), route) {
		return route.Path != "" && slices.Contains(p.Routes(), route)
	}
	return !slices.ContainsFunc(e.Config.Profiles, func(other config.Profile) bool { return slices.Contains(other.Routes(), route) })
}

// callersOf checks the extenders that call a profile: together they call all verbs that it needs,
// each of them once. all are those of the file.
func (c *checker) callersOf(p *config.Profile, callers []*extenderAt, all []extenderAt) {
	first := map[decision.Verb]*extenderAt{}
	for _, e := range callers {
		twice := ""
		for _, v := range decision.Verbs() {
			switch {
			case !e.callsOf(p, v):
			case first[v] == nil:
				first[v] = e
			default:
				twice = fmt.Sprintf("%s also calls %s of the profile %s", first[v].path, v, p.Path)
			}
		}
		if twice != "" {
			e.report(Warning, "DuplicateExtender", "urlPrefix", twice, "kube-scheduler calls Outboard twice for one pod, and adds its scores twice", "use one extender for a profile")
		} else {
			e.managed(p)
		}
	}
	binder := slices.IndexFunc(all, func(e extenderAt) bool { return e.extender.BindVerb != "" })
	main := cmp.Or(first[decision.Bind], callers[0])
	switch {
	case p.Verb == nil:
		main.needed(p, first, binder)
	case p.OnlyVerb() == decision.Filter && binder < 0 && p.Allocator() != "":
		main.report(Error, "VerbNotCalled", "bindVerb", "no extender has bindVerb, and "+p.Allocator()+" of the profile "+p.Path+", which only filters, allocates resources",
			unallocated, "remove verb from the profile, and write what outboard setup scheduler prints for it")
	}
	if first[decision.Bind] != nil {
		main.accepts(p)
	}
}

const unallocated = "kube-scheduler binds pods without the allocations and annotations by which they get their resources"

// needed checks that kube-scheduler calls the verbs without which nodes are not rejected, or
// allocations go wrong. binder is the extender that binds; -1 is none.
func (e *extenderAt) needed(p *config.Profile, called map[decision.Verb]*extenderAt, binder int) {
	allocates, filters := p.Allocator(), p.Filters()
	because := allocates + " allocates resources"
	if called[decision.Filter] == nil {
		severity, message, why := Error, because, "kube-scheduler sends pods to nodes without room for them: bind fails, and the pods stay pending"
		if allocates == "" {
			message, why = strings.Join(filters, " and ")+" can reject nodes", "kube-scheduler places pods on nodes that are rejected"
		}
		if allocates == "" && len(filters) == 0 {
			severity, message, why = Warning, "the profile "+p.Path+" has a shortlist", "kube-scheduler scores and selects among all nodes that fit, and not among the best by the policies"
		}
		if severity == Error || p.Listed() > 0 {
			e.report(severity, "VerbNotCalled", "filterVerb", "filterVerb is not set, and "+message, why, "set filterVerb: filter")
		}
	}
	if allocates != "" && called[decision.Bind] == nil {
		fix := "set bindVerb: bind"
		if binder >= 0 {
			fix += fmt.Sprintf(", and run a second scheduler for extenders[%d], which binds, too: kube-scheduler accepts one", binder)
		}
		e.report(Error, "VerbNotCalled", "bindVerb", "bindVerb is not set, and "+because, unallocated, fix)
	}
	if allocates != "" && called[decision.Preempt] == nil {
		e.report(Warning, "VerbNotCalled", "preemptVerb", "preemptVerb is not set, and "+because, "kube-scheduler evicts pods that do not make the resource free", "set preemptVerb: preempt")
	}
}

// accepts checks that bind accepts the pods of kube-scheduler's profiles.
func (e *extenderAt) accepts(p *config.Profile) {
	own := e.doc.config.schedulerNames()
	refused := slices.DeleteFunc(slices.Clone(own), func(name string) bool { return slices.Contains(p.SchedulerNames, name) })
	if len(p.SchedulerNames) == 0 || len(refused) == 0 {
		return
	}
	names := strings.Join(refused, ", ")
	severity, fix := Error, "add "+names+" to schedulerNames of Outboard's profile, or remove them"
	if len(refused) < len(own) && len(e.extender.ManagedResources) > 0 { // it may be meant: outboard check calls the change to it a risk, and setup scheduler comments on it
		severity, fix = Warning, "have these pods select the scheduler "+strings.Join(p.SchedulerNames, " or ")+", or "+fix
	}
	e.report(severity, "SchedulerNotAccepted", "bindVerb", fmt.Sprintf("schedulerNames of the profile %s are %s, without %s", p.Path, strings.Join(p.SchedulerNames, ", "), names),
		"Outboard refuses to bind the pods of "+names+" for which kube-scheduler calls it, and they stay pending", fix)
}

// managed checks that both sides list the same resources. An extender of a profile for all pods may
// be limited to some pods, if these include all that request what a policy allocates.
func (e *extenderAt) managed(p *config.Profile) {
	if len(p.ManagedResources)+len(e.extender.ManagedResources) == 0 {
		return
	}
	theirs := map[string]bool{}
	var list, differ []string
	for _, r := range e.extender.ManagedResources {
		theirs[r.Name] = r.IgnoredByScheduler
		if len(p.ManagedResources) == 0 {
			list = append(list, item(r.Name, r.IgnoredByScheduler))
		} else if !lists(p, r.Name) {
			differ = append(differ, r.Name+" is not one of the profile's")
		}
	}
	for _, r := range p.ManagedResources {
		list = append(list, item(r.Name, r.IgnoredByScheduler))
		if ignored, there := theirs[r.Name]; !there {
			differ = append(differ, r.Name+" is missing")
		} else if ignored != r.IgnoredByScheduler {
			differ = append(differ, fmt.Sprintf("ignoredByScheduler of %s is %t", r.Name, ignored))
		}
	}
	for _, r := range p.AllocatedResources() {
		if _, there := theirs[string(r.Name)]; !there && len(p.ManagedResources) == 0 && len(theirs) > 0 {
			differ, list = append(differ, fmt.Sprintf("%s is missing, which %s allocates", r.Name, r.Policy)), append(list, item(string(r.Name), false))
		}
	}
	if len(differ) > 0 {
		e.report(Error, "ManagedResourcesDiffer", "managedResources", "the list does not go with profile "+p.Path+": "+strings.Join(differ, "; "),
			"kube-scheduler and Outboard disagree on which pods are Outboard's, or on which of them counts a resource: kube-scheduler binds pods without calling Outboard, or no node has room",
			"list the same in both files, as in managedResources: ["+strings.Join(list, ", ")+"]")
	}
	e.claimsNotCalled(p)
}

// notAllocated reports managed resources that nothing allocates although the extender is there to
// do so: it binds pods, and no policy of its profiles allocates anything, or kube-scheduler leaves
// the resource to it. Outboard itself warns of the latter of resources that a profile lists.
func (e *extenderAt) notAllocated(matches []match) {
	binds := slices.ContainsFunc(matches, func(m match) bool { return slices.Contains(m.verbs, decision.Bind) })
	var names, paths []string
	uncounted := false
	for _, m := range matches {
		paths = append(paths, m.profile.Path)
		binds = binds && m.profile.Allocator() == ""
	}
	for _, r := range e.extender.ManagedResources {
		other := func(m match) bool { // something else is, or is said to be, wrong with the resource
			return len(m.profile.ManagedResources) > 0 && (!lists(m.profile, r.Name) || r.IgnoredByScheduler)
		}
		allocated := func(m match) bool { return allocates(m.profile, r.Name) }
		if (binds || r.IgnoredByScheduler) && !slices.ContainsFunc(matches, other) && !slices.ContainsFunc(matches, allocated) {
			names, uncounted = append(names, r.Name), uncounted || r.IgnoredByScheduler
		}
	}
	if len(names) == 0 {
		return
	}
	why, fix := "Outboard binds pods that request it, without an allocation and annotations", "add a policy that allocates it, such as GPUMemory or Devices, or remove bindVerb, so that kube-scheduler binds these pods"
	if uncounted {
		why, fix = "kube-scheduler does not count it because of ignoredByScheduler, so nothing limits how much pods of a node request", "add a policy that allocates it, such as GPUMemory or Devices, or set ignoredByScheduler: false"
	}
	e.report(Warning, "ResourceNotAllocated", "managedResources", fmt.Sprintf("no policy of the profile %s allocates %s", strings.Join(paths, " and "), strings.Join(names, " and ")), why, fix)
}

// claimsNotCalled reports managed resources of an extender whose profile scores nodes for pods with
// ResourceClaims. Outboard itself warns of resources that the profile lists.
func (e *extenderAt) claimsNotCalled(p *config.Profile) {
	i := slices.IndexFunc(p.Policies, func(q config.Policy) bool { return q.Inputs().Devices })
	if i >= 0 && len(p.ManagedResources) == 0 {
		e.report(Warning, "ClaimsNotCalled", "managedResources", fmt.Sprintf("the profile %s has the policy %s, and kube-scheduler does not look for managedResources in ResourceClaims", p.Path, p.Policies[i].Name),
			"kube-scheduler does not call the extender for a pod that has claims and requests none of the resources, so that the policy scores nothing for it",
			"put the policy into a profile of its own without managedResources, with an extender of its own")
	}
}

// item is a managed resource as YAML.
func item(name string, ignored bool) string {
	return fmt.Sprintf("{name: %s, ignoredByScheduler: %t}", wiring.Quoted(name), ignored)
}
