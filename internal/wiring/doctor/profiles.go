package doctor

import (
	"cmp"
	"fmt"
	"maps"
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
	resources, host, prefix := e.extender.ManagedResources, e.url().Hostname(), strings.TrimRight(e.url().Path, "/")
	known := func(r schedulerv1.ExtenderManagedResource) bool {
		return slices.ContainsFunc(e.Config.Profiles, func(p config.Profile) bool { return lists(&p, r.Name) || allocates(&p, r.Name) })
	}
	return prefix == "" && port != portOf(e.url()) && !strings.HasPrefix(host, "outboard") && len(resources) > 0 && !slices.ContainsFunc(resources, known)
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
	lost := 0                   // extenders that call no profile, and are reported
	var unreachable *extenderAt // the first one
	for i := range all {
		e := &all[i]
		matches := e.matches()
		if c.unknownValue(e.field("urlPrefix")) {
			continue
		}
		if !e.outboard {
			e.report(Note, "ForeignExtender", "urlPrefix", "this extender is not Outboard, as far as "+e.ConfigFile+" says",
				"kube-scheduler drops the text of responses with another status than 200, and pods get events without a reason", "")
			continue
		}
		e.port()
		if e.unreachable() != "" && unreachable == nil {
			unreachable = e
		}
		if len(matches) == 0 {
			matches = e.nothingServed()
		}
		if len(matches) == 0 {
			lost++
		} else {
			e.served(matches)
			e.notAllocated(matches)
			e.claimsNotCalled(matches)
			e.weightDiffers(matches)
			e.mode()
		}
		for _, m := range matches {
			callers[m.profile] = append(callers[m.profile], e)
		}
	}
	for i := range c.Config.Profiles {
		p := &c.Config.Profiles[i]
		switch {
		case len(callers[p]) > 0:
			c.callersOf(p, callers[p])
			if p.OnlyVerb() == decision.Filter && !slices.ContainsFunc(all, func(e extenderAt) bool { return e.extender.BindVerb != "" }) {
				callers[p][0].filtersOnly(p)
			}
		case len(all) == 0:
		case lost > 0:
			lost--
		default:
			c.notCalled(p, len(callers) == 0)
		}
	}
	if unreachable != nil {
		severity, why, fix := Error, "only callers on the same machine or in the same pod reach a loopback address: every call fails", "set serving.address: 0.0.0.0:"
		t, port := c.Config.Serving.TLS, podPort
		if t != nil {
			_, port, _ = net.SplitHostPort(c.Config.Serving.Address)
		}
		if fix += port; t == nil || t.ClientCAFile == "" {
			fix += ", with serving.tls.clientCAFile"
		}
		if unreachable.chartServes() {
			severity, why, fix = Warning, why+", unless the Helm chart installs the file: the chart sets serving.address", "install the file with the chart, or "+fix
		} else if !c.configDeployed {
			fix += "; if the Helm chart installs the file, ignore this: the chart sets serving.address"
		}
		c.elsewhere(severity, "LoopbackAddress", c.ConfigFile, "serving.address", fmt.Sprintf("Outboard listens at %s, and %s", c.Config.Serving.Address, unreachable.unreachable()), why, fix)
	}
	if t := c.Config.Serving.TLS; t != nil {
		for _, file := range []struct{ field, name string }{{"certFile", t.CertFile}, {"keyFile", t.KeyFile}, {"clientCAFile", t.ClientCAFile}} {
			if m := missing(file.name, c.ReadConfigFile); m != nil {
				c.elsewhere(Error, "FileNotMounted", c.ConfigFile, "serving.tls."+file.field, file.name+" does not exist: "+m.Error(), "Outboard does not start", "add the key, or name a file that the container has")
			}
		}
	}
	c.claimsNotAllocated()
	for _, w := range c.Config.Warnings {
		c.elsewhere(Warning, "OutboardWarning", w.File, w.Path, strings.TrimPrefix(strings.Join([]string{w.Kind, w.Value, w.Rule}, ": "), ": "), "it is valid, and probably not meant", "")
		c.findings[len(c.findings)-1].Line = w.Line
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
		field := v.Field()
		message, fix := fmt.Sprintf("Outboard does not serve %s at %s", v, path), ""
		below, others := e.routes(v)
		switch {
		case len(below)+len(others) == 0:
			message, fix = fmt.Sprintf("no profile serves %s", v), "remove it"
		case slices.ContainsFunc(matches, func(m match) bool { return m.profile.Verb == nil }):
			fix = "write " + field + ": " + string(v)
		case len(below) > 0:
			fix = "write " + field + ": " + strings.Join(below, " or ")
		default:
			fix = "remove it; an extender with another urlPrefix can call " + strings.Join(others, " or ")
		}
		e.report(Error, "VerbNotServed", field, message, "every such call fails with status 404", fix)
	}
}

// nothingServed reports an extender that calls Outboard below a path without profile. If it has one
// right correction, the following checks are about the corrected urlPrefix, and nothingServed
// returns the profiles that are served below that one.
func (e *extenderAt) nothingServed() []match {
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
	if len(e.Config.Profiles) != 1 || e.Config.Profiles[0].Verb != nil {
		return nil
	}
	e.extender.URLPrefix = prefixes[0]
	return e.matches()
}

// routes returns where a verb is served: the names for the verb's field below urlPrefix, and the
// paths that are not below urlPrefix.
func (e *extenderAt) routes(v decision.Verb) (below, others []string) {
	_, prefix := e.prefix()
	for i := range e.Config.Profiles {
		for _, r := range e.Config.Profiles[i].Routes() {
			if name, ok := strings.CutPrefix(r.Path, prefix+"/"); r.Verb != v {
				continue
			} else if ok {
				below = append(below, name)
			} else {
				others = append(others, r.Path)
			}
		}
	}
	return below, others
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
// each of them once.
func (c *checker) callersOf(p *config.Profile, callers []*extenderAt) {
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
	main := callers[0]
	if first[decision.Bind] != nil {
		main = first[decision.Bind]
	}
	if p.Verb == nil {
		main.needed(p, first)
	}
	if first[decision.Bind] != nil {
		main.accepts(p)
	}
}

// needed checks that kube-scheduler calls the verbs without which nodes are not rejected, or
// allocations go wrong.
func (e *extenderAt) needed(p *config.Profile, called map[decision.Verb]*extenderAt) {
	allocates := p.Allocator()
	if called[decision.Filter] == nil {
		e.filterNotCalled(p)
	}
	if allocates == "" {
		return
	}
	if called[decision.Bind] == nil {
		fix := "set bindVerb: bind"
		if i := slices.IndexFunc(e.doc.config.Extenders, func(x extender) bool { return x.BindVerb != "" }); i >= 0 {
			fix += fmt.Sprintf(", and run a second scheduler for extenders[%d], which binds, too: kube-scheduler accepts one", i)
		}
		e.report(Error, "BindNotCalled", "bindVerb", "bindVerb is not set, and "+allocates+" allocates resources", "kube-scheduler binds pods without the allocations and annotations by which they get their resources", fix)
	}
	if called[decision.Preempt] == nil {
		e.report(Warning, "PreemptNotCalled", "preemptVerb", "preemptVerb is not set, and "+allocates+" allocates resources", "kube-scheduler evicts pods that do not make the resource free", "set preemptVerb: preempt")
	}
}

// filterNotCalled reports that kube-scheduler does not call filter, if that would have an effect.
func (e *extenderAt) filterNotCalled(p *config.Profile) {
	severity, message, why := Error, "", ""
	allocates, filters := p.Allocator(), p.Filters()
	switch {
	case allocates != "":
		message, why = allocates+" allocates resources", "kube-scheduler sends pods to nodes without room for them: bind fails, and the pods stay pending"
	case len(filters) > 0:
		message, why = strings.Join(filters, " and ")+" can reject nodes", "kube-scheduler places pods on nodes that are rejected"
	case p.Shortlist != nil:
		severity = Warning
		message, why = "the profile "+p.Path+" has a shortlist", "kube-scheduler scores and selects among all nodes that fit, and not among the best by the policies"
	default:
		return
	}
	e.report(severity, "FilterNotCalled", "filterVerb", "filterVerb is not set, and "+message, why, "set filterVerb: filter")
}

// filtersOnly checks that a profile without bind allocates nothing. No extender binds.
func (e *extenderAt) filtersOnly(p *config.Profile) {
	if allocates := p.Allocator(); allocates != "" {
		e.report(Error, "BindNotCalled", "bindVerb", "no extender has bindVerb, and "+allocates+" of the profile "+p.Path+", which only filters, allocates resources",
			"kube-scheduler binds pods without the allocations and annotations by which they get their resources", "remove verb from the profile, and write what outboard setup scheduler prints for it")
	}
}

// mode checks what kube-scheduler sends of nodes.
func (e *extenderAt) mode() {
	switch none := !e.Config.ClientConnection.Enabled; {
	case none && e.extender.NodeCacheCapable:
		e.report(Error, "NamesWithoutCluster", "nodeCacheCapable", "kube-scheduler sends names, and clientConnection.enabled is false", "Outboard knows no nodes, so every call fails", "set nodeCacheCapable: false, or connect Outboard to the API server")
	case !none && !e.extender.NodeCacheCapable:
		e.report(Warning, "WholeNodes", "nodeCacheCapable", "kube-scheduler sends whole nodes, and Outboard knows them", "a call has hundreds of times as many bytes", "set nodeCacheCapable: true")
	}
}

// accepts checks that bind accepts the pods of kube-scheduler's profiles.
func (e *extenderAt) accepts(p *config.Profile) {
	if len(p.SchedulerNames) == 0 {
		return
	}
	refused := slices.DeleteFunc(e.doc.config.schedulerNames(), func(name string) bool { return slices.Contains(p.SchedulerNames, name) })
	message := fmt.Sprintf("schedulerNames of the profile %s are %s, without %s", p.Path, strings.Join(p.SchedulerNames, ", "), strings.Join(refused, ", "))
	switch {
	case len(refused) == 0:
	case len(refused) == len(e.doc.config.schedulerNames()):
		e.report(Error, "SchedulerNotAccepted", "bindVerb", message, "Outboard refuses to bind every pod of this kube-scheduler", "set profiles[].schedulerNames of Outboard to the name of this kube-scheduler's profile, or remove them")
	case len(e.extender.ManagedResources) == 0 && !e.extender.Ignorable: // IgnorableBinder reports the others
		names := strings.Join(refused, ", ")
		e.report(Error, "SchedulerNotAccepted", "bindVerb", message, "the extender is called for every pod, and Outboard refuses to bind those of "+names+": all of them stay pending",
			"list managedResources here and in the profile, or remove "+names+" from the profiles of this kube-scheduler, or add it to schedulerNames of Outboard's profile")
	default: // a warning, although it may be meant: outboard check calls the change to it a risk, and setup scheduler comments on it
		names := strings.Join(refused, " and ")
		e.report(Warning, "SchedulerNotAccepted", "bindVerb", message, "Outboard refuses to bind the pods of "+names+" for which kube-scheduler calls it, and they stay pending",
			"have these pods select the scheduler "+strings.Join(p.SchedulerNames, " or ")+", or add "+names+" to schedulerNames of Outboard's profile")
	}
}

// managed checks that both sides list the same resources.
func (e *extenderAt) managed(p *config.Profile) {
	if len(p.ManagedResources) == 0 {
		e.allocated(p)
		return
	}
	theirs := map[string]bool{}
	for _, r := range e.extender.ManagedResources {
		theirs[r.Name] = r.IgnoredByScheduler
	}
	var list, differ []string
	for _, r := range p.ManagedResources {
		list = append(list, item(r.Name, r.IgnoredByScheduler))
		switch ignored, there := theirs[r.Name]; {
		case !there:
			differ = append(differ, r.Name+" is missing")
		case ignored != r.IgnoredByScheduler:
			differ = append(differ, fmt.Sprintf("ignoredByScheduler of %s is %t", r.Name, ignored))
		}
		delete(theirs, r.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		differ = append(differ, name+" is not one of the profile's")
	}
	if len(differ) > 0 {
		e.managedDiffer(p, differ, list)
	}
}

// allocated checks an extender of a profile for all pods: it may be limited to some pods, if these
// include all that request the resources that a policy allocates.
func (e *extenderAt) allocated(p *config.Profile) {
	if len(e.extender.ManagedResources) == 0 {
		return
	}
	var list, differ []string
	for _, r := range e.extender.ManagedResources {
		list = append(list, item(r.Name, r.IgnoredByScheduler))
	}
	for _, r := range p.AllocatedResources() {
		if !slices.ContainsFunc(e.extender.ManagedResources, func(m schedulerv1.ExtenderManagedResource) bool { return m.Name == string(r.Name) }) {
			differ, list = append(differ, fmt.Sprintf("%s is missing, which %s allocates", r.Name, r.Policy)), append(list, item(string(r.Name), false))
		}
	}
	if len(differ) > 0 {
		e.managedDiffer(p, differ, list)
	}
}

// notAllocated reports managed resources that nothing allocates although the extender is there to
// do so: it binds pods, and no policy of its profiles allocates anything, or kube-scheduler leaves
// the resource to it. OutboardWarning reports the latter of resources that a profile lists itself.
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
// ResourceClaims: kube-scheduler compares only the requests and limits of containers with the list.
// OutboardWarning reports resources that the profile lists itself.
func (e *extenderAt) claimsNotCalled(matches []match) {
	if len(e.extender.ManagedResources) == 0 || !e.since(claimsSince) {
		return
	}
	for _, m := range matches {
		for _, q := range m.profile.Policies {
			if q.Inputs().Devices && len(m.profile.ManagedResources) == 0 {
				e.report(Warning, "ClaimsNotCalled", "managedResources", fmt.Sprintf("the profile %s has the policy %s, and kube-scheduler does not look for managedResources in ResourceClaims", m.profile.Path, q.Name),
					"kube-scheduler does not call the extender for a pod that has claims and requests none of the resources, so that the policy scores nothing for it",
					"put the policy into a profile of its own without managedResources, with an extender of its own")
				return
			}
		}
	}
}

// claimsSince is the minor version of Kubernetes that first serves ResourceClaims in the version of
// the API that policies read, and that first allocates devices without a feature gate.
const claimsSince = 34

// claimsNotAllocated reports policies for pods with ResourceClaims with a kube-scheduler that
// allocates no devices.
func (c *checker) claimsNotAllocated() {
	if c.since(claimsSince) {
		return
	}
	for i, p := range c.Config.Profiles {
		if j := slices.IndexFunc(p.Policies, func(q config.Policy) bool { return q.Inputs().Devices }); j >= 0 {
			c.elsewhere(Warning, "ClaimsNotAllocated", c.ConfigFile, fmt.Sprintf("profiles[%d].policies[%d]", i, j), fmt.Sprintf("the policy %s is for pods with ResourceClaims, and kube-scheduler is 1.%d", p.Policies[j].Name, c.minor),
				fmt.Sprintf("kube-scheduler allocates devices since 1.%d, without a feature gate; the API server serves resource.k8s.io/v1 since 1.%[1]d, and Outboard does not become ready without it", claimsSince),
				fmt.Sprintf("remove the policy, or use Kubernetes 1.%d or later", claimsSince))
		}
	}
}

// item is a managed resource as YAML.
func item(name string, ignored bool) string {
	return fmt.Sprintf("{name: %s, ignoredByScheduler: %t}", wiring.Quoted(name), ignored)
}

func (e *extenderAt) managedDiffer(p *config.Profile, differ, list []string) {
	e.report(Error, "ManagedResourcesDiffer", "managedResources", "the list does not go with profile "+p.Path+": "+strings.Join(differ, "; "),
		"kube-scheduler and Outboard disagree on which pods are Outboard's, or on which of them counts a resource: kube-scheduler binds pods without calling Outboard, or no node has room",
		"list the same in both files, as in managedResources: ["+strings.Join(list, ", ")+"]")
}
