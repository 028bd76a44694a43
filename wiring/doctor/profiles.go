package doctor

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/wiring"
)

// match is a profile of Outboard that an extender calls.
type match struct {
	profile *config.Profile
	verbs   []decision.Verb // the verbs that it serves below the extender's urlPrefix
}

// prefix is the path of urlPrefix.
func (e *extenderAt) prefix() (host, prefix string) {
	u, err := url.Parse(e.extender.URLPrefix)
	if err != nil {
		return "", ""
	}
	return u.Host, strings.TrimRight(u.Path, "/")
}

// matches returns the profiles that are served below urlPrefix.
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
			called := *wiring.VerbField(&e.extender.Extender, route.Verb)
			if dir := strings.TrimRight(path.Dir(route.Path), "/"); dir == prefix && (p.Verb == "" || called == path.Base(route.Path)) {
				m.verbs = append(m.verbs, route.Verb)
			}
		}
		if len(m.verbs) > 0 {
			all = append(all, m)
		}
	}
	return all
}

// profiles compares the extenders with Outboard's configuration.
func (c *checker) profiles() {
	called := map[string]bool{}
	hosts := map[string]bool{c.Config.Serving.Address: true} // where Outboard is
	for i := range c.doc.config.Extenders {
		e := extenderAt{checker: c, extender: &c.doc.config.Extenders[i], path: fmt.Sprintf("extenders[%d]", i)}
		host, _ := e.prefix()
		for _, m := range e.matches() {
			called[m.profile.Path], hosts[host] = true, true
		}
	}
	for i := range c.doc.config.Extenders {
		e := extenderAt{checker: c, extender: &c.doc.config.Extenders[i], path: fmt.Sprintf("extenders[%d]", i)}
		matches := e.matches()
		e.served(matches, hosts)
		for _, m := range matches {
			if m.profile.Verb == "" {
				e.profile(m.profile)
			}
		}
	}
	for _, p := range c.Config.Profiles {
		if !called[p.Path] && len(c.doc.config.Extenders) > 0 {
			c.at(Warning, "ProfileNotCalled", extendersPath, "no extender calls the profile "+p.Path+" of "+c.ConfigFile, "its policies are not used", "outboard scheduler-config prints the extender for it")
		}
	}
	for _, w := range c.Config.Warnings {
		c.elsewhere(Warning, "OutboardWarning", w.File, w.Path, strings.TrimPrefix(strings.Join([]string{w.Kind, w.Value, w.Rule}, ": "), ": "), "it is valid, and probably not meant", "")
		c.findings[len(c.findings)-1].Line = w.Line
	}
	if c.Config.Serving.HTTP2 {
		c.elsewhere(Warning, "HTTP2", c.ConfigFile, "serving.http2", "HTTP/2 is offered", "kube-scheduler then sends all calls over one connection, and so to one replica, for as long as that replica lives", "remove http2")
	}
}

// served checks that Outboard serves the verbs that kube-scheduler calls. hosts are those of Outboard.
func (e *extenderAt) served(matches []match, hosts map[string]bool) {
	host, prefix := e.prefix()
	if len(matches) == 0 && !hosts[host] && prefix != "" {
		e.report(Info, "ForeignExtender", "urlPrefix", "this extender calls no profile of "+e.ConfigFile,
			"kube-scheduler drops the text of responses with another status than 200, and pods get events without a reason", "outboard verify checks what any extender responds")
		return
	}
	for _, v := range decision.Verbs() {
		name := *wiring.VerbField(&e.extender.Extender, v)
		if name == "" {
			continue
		}
		var near []edit
		served := false
		for _, m := range matches {
			served = served || slices.Contains(m.verbs, v) && (m.profile.Verb != "" || name == string(v))
			if m.profile.Verb == "" {
				near = []edit{e.set(string(v)+"Verb", string(v))}
			}
		}
		if all := e.routes(v); !served && len(all) == 0 {
			e.report(Error, "VerbNotServed", string(v)+"Verb", fmt.Sprintf("no profile serves %s", v), "every such call fails with status 404", "remove it", remove(e.path+"."+string(v)+"Verb"))
		} else if !served {
			e.report(Error, "VerbNotServed", string(v)+"Verb", fmt.Sprintf("Outboard does not serve %s at %s/%s", v, prefix, name), "every such call fails with status 404", "call what a profile serves: "+strings.Join(all, ", "), near...)
		}
	}
}

// routes are the paths at which a verb is served.
func (e *extenderAt) routes(v decision.Verb) []string {
	var all []string
	for i := range e.Config.Profiles {
		for _, r := range e.Config.Profiles[i].Routes() {
			if r.Verb == v {
				all = append(all, r.Path)
			}
		}
	}
	return all
}

// profile checks that the extender calls all verbs that the profile needs, in a mode that Outboard supports.
func (e *extenderAt) profile(p *config.Profile) {
	x := e.extender
	allocates := ""
	for _, q := range p.Policies {
		if _, ok := q.Policy.(policy.Reserver); ok {
			allocates = q.Name
		}
	}
	if allocates != "" && x.BindVerb == "" {
		e.report(Error, "BindNotCalled", "bindVerb", "bindVerb is not set, and "+allocates+" allocates resources", "kube-scheduler binds pods without the claims and annotations by which they get their resources", "set bindVerb: bind", e.set("bindVerb", "bind"))
	}
	if allocates != "" && x.PreemptVerb == "" {
		e.report(Warning, "PreemptNotCalled", "preemptVerb", "preemptVerb is not set, and "+allocates+" allocates resources", "kube-scheduler evicts pods that do not make the resource free", "set preemptVerb: preempt", e.set("preemptVerb", "preempt"))
	}
	switch none := e.Config.ClientConnection.None; {
	case none && x.NodeCacheCapable:
		e.report(Error, "NamesWithoutCluster", "nodeCacheCapable", "kube-scheduler sends names, and clientConnection is None", "Outboard knows no nodes, so every call fails", "set nodeCacheCapable: false, or connect Outboard to the API server", e.set("nodeCacheCapable", "false"))
	case !none && !x.NodeCacheCapable:
		e.report(Warning, "WholeNodes", "nodeCacheCapable", "kube-scheduler sends whole nodes, and Outboard knows them", "a call has hundreds of times as many bytes", "set nodeCacheCapable: true", e.set("nodeCacheCapable", "true"))
	}
	e.managed(p)
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

// allocated checks an extender of a profile for all pods: it may be limited to some pods, if these include all
// that request the resources that a policy allocates.
func (e *extenderAt) allocated(p *config.Profile) {
	if len(e.extender.ManagedResources) == 0 {
		return
	}
	var list, differ []string
	for _, r := range e.extender.ManagedResources {
		list = append(list, item(r.Name, r.IgnoredByScheduler))
	}
	for _, q := range p.Policies {
		reader, ok := q.Policy.(policy.InputReader)
		if !ok {
			continue
		}
		for _, name := range reader.Inputs().Resources {
			if !slices.ContainsFunc(e.extender.ManagedResources, func(r schedulerv1.ExtenderManagedResource) bool { return r.Name == string(name) }) {
				differ, list = append(differ, fmt.Sprintf("%s is missing, which %s allocates", name, q.Name)), append(list, item(string(name), false))
			}
		}
	}
	if len(differ) > 0 {
		e.managedDiffer(p, differ, list)
	}
}

// item is a managed resource as YAML.
func item(name string, ignored bool) string {
	return fmt.Sprintf("- name: %s\n  ignoredByScheduler: %t\n", quoted(name), ignored)
}

func (e *extenderAt) managedDiffer(p *config.Profile, differ, list []string) {
	e.report(Error, "ManagedResourcesDiffer", "managedResources", "the list does not go with profile "+p.Path+": "+strings.Join(differ, "; "),
		"kube-scheduler and Outboard disagree on which pods are Outboard's, or on which of them counts a resource: kube-scheduler binds pods without calling Outboard, or no node has room",
		"list the same in both files", set(e.path+".managedResources", strings.Join(list, "")))
}
