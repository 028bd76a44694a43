package doctor

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

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
var proxied = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/services/(?:(https?):)?([^/:]+)(?::([^/:]*))?/proxy(/.*)?$`)

// serviceProxy reports a call through the API server's proxy, for which kube-scheduler has no
// credentials unless tlsConfig has a client certificate. The following checks are about a call of
// the Service itself.
func (e *extenderAt) serviceProxy() {
	m, t := proxied.FindStringSubmatch(e.url().Path), e.extender.TLSConfig
	if m == nil || t != nil && (t.CertFile != "" || t.CertData != "") {
		return
	}
	corrected := url.URL{Scheme: cmp.Or(m[2], "http"), Host: m[3] + "." + m[1] + ".svc", Path: m[5]}
	if validPort(m[4]) && m[4] != "" { // others are names
		corrected.Host += ":" + m[4]
	}
	e.report(Error, "ServiceProxy", "urlPrefix", "urlPrefix is the API server's proxy to a Service", "every call fails with status 403, because kube-scheduler sends no token to an extender",
		"write urlPrefix: "+corrected.String()+", or the ClusterIP of the Service for a kube-scheduler on the network of its host")
	e.extender.URLPrefix = corrected.String()
}

// urlPrefix checks urlPrefix. If it has one right correction, the following checks are about the
// corrected one, so that a correction reveals no new errors; otherwise nothing that depends on it
// is checked.
func (e *extenderAt) urlPrefix() {
	text := e.extender.URLPrefix
	if validPrefix(text) {
		e.serviceProxy()
		return
	}
	corrected := "https://" + text
	certain := e.extender.EnableHTTPS && !strings.Contains(text, "://") && validPrefix(corrected)
	fix := "write scheme, host and path, such as urlPrefix: https://10.96.0.20:443/gpu"
	if certain {
		fix = "write urlPrefix: " + corrected
	}
	e.report(Error, "URLPrefix", "urlPrefix", fmt.Sprintf("urlPrefix is %q", text), "every call fails", fix)
	if certain {
		e.extender.URLPrefix = corrected
	} else {
		e.broken = append(e.broken, e.field("urlPrefix"))
	}
}

// validPrefix reports whether kube-scheduler can call a urlPrefix.
func validPrefix(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && validPort(u.Port())
}

// appended checks that a verb becomes the end of the path when kube-scheduler appends a slash and
// the verb to urlPrefix.
func (e *extenderAt) appended() {
	if e.unknownValue(e.field("urlPrefix")) {
		return
	}
	text := e.extender.URLPrefix
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		severity, why := Warning, "kube-scheduler appends the verbs to it, so that all calls have the same path: an extender that finds the verb in the path serves none"
		if e.outboard {
			severity, why = Error, "kube-scheduler appends the verbs to it, and not to the path: every call fails with status 404"
		}
		e.report(severity, "URLPrefix", "urlPrefix", fmt.Sprintf("urlPrefix ends with %q after the path", text[i:]), why, "write scheme, host and path only: urlPrefix: "+text[:i])
		e.extender.URLPrefix = text[:i] // the other findings are about that
	}
	for _, v := range decision.Verbs() {
		name, field := *wiring.VerbField(&e.extender.Extender, v), v.Field()
		if corrected := strings.TrimLeft(name, "/"); corrected != name && corrected != "" && !e.outboard {
			e.report(Warning, "DoubleSlash", field, fmt.Sprintf("%s is %q", field, name),
				"kube-scheduler puts a slash before it, and calls "+e.urlOf(v)+": Outboard and many other servers respond with status 404, or with a redirect",
				"write "+field+": "+corrected)
		}
	}
}

// sameCalls reports extenders, other than Outboard, by which kube-scheduler makes the same call
// twice for a pod.
func (c *checker) sameCalls(all []extenderAt) {
	for i := range all {
		for j := range i {
			e, before := &all[i], &all[j]
			if e.outboard || c.unknownValue(e.field("urlPrefix")) || c.unknownValue(before.field("urlPrefix")) {
				continue
			}
			equal := reflect.DeepEqual(e.extender, before.extender)
			if !equal && len(e.extender.ManagedResources) > 0 && len(before.extender.ManagedResources) > 0 {
				continue // a resource belongs to one extender, so they are called for other pods
			}
			twice := slices.DeleteFunc(decision.Verbs(), func(v decision.Verb) bool { return e.urlOf(v) == "" || e.urlOf(v) != before.urlOf(v) })
			if len(twice) == 0 {
				continue
			}
			why := "kube-scheduler makes the same call twice for one pod"
			if slices.Contains(twice, decision.Prioritize) {
				why += ", and adds the scores twice"
			}
			fix := "remove one of the two"
			if equal {
				fix = "remove it: " + before.path + " is equal"
			}
			e.report(Warning, "DuplicateExtender", "urlPrefix", fmt.Sprintf("%s also calls %s", before.path, e.urlOf(twice[0])), why, fix)
			break
		}
	}
}

func (e *extenderAt) check() {
	x := e.extender
	if x.FilterVerb+x.PrioritizeVerb+x.PreemptVerb+x.BindVerb == "" && !slices.ContainsFunc(x.ManagedResources, ignored) {
		e.report(Warning, "NoVerb", "", "there is no filterVerb, prioritizeVerb, preemptVerb or bindVerb", "kube-scheduler never calls the extender", "add the verbs that it serves, and weight: 1 with prioritizeVerb, or remove it")
	}
	if x.BindVerb != "" && x.Ignorable {
		e.report(Error, "IgnorableBinder", "ignorable", "the extender binds pods and is ignorable",
			"kube-scheduler 1.30 and later binds pods without the extender while it does not respond, and so without what it allocates to them",
			"set ignorable: false")
	}
	if x.PrioritizeVerb != "" && x.Weight <= 0 {
		e.refuse("Weight", e.field("weight"), fmt.Sprintf("weight is %d", x.Weight), "with prioritizeVerb it must be positive", "set weight: "+e.rightWeight())
	}
	if x.Weight > mostWeight && !e.ownWeight() {
		e.report(Warning, "LargeWeight", "weight", fmt.Sprintf("weight is %d", x.Weight),
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
		e.report(Note, "PreemptNeverCalled", "preemptVerb", "kube-scheduler 1.37 and earlier does not call it for want of "+r[0].Name,
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

// ownWeight reports whether the weight is at most the one that setup scheduler writes for a
// profile that the extender calls.
func (e *extenderAt) ownWeight() bool {
	return slices.ContainsFunc(e.matches(), func(m match) bool { return e.extender.Weight <= m.profile.ExtenderWeight() })
}

// weightDiffers reports a weight with which the policies of a profile count otherwise than plugins
// of kube-scheduler with their weights. Weight and LargeWeight report other mistakes of the same
// field.
func (e *extenderAt) weightDiffers(matches []match) {
	for _, m := range matches {
		got, want := e.extender.Weight, m.profile.ExtenderWeight()
		if !slices.Contains(m.verbs, decision.Prioritize) || want == 0 || got == want || got <= 0 || got > max(want, mostWeight) {
			continue
		}
		e.report(Warning, "WeightDiffers", "weight", fmt.Sprintf("weight is %d, and the weights of the policies of the profile %s add up to %d", got, m.profile.Path, want),
			fmt.Sprintf("a policy has %.2g times the influence of a plugin of kube-scheduler with the same weight", float64(got)/float64(want)),
			fmt.Sprintf("write weight: %d, as setup scheduler prints; ignore this if the influence is intended", want))
	}
}

// rightWeight is the weight that setup scheduler writes for the only profile that the extender
// calls; else 1.
func (e *extenderAt) rightWeight() string {
	if all := e.matches(); e.outboard && len(all) == 1 {
		if weight := all[0].profile.ExtenderWeight(); weight > 0 {
			return strconv.FormatInt(weight, 10)
		}
	}
	return "1"
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
	switch d := x.HTTPTimeout.Duration; {
	case d < 0:
		e.report(Error, "LongTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), "kube-scheduler places one pod at a time, and waits without end while an extender does not respond", fix)
	case d == 0:
		message := "httpTimeout is 5s by default"
		if !e.doc.root.At(e.field("httpTimeout")).IsZero() {
			message = "httpTimeout is 0, which means 5s"
		}
		e.report(Warning, "DefaultTimeout", "httpTimeout", message, "kube-scheduler places one pod at a time: while an extender does not respond, it places one pod every 5 seconds", fix)
	case d > 5*time.Second:
		e.report(Warning, "LongTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), fmt.Sprintf("kube-scheduler places one pod at a time: while an extender does not respond, it places one pod every %s", d), fix)
	case d < leastCall:
		e.report(Error, "ShortTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), fmt.Sprintf("a call can take %s whatever the extender does, and calls that take longer than httpTimeout fail", leastCall), fix)
	case x.PreemptVerb != "" && d < leastPreemption && e.outboard:
		e.report(Warning, "ShortTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), "Outboard evaluates candidates for preemption for up to 1.5s, and kube-scheduler does not preempt without its response", fix)
	case d < leastWait && e.outboard:
		e.report(Warning, "ShortTimeout", "httpTimeout", fmt.Sprintf("httpTimeout is %s", d), "a call waits up to 500ms until Outboard's watch shows the pods of earlier calls: such calls time out", fix)
	}
}

func (e *extenderAt) managedNames() {
	for i, r := range e.extender.ManagedResources {
		at := fmt.Sprintf("managedResources[%d].name", i)
		if errs := fields.ExtendedResource(field.NewPath("name"), r.Name); len(errs) > 0 {
			e.refuse("ManagedResourceName", e.field(at), fmt.Sprintf("%q: %s", r.Name, errs[0].Detail), "", "write the qualified name of an extended resource, such as example.com/gpu")
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
			c.refuse("ManagedResourceTwice", at+".name", fmt.Sprintf("%s is also %s, on line %d", r.Name, before, c.doc.line(before)),
				"a resource belongs to one extender", "remove one of the two")
		}
	}
	c.binders(all)
}

// binders reports several extenders that bind. Those whose profiles allocate nothing need no
// bindVerb.
func (c *checker) binders(all []extenderAt) {
	var binders, idle []string
	for i := range all {
		e := &all[i]
		if e.extender.BindVerb == "" {
			continue
		}
		binders = append(binders, e.path)
		matches := e.matches()
		if e.outboard && len(matches) > 0 && !slices.ContainsFunc(matches, func(m match) bool { return m.profile.Allocator() != "" }) {
			idle = append(idle, e.path)
		}
	}
	if len(binders) < 2 {
		return
	}
	at, fix := binders[1], "put the policies that allocate resources in one profile, or run a scheduler for each"
	if len(idle) == len(binders)-1 {
		at, fix = idle[0], "remove bindVerb of "+strings.Join(idle, " and ")+": no policy of the profile allocates resources"
	}
	c.refuse("SeveralBinders", at+".bindVerb", strings.Join(binders, " and ")+" have bindVerb", "kube-scheduler accepts one extender that binds", fix)
}
