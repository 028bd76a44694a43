package doctor

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/wiring"
)

// mostWeight is the sum of the weights of the plugins that are on by default. With a larger weight, the score of
// an extender can exceed the sum of their scores.
const mostWeight = 12

// leastPreemption is the minimum httpTimeout for preemption.
const leastPreemption = 2 * time.Second

// extenderAt is an extender of the file.
type extenderAt struct {
	*checker
	extender *extender
	path     string
}

// report adds a finding about a field of the extender, or about the extender if name is "".
func (e *extenderAt) report(severity Severity, code, name, message, why, fix string, edits ...edit) {
	e.at(severity, code, strings.TrimSuffix(e.path+"."+name, "."), message, why, fix, edits...)
}

// set corrects a field of the extender.
func (e *extenderAt) set(name, text string) edit { return set(e.path+"."+name, text) }

func (e *extenderAt) check() {
	x := e.extender
	if u, err := url.Parse(x.URLPrefix); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !validPort(u.Port()) {
		e.report(Error, "URLPrefix", "urlPrefix", fmt.Sprintf("urlPrefix is %q", x.URLPrefix), "every call fails", "write scheme, host and path, such as https://10.96.0.20:443/gpu")
	}
	if x.BindVerb != "" && x.Ignorable {
		e.report(Error, "IgnorableBinder", "ignorable", "the extender binds pods and is ignorable",
			"kube-scheduler 1.30 and later binds pods without the extender while it does not respond, and so without what it allocates to them",
			"set ignorable: false", e.set("ignorable", "false"))
	}
	if x.PrioritizeVerb != "" && x.Weight <= 0 {
		e.report(Error, "Weight", "weight", fmt.Sprintf("weight is %d", x.Weight), "with prioritizeVerb it must be positive: "+rejected, "set weight: 1", e.set("weight", "1"))
	}
	if x.Weight > mostWeight && !e.ownWeight() {
		e.report(Warning, "LargeWeight", "weight", fmt.Sprintf("weight is %d", x.Weight),
			fmt.Sprintf("kube-scheduler multiplies scores of 0..10 by the weight and by 10, and its own plugins, whose weights add up to %d, have scores of 0..100: the score of the extender can exceed those of all plugins together. The weight is no percentage", mostWeight),
			"write the weight that a plugin of the same importance would have, such as 1 to 5")
	}
	if !x.NodeCacheCapable && x.FilterVerb != "" && e.since(33) {
		e.report(Error, "EmptyNodeInfos", "nodeCacheCapable", "kube-scheduler 1.33 and later forgets the pods of nodes that it sent as whole nodes to a filter",
			"after the call its own plugins score every node as idle: NodeResourcesFit and NodeResourcesBalancedAllocation no longer spread or pack pods",
			"set nodeCacheCapable: true if the extender knows the nodes, as Outboard does unless clientConnection is None", e.namesOnly()...)
	}
	e.timeout()
	e.managedNames()
	e.strictForAllPods()
}

// validPort reports whether the port of a URL is one, or the default of the scheme.
func validPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && len(validation.IsValidPortNum(n)) == 0
}

// ownWeight reports whether the weight is the sum of the weights of Outboard's policies.
func (e *extenderAt) ownWeight() bool {
	for _, m := range e.matches() {
		var sum int64
		for _, p := range m.profile.Policies {
			sum += p.Weight
		}
		if e.extender.Weight <= sum {
			return true
		}
	}
	return false
}

// namesOnly returns the correction of nodeCacheCapable, if it is certain.
func (e *extenderAt) namesOnly() []edit {
	if e.Config == nil || e.Config.ClientConnection.None || len(e.matches()) == 0 {
		return nil
	}
	return []edit{e.set("nodeCacheCapable", "true")}
}

func (e *extenderAt) timeout() {
	x := e.extender
	want := wiring.StrictTimeout
	if x.Ignorable {
		want = wiring.SoftTimeout
	}
	if at := e.doc.root.At(e.path + ".httpTimeout"); !at.IsZero() && x.HTTPTimeout.Duration == 0 {
		return // reported already
	}
	fix := e.set("httpTimeout", want.String())
	switch d := x.HTTPTimeout.Duration; {
	case d == 0:
		e.report(Warning, "DefaultTimeout", "httpTimeout", "httpTimeout is 5s by default", "kube-scheduler places one pod at a time: while an extender does not respond, it places one pod every 5 seconds", "set httpTimeout: "+want.String(), fix)
	case d > 5*time.Second:
		e.report(Warning, "LongTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), fmt.Sprintf("kube-scheduler places one pod at a time: while an extender does not respond, it places one pod every %s", d), "set httpTimeout: "+want.String(), fix)
	case x.PreemptVerb != "" && d < leastPreemption:
		e.report(Warning, "ShortTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), "Outboard evaluates candidates for preemption for up to 1.5s, and kube-scheduler does not preempt without its response", "set httpTimeout: "+wiring.StrictTimeout.String(), e.set("httpTimeout", wiring.StrictTimeout.String()))
	}
}

func (e *extenderAt) managedNames() {
	for i, r := range e.extender.ManagedResources {
		at := fmt.Sprintf("managedResources[%d].name", i)
		if errs := fields.ExtendedResource(field.NewPath("name"), r.Name); len(errs) > 0 {
			e.report(Error, "ManagedResourceName", at, fmt.Sprintf("%q: %s", r.Name, errs[0].Detail), rejected, "write the qualified name of an extended resource, such as example.com/gpu")
		}
	}
}

// amongExtenders reports resources and verbs that only one extender can have.
func (c *checker) amongExtenders() {
	first, binders := map[string]string{}, []string{}
	corrected := false
	for i, x := range c.doc.config.Extenders {
		path := fmt.Sprintf("extenders[%d]", i)
		if x.BindVerb != "" {
			binders = append(binders, path)
		}
		for j, r := range x.ManagedResources {
			at := fmt.Sprintf("%s.managedResources[%d]", path, j)
			before, twice := first[r.Name]
			if !twice {
				first[r.Name] = at
				continue
			}
			var edits []edit
			if strings.HasPrefix(before, path+".") && !corrected { // one item per round, because removing it changes the indices of the others
				edits, corrected = []edit{remove(at)}, true
			}
			c.at(Error, "ManagedResourceTwice", at, fmt.Sprintf("%s is also %s, on line %d", r.Name, before, c.doc.line(before)),
				"a resource belongs to one extender: "+rejected, "remove one of the two", edits...)
		}
	}
	if len(binders) > 1 {
		c.at(Error, "SeveralBinders", binders[1]+".bindVerb", strings.Join(binders, " and ")+" have bindVerb",
			"kube-scheduler accepts one extender that binds: "+rejected, "put the policies that allocate resources in one profile, or run a scheduler for each")
	}
}
