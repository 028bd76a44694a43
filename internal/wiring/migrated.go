package wiring

import (
	"cmp"
	"strings"
	"time"
)

// write writes the KubeSchedulerConfiguration.
func (m *migration) write() []byte {
	var p page
	p.comment("", "Converted from "+m.file+". This is a file for the flag --config of kube-scheduler and not an API object: kubectl cannot apply it. outboard doctor reports what to improve.")
	if len(m.notes) > 0 {
		p.line("#")
		p.comment("", "These fields have no equivalent, or work in another way:")
		for _, note := range m.notes {
			p.comment("", "- "+note)
		}
	}
	p.line("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration")
	if m.lease.Name != "" {
		p.lease(m.lease)
	}
	m.writeProfile(&p)
	if len(m.policy.Extenders) > 0 {
		p.line("extenders:")
	}
	for i := range m.policy.Extenders {
		m.policy.Extenders[i].write(&p)
	}
	return p.Bytes()
}

// writeProfile writes plugins and their arguments, where they are not the default ones.
func (m *migration) writeProfile(p *page) {
	hard := m.policy.HardPodAffinitySymmetricWeight
	configured := hard != nil || m.strategy != "" && m.strategy != leastAllocated
	if m.policy.Priorities == nil && !configured && m.name == "" {
		return
	}
	p.line("profiles:\n- schedulerName: %s", Quoted(cmp.Or(m.name, defaultScheduler)))
	if m.policy.Priorities != nil {
		p.comment("  ", "As in the Policy, only these plugins score nodes.")
		p.line("  plugins:\n    score:\n      disabled:\n      - name: \"*\"")
		if len(m.scores) > 0 {
			p.line("      enabled:")
		}
		for _, s := range m.scores {
			p.line("      - name: %s\n        weight: %d", s.plugin, s.weight)
		}
	}
	if !configured {
		return
	}
	p.line("  pluginConfig:")
	if hard != nil {
		p.line("  - name: InterPodAffinity\n    args:\n      hardPodAffinityWeight: %d", *hard)
	}
	if m.strategy != "" && m.strategy != leastAllocated {
		m.writeStrategy(p)
	}
}

func (m *migration) writeStrategy(p *page) {
	p.line("  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        type: %s", m.strategy)
	p.line("        resources:")
	if m.ratio == nil || len(m.ratio.Resources) == 0 {
		p.line("        - name: cpu\n          weight: 1\n        - name: memory\n          weight: 1")
	} else {
		for _, r := range m.ratio.Resources {
			p.line("        - name: %s\n          weight: %d", Quoted(r.Name), max(1, r.Weight))
		}
	}
	if m.ratio != nil {
		p.line("        requestedToCapacityRatio:\n          shape:")
		for _, point := range m.ratio.Shape {
			p.line("          - utilization: %d\n            score: %d", point.Utilization, point.Score)
		}
	}
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
