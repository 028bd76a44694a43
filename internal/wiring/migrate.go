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

// Migrate converts a Policy of kube-scheduler 1.22 and earlier, as JSON or YAML, alone or in a
// ConfigMap, to a KubeSchedulerConfiguration. If the file also has the configuration that named the
// Policy, the result has its scheduler name and lease. notes name the fields that have no
// equivalent or work in another way; they are in the comments of the result, too. file is the name
// of the file in them. Of the options, SchedulerName and LeaseNamespace count: with a name, the
// result is for a second scheduler with a lease of its own.
func Migrate(file string, data []byte, o Options) (result []byte, notes []string, err error) {
	root, former, err := policyIn(file, data)
	if err != nil {
		return nil, nil, err
	}
	m := migration{root: root, file: file, name: o.SchedulerName, lease: former.LeaderElection}
	if o.SchedulerName == "" && former.SchedulerName != defaultScheduler {
		m.name = former.SchedulerName
	}
	m.lease.Namespace = cmp.Or(o.LeaseNamespace, m.lease.Namespace)
	if m.name != former.SchedulerName || m.lease.Name == "" {
		m.lease.Name = m.name
	}
	o.SchedulerName = m.name
	if err := o.completeNamespaces(); err != nil {
		return nil, nil, err
	}
	if m.name != "" {
		if err := checkSchedulerName(m.name); err != nil {
			return nil, nil, err
		}
	}
	unknown, err := m.decode()
	if err != nil {
		return nil, nil, err
	}
	for _, e := range unknown {
		rule := ""
		if strings.HasPrefix(e.Rule, "did you mean") {
			rule = ": " + e.Rule
		}
		m.note(e.Line, "%s: left out: kube-scheduler has never read this field%s", e.Path, rule)
	}
	m.predicates()
	m.priorities()
	m.others()
	return m.write(), m.notes, nil
}

// formerScheduler is what a KubeSchedulerConfiguration of kube-scheduler 1.18 and earlier says
// about the scheduler with a Policy.
type formerScheduler struct {
	Kind            string `json:"kind"`
	APIVersion      string `json:"apiVersion"`
	SchedulerName   string `json:"schedulerName"`
	LeaderElection  lease  `json:"leaderElection"`
	AlgorithmSource struct {
		Policy struct {
			File struct {
				Path string `json:"path"`
			} `json:"file"`
			ConfigMap struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"configMap"`
		} `json:"policy"`
	} `json:"algorithmSource"`
}

// lease has the former names of resourceNamespace and resourceName.
type lease struct {
	Namespace string `json:"lockObjectNamespace"`
	Name      string `json:"lockObjectName"`
}

// policyIn returns the Policy in a file, which is one itself, or has one in a ConfigMap, and the
// configuration that named the Policy, if it is in the same file.
func policyIn(file string, data []byte) (policy strictyaml.Value, former formerScheduler, err error) {
	whole := manifest.Text{Data: data}
	kind := ""
	for _, document := range whole.Documents() {
		var texts []manifest.Text
		if kind, texts = document.Object(); kind != "ConfigMap" {
			texts = []manifest.Text{document}
		}
		for _, t := range texts {
			// As many lines as in the file are above it, so that every note has the line of the
			// file.
			root, wrong := strictyaml.Parse(file, slices.Concat(bytes.Repeat([]byte("\n"), t.Line(1)-1), t.Data))
			var header formerScheduler
			_ = root.Decode(&header) // the other fields are those of the kind
			switch {
			case wrong != nil:
				err = cmp.Or(err, wrong)
			case header.Kind == "KubeSchedulerConfiguration":
				former = header
			case policy.IsZero() && (header.Kind == "Policy" || header.Kind == "" && slices.ContainsFunc([]string{"extenders", "extender", "predicates", "priorities"}, func(name string) bool { return !root.At(name).IsZero() })):
				policy = root
			}
		}
	}
	source := former.AlgorithmSource.Policy
	switch {
	case !policy.IsZero():
		return policy, former, nil
	case err != nil:
		return policy, former, err
	case source.File.Path != "":
		err = fmt.Errorf("%s: this is a KubeSchedulerConfiguration of version %s, whose Policy is the file %s: give that file", file, former.APIVersion, source.File.Path)
	case source.ConfigMap.Name != "":
		err = fmt.Errorf("%s: this is a KubeSchedulerConfiguration of version %s, whose Policy is in the ConfigMap %s/%s: give that ConfigMap, or both in one file", file, former.APIVersion, source.ConfigMap.Namespace, source.ConfigMap.Name)
	case former.Kind != "":
		err = fmt.Errorf("%s: this is a KubeSchedulerConfiguration of version %s and no Policy: outboard doctor says what to change", file, former.APIVersion)
	case kind == "ConfigMap":
		err = fmt.Errorf("%s: no key of the ConfigMap holds a Policy", file)
	case kind == "":
		err = fmt.Errorf("%s: %s", file, notPolicy)
	default:
		err = fmt.Errorf("%s: kind is %s: must be Policy", file, kind)
	}
	return policy, former, err
}

const notPolicy = "this is not a Policy: it has neither extenders nor predicates nor priorities"

// migration converts one Policy.
type migration struct {
	root   strictyaml.Value
	file   string
	name   string // of the second scheduler; "" is the cluster's own
	lease  lease  // Name "": that of the cluster's own
	policy legacyPolicy
	notes  []string

	scores   []score // in the order of the Policy
	strategy string  // of NodeResourcesFit; "" is the default
	ratio    *legacyRatio
}

// score is a plugin that scores.
type score struct {
	plugin string
	weight int64
}

func (m *migration) note(line int, format string, args ...any) {
	where := m.file
	if line > 0 {
		where = fmt.Sprintf("%s:%d", m.file, line)
	}
	m.notes = append(m.notes, where+": "+fmt.Sprintf(format, args...))
}

// noteAt is note for the field at a path.
func (m *migration) noteAt(path, format string, args ...any) {
	located := m.root.At(path).Locate(errors.New(""))
	m.note(located[0].Line, path+": "+format, args...)
}

// decode reads the Policy. It returns unknown fields separately from other errors.
func (m *migration) decode() (unknown strictyaml.Errors, err error) {
	var all, wrong strictyaml.Errors
	if errors.As(m.root.Decode(&m.policy), &all) {
		for _, e := range all {
			if e.Kind == "Unknown field" {
				unknown = append(unknown, e)
			} else {
				wrong = append(wrong, e)
			}
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	if m.policy.Extender != nil {
		m.noteAt("extender", "kube-scheduler reads extenders only, so it did not call this one: it is now in the list")
		m.policy.Extenders = append(m.policy.Extenders, *m.policy.Extender)
	}
	p := &m.policy
	if len(p.Extenders) == 0 && p.Predicates == nil && p.Priorities == nil {
		return nil, fmt.Errorf("%s: %s", m.file, notPolicy)
	}
	return unknown, nil
}

// predicates notes what is different for the predicates: all plugins that filter are on.
func (m *migration) predicates() {
	if m.policy.Predicates == nil {
		return
	}
	filters := slices.Clone(mandatoryPlugins)
	for i, p := range m.policy.Predicates {
		at := fmt.Sprintf("predicates[%d]", i)
		plugins, known := predicatePlugins[p.Name]
		filters = append(filters, plugins...)
		switch {
		case p.Argument["serviceAffinity"] != nil:
			m.noteAt(at, "%s: no equivalent: use pod affinity with a topologyKey in the pods", p.Name)
		case p.Argument["labelsPresence"] != nil:
			m.noteAt(at, "%s: no equivalent: use node affinity in the pods, or taints on the nodes", p.Name)
		case !known:
			m.noteAt(at, "%s: no equivalent", p.Name)
		}
	}
	var off []string
	for _, plugin := range defaultFilters {
		if !slices.Contains(filters, plugin) {
			off = append(off, plugin)
		}
	}
	if len(off) > 0 {
		m.noteAt("predicates", "the Policy does not list predicates for %s: these plugins are on now. To turn one off, list it in plugins.filter.disabled", strings.Join(off, ", "))
	}
}

// priorities turns the priorities into plugins with weights.
func (m *migration) priorities() {
	for i, p := range m.policy.Priorities {
		at := fmt.Sprintf("priorities[%d]", i)
		target, known := priorityPlugins[p.Name]
		switch a := p.Argument; {
		case a != nil && a.RequestedToCapacityRatio != nil:
			target, known = priorityPlugins["RequestedToCapacityRatioPriority"], true
			m.ratio = a.RequestedToCapacityRatio
		case a != nil && a.ServiceAntiAffinity != nil:
			m.noteAt(at, "%s: no equivalent: use topologySpreadConstraints in the pods", p.Name)
			continue
		case a != nil && a.LabelPreference != nil:
			m.noteAt(at, "%s: no equivalent: use preferred node affinity in the pods", p.Name)
			continue
		}
		if !known {
			note, noted := priorityNotes[p.Name]
			if !noted {
				note = "no equivalent"
			}
			m.noteAt(at, "%s: %s", p.Name, note)
			continue
		}
		if target.note != "" {
			m.noteAt(at, "%s: %s", p.Name, target.note)
		}
		if target.strategy != "" && m.strategy != "" && target.strategy != m.strategy {
			m.noteAt(at, "%s: left out: NodeResourcesFit has one strategy, and an earlier priority says %s", p.Name, m.strategy)
			continue
		}
		if target.strategy != "" {
			m.strategy = target.strategy
		}
		m.add(target.plugin, p.Weight)
	}
}

// add adds the weight of a plugin.
func (m *migration) add(plugin string, weight int64) {
	for i := range m.scores {
		if m.scores[i].plugin == plugin {
			m.scores[i].weight += weight
			return
		}
	}
	m.scores = append(m.scores, score{plugin, weight})
}

// others converts the remaining fields, and adds notes about them.
func (m *migration) others() {
	if m.policy.AlwaysCheckAllPredicates {
		m.noteAt("alwaysCheckAllPredicates", "no equivalent: a node is rejected for the reason of the first plugin that rejects it")
	}
	for i := range m.policy.Extenders {
		e := &m.policy.Extenders[i]
		named := func(name string) int {
			return slices.IndexFunc(e.ManagedResources, func(r schedulerv1.ExtenderManagedResource) bool { return r.Name == name })
		}
		if shared := named(gpushare.Memory); shared >= 0 && named(gpushare.Count) < 0 {
			m.noteAt(fmt.Sprintf("extenders[%d].managedResources", i), "%s is now in the list: a pod can request GPUs by it alone, and kube-scheduler would bind such a pod without a call, to GPUs that may be in use", gpushare.Count)
			e.ManagedResources = append(e.ManagedResources, schedulerv1.ExtenderManagedResource{Name: gpushare.Count, IgnoredByScheduler: e.ManagedResources[shared].IgnoredByScheduler})
		}
		if e.HTTPTimeout != 0 && e.HTTPTimeout < int64(time.Millisecond) {
			m.noteAt(fmt.Sprintf("extenders[%d].httpTimeout", i), "%d is a number of nanoseconds, so every call fails: write a duration such as 5s", e.HTTPTimeout)
		}
	}
}
