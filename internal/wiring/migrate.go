package wiring

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/gpushare"
)

// Migrate converts the extenders of a Policy of kube-scheduler 1.22 and earlier, as JSON or YAML,
// alone or in a ConfigMap, to a KubeSchedulerConfiguration. It leaves out the rest, such as
// predicates and priorities: kube-scheduler's plugins have their defaults. notes name what is left
// out or works in another way; they are in the comments of the result, too. file is the name of the
// file in them. Of the options, SchedulerName and Namespace count: with a name, the result is
// for a second scheduler with a lease of its own.
func Migrate(file string, data []byte, o Options) (result []byte, notes []string, err error) {
	root, err := policyIn(file, data)
	if err != nil {
		return nil, nil, err
	}
	l := lease{o.Namespace, o.SchedulerName}
	if err := o.completeNamespace(); err != nil {
		return nil, nil, err
	}
	if o.SchedulerName != "" {
		if err := checkSchedulerName(o.SchedulerName); err != nil {
			return nil, nil, err
		}
	}
	extenders, notes, err := legacyExtenders(file, root)
	if err != nil {
		return nil, nil, err
	}
	var p page
	p.comment("", "Converted from "+file+". This is a file for the flag --config of kube-scheduler and not an API object: kubectl cannot apply it. outboard check --scheduler reports what to improve.")
	if len(notes) > 0 {
		p.line("#")
		p.comment("", "What is left out, or works in another way:")
		for _, note := range notes {
			p.comment("", "- "+note)
		}
	}
	p.line("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration")
	if l.Name != "" {
		p.lease(l)
		p.line("profiles:\n- schedulerName: %s", Quoted(l.Name))
	}
	p.line("extenders:")
	for i := range extenders {
		extenders[i].write(&p)
	}
	return p.Bytes(), notes, nil
}

// lease is that of a second scheduler.
type lease struct{ Namespace, Name string }

// IsPolicy reports whether the document is a Policy, which had no kind in the first versions.
func IsPolicy(root strictyaml.Value) bool {
	var kind string
	_ = root.At("kind").Decode(&kind)
	return kind == "Policy" || kind == "" && slices.ContainsFunc([]string{"extender", "predicates", "priorities"}, func(name string) bool { return !root.At(name).IsZero() })
}

// policyIn returns the Policy in a file, which is one itself, or has one in a ConfigMap.
func policyIn(file string, data []byte) (policy strictyaml.Value, err error) {
	whole := manifest.Text{Data: data}
	for _, document := range whole.Documents() {
		kind, texts := document.Object()
		if kind != "ConfigMap" {
			texts = []manifest.Text{document}
		}
		for _, t := range texts {
			// As many lines as in the file are above it, so that every note has the line of the
			// file.
			root, wrong := strictyaml.Parse(file, slices.Concat(bytes.Repeat([]byte("\n"), t.Line(1)-1), t.Data))
			switch {
			case wrong != nil:
				err = cmp.Or(err, wrong)
			case IsPolicy(root) || root.At("kind").IsZero() && !root.At("extenders").IsZero():
				return root, nil
			}
		}
	}
	return policy, cmp.Or(err, fmt.Errorf("%s: there is no Policy of kube-scheduler 1.22 and earlier", file))
}

// legacyExtenders returns the extenders of a Policy, and notes about the rest.
func legacyExtenders(file string, root strictyaml.Value) (extenders []legacyExtender, notes []string, err error) {
	var policy legacyPolicy
	var all, wrong strictyaml.Errors
	_ = errors.As(root.Decode(&policy), &all)
	var others []string
	note := func(line int, format string, args ...any) {
		notes = append(notes, fmt.Sprintf("%s:%d: ", file, line)+fmt.Sprintf(format, args...))
	}
	for _, e := range all {
		switch {
		case e.Kind != "Unknown field":
			wrong = append(wrong, e)
		case strings.HasPrefix(e.Path, "extender"):
			note(e.Line, "%s: left out: kube-scheduler has never read this field", e.Path)
		default:
			others = append(others, e.Path)
		}
	}
	if len(others) > 0 {
		notes = append(notes, fmt.Sprintf("%s: %s: left out: only extenders are converted, and the plugins of kube-scheduler have their defaults", file, strings.Join(others, ", ")))
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	if policy.Extender != nil {
		note(root.At("extender").Line(), "extender: kube-scheduler reads extenders only, so it did not call this one: it is now in the list")
		policy.Extenders = append(policy.Extenders, *policy.Extender)
	}
	if len(policy.Extenders) == 0 {
		return nil, nil, fmt.Errorf("%s: the Policy has no extenders", file)
	}
	for i := range policy.Extenders {
		e := &policy.Extenders[i]
		named := func(name string) int {
			return slices.IndexFunc(e.ManagedResources, func(r schedulerv1.ExtenderManagedResource) bool { return r.Name == name })
		}
		if shared := named(gpushare.Memory); shared >= 0 && named(gpushare.Count) < 0 {
			at := fmt.Sprintf("extenders[%d].managedResources", i)
			note(root.At(at).Line(), "%s: %s is now in the list: a pod can request GPUs by it alone, and kube-scheduler would bind such a pod without a call, to GPUs that may be in use", at, gpushare.Count)
			e.ManagedResources = append(e.ManagedResources, schedulerv1.ExtenderManagedResource{Name: gpushare.Count, IgnoredByScheduler: e.ManagedResources[shared].IgnoredByScheduler})
		}
	}
	return policy.Extenders, notes, nil
}

// write writes the extender without the fields that are not set.
func (e *legacyExtender) write(p *page) {
	p.line("- urlPrefix: %s", Quoted(e.URLPrefix))
	for _, f := range []struct{ name, value string }{
		{"filterVerb", e.FilterVerb}, {"prioritizeVerb", e.PrioritizeVerb}, {"preemptVerb", e.PreemptVerb}, {"bindVerb", e.BindVerb},
	} {
		if f.value != "" {
			p.line("  %s: %s", f.name, Quoted(f.value))
		}
	}
	if e.Weight != 0 {
		p.line("  weight: %d", e.Weight)
	}
	p.line("  nodeCacheCapable: %t", e.NodeCacheCapable)
	if e.HTTPTimeout != 0 {
		p.line("  httpTimeout: %s", time.Duration(e.HTTPTimeout))
	}
	p.line("  ignorable: %t", e.Ignorable)
	if len(e.ManagedResources) > 0 {
		p.line("  managedResources:")
	}
	for _, r := range e.ManagedResources {
		p.line("  - name: %s\n    ignoredByScheduler: %t", Quoted(r.Name), r.IgnoredByScheduler)
	}
	p.line("  enableHTTPS: %t", e.EnableHTTPS)
	if t := e.TLSConfig; t != nil {
		t.write(p)
	}
}

func (t *legacyTLS) write(p *page) {
	var lines []string
	if t.Insecure {
		lines = append(lines, "    insecure: true")
	}
	for _, f := range []struct{ name, value string }{
		{"serverName", t.ServerName}, {"caFile", t.CAFile}, {"certFile", t.CertFile}, {"keyFile", t.KeyFile},
		{"caData", t.CAData}, {"certData", t.CertData}, {"keyData", t.KeyData},
	} {
		if f.value != "" {
			lines = append(lines, "    "+f.name+": "+Quoted(f.value))
		}
	}
	if len(lines) > 0 {
		p.line("  tlsConfig:\n%s", strings.Join(lines, "\n"))
	}
}
