package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"outboard.dev/outboard/internal/config"
)

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	// Error: kube-scheduler rejects the file, or places pods wrongly or not at all.
	Error Severity = "ERROR"
	// Warning: calls work under usual conditions only.
	Warning Severity = "WARNING"
	// Note: for information.
	Note Severity = "NOTE"
)

// Finding is one problem of a file.
type Finding struct {
	// Code is stable and in CamelCase.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// File and Line, from 1, are the position. Line is 0 if the position is not in the file.
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Field is the path of the field; "" is the file as a whole.
	Field string `json:"field,omitempty"`
	// Message is the problem, Why its consequence, and Fix the correction.
	Message string `json:"message"`
	Why     string `json:"why"`
	Fix     string `json:"fix,omitempty"`

	refused bool // kube-scheduler does not start
}

// Input is the file to check, with what to compare it with. File and Data are required.
type Input struct {
	// File is the name of the file, and Data its content: a KubeSchedulerConfiguration, or a
	// manifest with a ConfigMap that holds one.
	File string
	Data []byte
	// Config is the configuration of Outboard, from the file ConfigFile, also if arguments of
	// Outboard's plugin name another file. nil: unknown.
	Config     *config.Config
	ConfigFile string
	// Types are those that the arguments of Outboard's plugin can name. Without policies, a
	// configuration in the arguments is not checked.
	Types config.Types
	// Cluster has the objects of a cluster. nil: unknown.
	Cluster *Cluster
	// Version is the version of kube-scheduler, such as 1.37 or v1.37.0. Default: that of the
	// API server, if a cluster is known.
	Version string
	// ReadFile reads a file that the file to check names, and ReadConfigFile one that Config names.
	// nil: none can be read.
	ReadFile, ReadConfigFile func(name string) ([]byte, error)
	// Unread has what could not be read, and so is not checked.
	Unread []Omission
	// Now is the time for which certificates are checked.
	Now time.Time

	namespace      string             // that of FromNamespace
	deployed       bool               // the file is from the cluster: File is the key of its object
	configDeployed bool               // so is Config
	outboardHere   *appsv1.Deployment // the only one in the namespace that runs Outboard
}

// Check returns the findings, the most severe ones first, of these those in the file first, and
// those by line, and what it does not check.
func Check(in Input) ([]Finding, []Omission, error) {
	if in.Version == "" && in.Cluster != nil {
		in.Version = in.Cluster.Version
	}
	minor, err := minorOf(in.Version)
	if err != nil {
		return nil, nil, err
	}
	c := &checker{Input: in, minor: minor, omissions: slices.Clone(in.Unread)}
	if c.read() {
		c.checkAll()
	} else {
		c.omit("the fields of the file", "it must be readable first")
	}
	c.undecoded()
	return c.ordered(), c.omissions, nil
}

// PluginOnly reports whether kube-scheduler uses Outboard as a plugin only, so that no extender
// calls what its configuration serves.
func (in Input) PluginOnly() bool {
	c := &checker{Input: in}
	return c.read() && len(c.doc.config.Extenders) == 0 && slices.ContainsFunc(c.doc.config.Profiles, func(p profile) bool {
		return slices.ContainsFunc(p.PluginConfig, func(q pluginConfig) bool { return q.Name == pluginName })
	})
}

// checker checks one file.
type checker struct {
	Input
	doc      document
	minor    int // of kube-scheduler; 0 is unknown
	findings []Finding
	broken   []string // the paths of fields whose values are unknown
	plugged  bool     // a profile uses Outboard as a plugin

	undecodable bool // a finding says why kube-scheduler cannot decode the text

	omissions []Omission
}

// ordered returns the findings in the order for readers.
func (c *checker) ordered() []Finding {
	severities := []Severity{Error, Warning, Note}
	all := slices.Clone(c.findings)
	slices.SortStableFunc(all, func(a, b Finding) int {
		elsewhere := func(f Finding) string { return strings.TrimPrefix(f.File, c.File) }
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			strings.Compare(elsewhere(a), elsewhere(b)), cmp.Compare(a.Line, b.Line))
	})
	return all
}

func (c *checker) checkAll() {
	c.configuration()
	all := c.extenders()
	for i := range all {
		all[i].urlPrefix()
	}
	if c.Config != nil {
		c.findOutboard(all)
	}
	for i := range all {
		all[i].tls()
		all[i].slashes()
		all[i].check()
	}
	c.amongExtenders(all)
	if c.Config != nil {
		c.profiles(all)
	} else if len(all) > 0 || !c.plugged { // the plugin's configuration is in its arguments, or they name it
		c.omit("Outboard's configuration", "FILE names it")
	}
	if c.Cluster != nil {
		c.cluster()
	} else {
		c.omit("the cluster", "--cluster reads it")
		for i := range all {
			all[i].hostNetwork()
		}
	}
	if c.minor == 0 {
		c.omit("what differs between versions of kube-scheduler", "--kubernetes-version names the version")
	}
}

// extenders returns the extenders of the file.
func (c *checker) extenders() []extenderAt {
	all := make([]extenderAt, len(c.doc.config.Extenders))
	for i := range all {
		all[i] = extenderAt{checker: c, extender: &c.doc.config.Extenders[i], path: fmt.Sprintf("extenders[%d]", i)}
	}
	return all
}

// at adds a finding about the field at path. It adds none about a field whose value is unknown.
func (c *checker) at(severity Severity, code, path, message, why, fix string) {
	if c.unknownValue(path) {
		return
	}
	c.findings = append(c.findings, Finding{
		Code: code, Severity: severity, File: c.File, Line: c.doc.line(path), Field: path,
		Message: message, Why: why, Fix: fix,
	})
}

// refuse adds a finding for which kube-scheduler does not start. why may be empty.
func (c *checker) refuse(code, path, message, why, fix string) {
	if !c.unknownValue(path) {
		c.refuseAt(code, c.doc.line(path), path, message, why, fix)
	}
}

// refuseAt is refuse for a field of which the line is known.
func (c *checker) refuseAt(code string, line int, path, message, why, fix string) {
	c.findings = append(c.findings, Finding{
		Code: code, Severity: Error, File: c.File, Line: line, Field: path,
		Message: message, Why: strings.TrimPrefix(why+": "+rejected, ": "), Fix: fix, refused: true,
	})
}

// anyRefused reports whether kube-scheduler does not start because of a finding.
func (c *checker) anyRefused() bool {
	return slices.ContainsFunc(c.findings, func(f Finding) bool { return f.refused })
}

// unknownValue reports whether the value of the field, of one around it, or of a part of it is
// unknown. Extenders and profiles have fields that are known nevertheless.
func (c *checker) unknownValue(path string) bool {
	inside := func(path, outer string) bool {
		rest, ok := strings.CutPrefix(path, outer)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.ContainsFunc(c.broken, func(broken string) bool {
		return inside(path, broken) || strings.Contains(path, ".") && inside(broken, path)
	})
}

// elsewhere adds a finding whose position is not in the file, once: several extenders may have the
// same.
func (c *checker) elsewhere(severity Severity, code, where, field, message, why, fix string) {
	same := func(f Finding) bool {
		return f.Code == code && f.File == where && f.Field == field && f.Message == message
	}
	if slices.ContainsFunc(c.findings, same) {
		return
	}
	c.findings = append(c.findings, Finding{
		Code: code, Severity: severity, File: where, Field: field, Message: message, Why: why, Fix: fix,
	})
}

// Text returns the finding as lines of text.
func (f *Finding) Text() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	fmt.Fprintf(&b, ": [%s %s] ", f.Severity, f.Code)
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	fmt.Fprintf(&b, "%s\n    Why: %s.\n", f.Message, f.Why)
	if f.Fix != "" {
		fmt.Fprintf(&b, "    Fix: %s.\n", f.Fix)
	}
	return b.String()
}
