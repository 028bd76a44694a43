package doctor

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policy/fields"
)

// mostWeight is the sum of the weights of the plugins that are on by default. With a larger weight,
// the score of an extender can exceed the sum of their scores.
const mostWeight = 12

// The minimum values of httpTimeout. Below leastCall, a new connection with TLS, the names of many
// nodes or a pause of a busy machine takes too long for any extender. A call of Outboard waits up
// to 500ms for its watch, and evaluates candidates for preemption for up to 1.5s.
const (
	leastCall       = 50 * time.Millisecond
	leastWait       = 600 * time.Millisecond
	leastPreemption = 2 * time.Second
)

// extenderAt is an extender of the file.
type extenderAt struct {
	*checker
	extender *extender
	path     string
	outboard bool // it calls Outboard, as far as one can know
}

// report adds a finding about a field of the extender, or about the extender if name is "".
func (e *extenderAt) report(severity Severity, code, name, message, why, fix string) {
	e.at(severity, code, e.field(name), message, why, fix)
}

// field returns the path of a field of the extender.
func (e *extenderAt) field(name string) string { return strings.TrimSuffix(e.path+"."+name, ".") }

// proxied is the path of the API server's proxy to a Service.
var proxied = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/services/[^/]+/proxy(/|$)`)

// urlPrefix checks urlPrefix, to which kube-scheduler appends a slash and the verb. Nothing that
// depends on a wrong one is checked.
func (e *extenderAt) urlPrefix() {
	text, t := e.extender.URLPrefix, e.extender.TLSConfig
	u, err := url.Parse(text)
	message, why, fix := fmt.Sprintf("urlPrefix is %q", text), "every call fails", "write scheme, host and path, such as urlPrefix: https://10.96.0.20:443/gpu"
	switch i := strings.IndexAny(text, "?#"); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !validPort(u.Port()):
	case i >= 0: // an extender may serve that; VerbNotServed reports calls of Outboard
		e.report(Warning, "URLPrefix", "urlPrefix", message, "kube-scheduler appends the verbs to it, and not to the path: all calls have the same path", "write urlPrefix: "+text[:i])
		return
	case proxied.MatchString(u.Path) && (t == nil || t.CertFile+t.CertData == ""):
		message, why = "urlPrefix is the API server's proxy to a Service", "every call fails with status 403, because kube-scheduler sends no token to an extender"
		fix = "write the address of the Service: its name in the cluster, or its ClusterIP for a kube-scheduler on the network of its host"
	default:
		return
	}
	e.report(Error, "URLPrefix", "urlPrefix", message, why, fix)
	e.broken = append(e.broken, e.field("urlPrefix"))
}

// slashes checks that no verb begins with a slash, since kube-scheduler writes one before it.
// VerbNotServed reports those of Outboard.
func (e *extenderAt) slashes() {
	for _, v := range decision.Verbs() {
		if name := *wiring.VerbField(&e.extender.Extender, v); strings.HasPrefix(name, "/") && !e.outboard {
			e.report(Warning, "URLPrefix", v.Field(), fmt.Sprintf("%s is %q", v.Field(), name),
				"kube-scheduler puts a slash before it, and calls "+e.urlOf(v)+": Outboard and many other servers respond with status 404, or with a redirect",
				"write "+v.Field()+": "+strings.TrimLeft(name, "/"))
		}
	}
}

func (e *extenderAt) check() {
	x := e.extender
	if x.FilterVerb+x.PrioritizeVerb+x.PreemptVerb+x.BindVerb == "" && !slices.ContainsFunc(x.ManagedResources, ignored) {
		e.report(Warning, "NoExtenders", "", "there is no filterVerb, prioritizeVerb, preemptVerb or bindVerb", "kube-scheduler never calls the extender", "add the verbs that it serves, and weight: 1 with prioritizeVerb, or remove it")
	}
	if x.BindVerb != "" && x.Ignorable {
		e.report(Error, "IgnorableBinder", "ignorable", "the extender binds pods and is ignorable",
			"kube-scheduler 1.30 and later binds pods without the extender while it does not respond, and so without what it allocates to them",
			"set ignorable: false")
	}
	if x.PrioritizeVerb != "" && x.Weight <= 0 {
		fix := "set weight: 1, or for Outboard the sum of the weights of the profile's policies"
		for _, m := range e.matches() {
			if sum := m.profile.ExtenderWeight(); e.outboard && sum > 0 && slices.Contains(m.verbs, decision.Prioritize) {
				fix = fmt.Sprintf("set weight: %d, the sum of the weights of the policies of the profile %s", sum, m.profile.Path)
			}
		}
		e.refuse("Weight", e.field("weight"), fmt.Sprintf("weight is %d", x.Weight), "with prioritizeVerb it must be positive", fix)
	}
	if x.Weight > mostWeight && !e.outboard {
		e.report(Warning, "Weight", "weight", fmt.Sprintf("weight is %d", x.Weight),
			fmt.Sprintf("kube-scheduler multiplies scores of 0..10 by the weight and by 10, and its own plugins, whose weights add up to %d, have scores of 0..100: the score of the extender can exceed those of all plugins together. The weight is no percentage", mostWeight),
			"write the weight that a plugin of the same importance would have, such as 1 to 5")
	}
	if !x.NodeCacheCapable && x.FilterVerb != "" && e.since(33) {
		severity := Warning // the extender may need whole nodes
		if e.outboard {
			severity = Error
		}
		e.report(severity, "EmptyNodeInfos", "nodeCacheCapable", "kube-scheduler 1.33 and later forgets the pods of nodes that it sent as whole nodes to a filter",
			"after the call its own plugins score every node as idle: NodeResourcesFit and NodeResourcesBalancedAllocation no longer spread or pack pods",
			"set nodeCacheCapable: true if the extender knows the nodes, as Outboard does unless clientConnection.enabled is false")
	}
	if r := x.ManagedResources; x.PreemptVerb != "" && len(r) > 0 && !slices.ContainsFunc(r, counted) && e.minor < 38 {
		e.report(Note, "VerbNotCalled", "preemptVerb", "kube-scheduler 1.37 and earlier does not call it for want of "+r[0].Name,
			"it evicts pods only on nodes that it rejected itself, and it does not count resources with ignoredByScheduler: true", "")
	}
	e.timeout()
	e.managedNames()
	e.strictForAllPods()
}

func ignored(r schedulerv1.ExtenderManagedResource) bool { return r.IgnoredByScheduler }
func counted(r schedulerv1.ExtenderManagedResource) bool { return !r.IgnoredByScheduler }

// validPort reports whether the port of a URL is one, or the default of the scheme.
func validPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && len(validation.IsValidPortNum(n)) == 0
}

// weightDiffers reports a weight with which the policies of a profile count otherwise than plugins
// of kube-scheduler with their weights.
func (e *extenderAt) weightDiffers(matches []match) {
	for _, m := range matches {
		got, want := e.extender.Weight, m.profile.ExtenderWeight()
		if !slices.Contains(m.verbs, decision.Prioritize) || want == 0 || got == want || got <= 0 {
			continue
		}
		e.weightIs(e.field("weight"), got, want, m.profile)
	}
}

// weightIs reports the weight of the extender or the plugin, which is not that of its policies.
func (c *checker) weightIs(path string, got, want int64, p *config.Profile) {
	c.at(Warning, "Weight", path, fmt.Sprintf("weight is %d, and the weights of the policies of the profile %s add up to %d", got, p.Path, want),
		fmt.Sprintf("a policy has %.2g times the influence of a plugin of kube-scheduler with the same weight", float64(got)/float64(want)),
		fmt.Sprintf("write weight: %d; ignore this if the influence is intended", want))
}

func (e *extenderAt) timeout() {
	x := e.extender
	fix := "set httpTimeout: " + wiring.StrictTimeout.String()
	if x.Ignorable && x.BindVerb+x.PreemptVerb == "" { // others are to be strict, or need the time
		fix = "set httpTimeout: " + wiring.SoftTimeout.String()
	}
	if !e.outboard {
		fix = "set httpTimeout to the longest time that the extender needs; Outboard needs 3s, or 1s if it is ignorable"
	}
	d := x.HTTPTimeout.Duration
	severity, message, why := Warning, fmt.Sprintf("httpTimeout is %s", d), "kube-scheduler places one pod at a time, and waits "+d.String()+" for each pod while an extender does not respond"
	switch {
	case d < 0:
		severity, why = Error, "kube-scheduler places one pod at a time, and waits without end while an extender does not respond"
	case d == 0:
		message, why = "httpTimeout is 5s by default", "kube-scheduler places one pod at a time: while an extender does not respond, it places one pod every 5 seconds"
	case d > 5*time.Second:
	case d < leastCall:
		severity, why = Error, fmt.Sprintf("a call can take %s whatever the extender does, and calls that take longer than httpTimeout fail", leastCall)
	case x.PreemptVerb != "" && d < leastPreemption && e.outboard:
		why = "Outboard evaluates candidates for preemption for up to 1.5s, and kube-scheduler does not preempt without its response"
	case d < leastWait && e.outboard:
		why = "a call waits up to 500ms until Outboard's watch shows the pods of earlier calls: such calls time out"
	default:
		return
	}
	e.report(severity, "Timeout", "httpTimeout", message, why, fix)
}

func (e *extenderAt) managedNames() {
	for i, r := range e.extender.ManagedResources {
		at := fmt.Sprintf("managedResources[%d].name", i)
		if errs := fields.ExtendedResource(field.NewPath("name"), r.Name); len(errs) > 0 {
			e.refuse("InvalidValue", e.field(at), fmt.Sprintf("%q: %s", r.Name, errs[0].Detail), "", "write the qualified name of an extended resource, such as example.com/gpu")
		}
	}
}

// amongExtenders reports resources and verbs that only one extender can have.
func (c *checker) amongExtenders(all []extenderAt) {
	first := map[string]string{}
	for i, x := range c.doc.config.Extenders {
		path := all[i].path
		for j, r := range x.ManagedResources {
			at := fmt.Sprintf("%s.managedResources[%d]", path, j)
			before, twice := first[r.Name]
			if !twice {
				first[r.Name] = at
				continue
			}
			c.refuse("InvalidValue", at+".name", fmt.Sprintf("%s is also %s, on line %d", r.Name, before, c.doc.line(before)),
				"a resource belongs to one extender", "remove one of the two")
		}
	}
	var binders []string
	for _, e := range all {
		if e.extender.BindVerb != "" {
			binders = append(binders, e.path)
		}
	}
	if len(binders) > 1 {
		c.refuse("InvalidValue", binders[1]+".bindVerb", strings.Join(binders, " and ")+" have bindVerb", "kube-scheduler accepts one extender that binds",
			"remove bindVerb where the profile allocates nothing; or put the policies that allocate resources in one profile, or run a scheduler for each")
	}
}
