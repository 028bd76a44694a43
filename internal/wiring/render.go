package wiring

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"outboard.dev/outboard/internal/decision"
)

// page is a YAML document with comments, written from top to bottom.
type page struct {
	bytes.Buffer
	said []string // comments so far
}

// lineWidth is how wide comments are, in bytes.
const lineWidth = 100

// comment writes text as lines of a comment, once.
func (p *page) comment(indent, text string) {
	if slices.Contains(p.said, text) {
		return
	}
	p.said = append(p.said, text)
	line := ""
	for word := range strings.FieldsSeq(strings.Map(printable, text)) {
		if line != "" && len(indent)+len("# ")+len(line)+1+len(word) > lineWidth {
			fmt.Fprintf(p, "%s# %s\n", indent, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		fmt.Fprintf(p, "%s# %s\n", indent, line)
	}
}

// printable replaces characters that a comment cannot contain: names in a Policy can have any
// characters.
func printable(r rune) rune {
	if r == '\uFEFF' || !unicode.IsGraphic(r) && !unicode.IsSpace(r) {
		return '?'
	}
	return r
}

// line writes a line, as fmt.Fprintf does.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Quoted returns a string as YAML in one line, in quotes if it needs them.
func Quoted(s string) string {
	text, err := yaml.Marshal(s)
	if err != nil || bytes.Count(text, []byte("\n")) > 1 {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(string(text), "\n")
}

// YAML returns the KubeSchedulerConfiguration.
func (w *Wiring) YAML() []byte {
	var p page
	p.comment("", "The configuration of kube-scheduler, for its flag --config. It is a file and not an API object: kubectl cannot apply it. kube-scheduler reads it when it starts.")
	p.line("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration")
	w.process(&p)
	if allocates := func(e entry) bool { return e.profile.Allocator() != "" && e.FilterVerb != "" }; w.options.second() && slices.ContainsFunc(w.entries, allocates) {
		p.comment("", "For up to about 1,000 nodes; in larger clusters, delete this line. By default kube-scheduler calls for a sample of the nodes, which costs less there, but it retries a pod that fits on none of them many times in a row.")
		p.line("percentageOfNodesToScore: 100")
	}
	if len(w.schedulers) > 0 {
		p.comment("", "The values of spec.schedulerName of pods for this kube-scheduler. The extenders are for all of them.")
		for i := range w.entries {
			e := &w.entries[i]
			if refused := w.refused(e); len(refused) > 0 {
				p.comment("", fmt.Sprintf("Profile %s binds pods of %s only. This kube-scheduler also places the other pods of %s: those that request a managed resource of the profile stay pending.",
					e.profile.Path, strings.Join(e.profile.SchedulerNames, ", "), strings.Join(refused, ", ")))
			}
		}
		p.line("profiles:")
		for _, name := range w.schedulers {
			p.line("- schedulerName: %s", Quoted(name))
		}
	}
	p.line("extenders:")
	if w.options.For == NodePort {
		p.comment("", "kube-proxy serves NodePorts at 127.0.0.1 in the mode iptables only. In other modes, write the address of a node.")
	}
	for _, e := range w.entries {
		e.write(&p)
	}
	return p.Bytes()
}

// process writes the client connection and the leader election of kube-scheduler in the topology.
func (w *Wiring) process(p *page) {
	kubeconfig := w.options.SchedulerKubeconfig
	if w.options.For == Kubeadm {
		kubeconfig = cmp.Or(kubeconfig, KubeadmKubeconfig)
	}
	if kubeconfig != "" {
		p.comment("", "kube-scheduler ignores its flag --kubeconfig when it has --config.")
		p.line("clientConnection:\n  kubeconfig: %s", Quoted(kubeconfig))
	}
	switch {
	case w.options.For == Kubeadm:
		p.line("leaderElection:\n  leaderElect: true")
	case w.options.second():
		p.lease(w.options.Namespace, w.schedulers[0])
	}
}

// lease writes the leader election of a second scheduler.
func (p *page) lease(namespace, name string) {
	p.comment("", "A lease of its own: with that of the cluster's scheduler only one of the two would place pods.")
	p.line("leaderElection:\n  leaderElect: true\n  resourceNamespace: %s\n  resourceName: %s", Quoted(namespace), Quoted(name))
}

// write writes the extender as an item of a list.
func (e *entry) write(p *page) {
	p.comment("", fmt.Sprintf("Profile %s. %s", e.profile.Path, e.why))
	p.line("- urlPrefix: %s", Quoted(e.URLPrefix))
	for _, v := range decision.Verbs() {
		if path := *VerbField(&e.Extender, v); path != "" {
			p.line("  %s: %s", v.Field(), Quoted(path))
		}
	}
	if e.PrioritizeVerb != "" {
		p.comment("  ", "Scores are 0..10, and kube-scheduler multiplies them by this and by 10: with the sum of the policies' weights, a policy counts like a plugin of kube-scheduler with the same weight.")
		p.line("  weight: %d", e.Weight)
	}
	if e.NodeCacheCapable {
		p.comment("  ", "Send the names of nodes only. Outboard knows the nodes.")
	} else {
		p.comment("  ", "Send whole nodes: clientConnection.enabled is false, so Outboard does not know the nodes.")
	}
	p.line("  nodeCacheCapable: %t", e.NodeCacheCapable)
	e.writeFailure(p)
	e.writeManaged(p)
	e.writeTLS(p)
}

func (e *entry) writeFailure(p *page) {
	why := "kube-scheduler waits this long for each call, one pod at a time; the default is 5s."
	if e.PreemptVerb != "" {
		why += " Preemption evaluates candidates for up to 1.5s."
	}
	p.comment("  ", why)
	p.line("  httpTimeout: %s", e.HTTPTimeout.Duration)
	if e.BindVerb != "" {
		p.comment("  ", "With true, kube-scheduler binds pods without their allocations while Outboard does not respond.")
	}
	p.line("  ignorable: %t", e.Ignorable)
}

func (e *entry) writeManaged(p *page) {
	if len(e.ManagedResources) == 0 {
		return
	}
	p.comment("  ", "kube-scheduler calls for pods that name one of these in a request or limit. It counts a resource itself unless ignoredByScheduler is true, and then nodes must report it. Keep this list the same as that of the profile.")
	p.line("  managedResources:")
	for _, r := range e.ManagedResources {
		p.line("  - name: %s\n    ignoredByScheduler: %t", Quoted(r.Name), r.IgnoredByScheduler)
	}
}

func (e *entry) writeTLS(p *page) {
	if !e.EnableHTTPS {
		p.comment("  ", "Plain HTTP: neither side verifies the identity of the other.")
		p.line("  enableHTTPS: false")
		return
	}
	t := e.TLSConfig
	p.line("  enableHTTPS: true\n  tlsConfig:")
	p.comment("    ", "Without caFile, kube-scheduler accepts any certificate. It reads the file once: restart kube-scheduler when the CA changes.")
	p.line("    caFile: %s", Quoted(t.CAFile))
	if t.ServerName != "" {
		p.comment("    ", "The name in Outboard's certificate; it is not that of urlPrefix.")
		p.line("    serverName: %s", Quoted(t.ServerName))
	}
	if t.CertFile != "" {
		p.comment("    ", "The certificate must have a name that serving.tls.allowedClients lists. kube-scheduler reads these files for every connection.")
		p.line("    certFile: %s\n    keyFile: %s", Quoted(t.CertFile), Quoted(t.KeyFile))
	}
}
