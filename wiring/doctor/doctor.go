package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/wiring"
)

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	// Error: kube-scheduler rejects the file, or places pods wrongly or not at all.
	Error Severity = "ERROR"
	// Warning: calls work under usual conditions only.
	Warning Severity = "WARNING"
	// Info: for information.
	Info Severity = "INFO"
)

// Finding is one problem of a file.
type Finding struct {
	// Code is stable and in CamelCase.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// File and Line, from 1, are the place. Line is 0 if the place is not in the file.
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Field is the path of the field; "" is the file as a whole.
	Field string `json:"field,omitempty"`
	// Message is the problem, Why its consequence, and Fix the correction.
	Message string `json:"message"`
	Why     string `json:"why"`
	Fix     string `json:"fix,omitempty"`
	// Fixable says that the function Fix makes the correction.
	Fixable bool `json:"fixable"`
	// Docs is the page and anchor with details.
	Docs string `json:"docs"`

	edits []edit
}

// Input is the file to check, with what to compare it with. File and Data are required.
type Input struct {
	// File is the name of the file, and Data its content: a KubeSchedulerConfiguration, or a manifest
	// with a ConfigMap that holds one.
	File string
	Data []byte
	// Config is the configuration of Outboard, from the file ConfigFile. nil: unknown.
	Config     *config.Config
	ConfigFile string
	// Cluster has the objects of a cluster. nil: unknown.
	Cluster *Cluster
	// Version is the version of kube-scheduler, such as 1.37 or v1.37.0. Default: that of the
	// cluster, if one is known.
	Version string
	// ReadFile reads a file of a certificate. nil: none can be read.
	ReadFile func(name string) ([]byte, error)
	// Now is the time for which certificates are checked.
	Now time.Time
	// CertificateDir is the directory that Fix names for certificates. Default
	// wiring.Directory.
	CertificateDir string
}

// Check returns the findings: those in the file, ordered by line, and then the others.
func Check(in Input) ([]Finding, error) {
	c, err := examine(in)
	if err != nil {
		return nil, err
	}
	return c.findings, nil
}

// maxRounds bounds how often Fix corrects a file: a correction may reveal other findings.
const maxRounds = 10

// Fix returns the corrected file, and the findings that it cannot correct.
func Fix(in Input) (fixed []byte, left []Finding, err error) {
	fixed = in.Data
	for range maxRounds {
		in.Data = fixed
		c, err := examine(in)
		if err != nil {
			return nil, nil, err
		}
		if c.doc.inner {
			return nil, nil, fmt.Errorf("%s: the configuration is inside another document: correct it there, or put it in its own file", in.File)
		}
		left = c.findings
		if !slices.ContainsFunc(left, func(f Finding) bool { return f.Fixable }) {
			return fixed, left, nil
		}
		if fixed, err = c.apply(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errors.New("the corrections of the file contradict each other")
}

// checker checks one file.
type checker struct {
	Input
	doc      document
	minor    int // of kube-scheduler; 0 is unknown
	findings []Finding
}

func examine(in Input) (*checker, error) {
	in.CertificateDir = strings.TrimRight(cmp.Or(in.CertificateDir, wiring.Directory), "/")
	if in.Version == "" && in.Cluster != nil {
		in.Version = in.Cluster.schedulerVersion(in.File)
	}
	c := &checker{Input: in}
	var err error
	if c.minor, err = minorOf(in.Version); err != nil {
		return nil, err
	}
	if c.read() {
		c.checkAll()
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		if a.File == b.File {
			return cmp.Compare(a.Line, b.Line)
		}
		if a.File == in.File {
			return -1
		}
		if b.File == in.File {
			return 1
		}
		return strings.Compare(a.File, b.File)
	})
	return c, nil
}

func (c *checker) checkAll() {
	c.configuration()
	for i := range c.doc.config.Extenders {
		e := extenderAt{checker: c, extender: &c.doc.config.Extenders[i], path: fmt.Sprintf("extenders[%d]", i)}
		e.check()
		e.tls()
	}
	c.amongExtenders()
	if c.Config != nil {
		c.profiles()
	}
	if c.Cluster != nil {
		c.cluster()
	}
}

// at adds a finding about the field at path, with the edits that correct it. Fix does not correct a document inside
// another one.
func (c *checker) at(severity Severity, code, path, message, why, fix string, edits ...edit) {
	if c.doc.inner {
		edits = nil
	}
	c.findings = append(c.findings, Finding{
		Code: code, Severity: severity, File: c.doc.name, Line: c.doc.line(path), Field: path,
		Message: message, Why: why, Fix: fix, Fixable: len(edits) > 0, Docs: docs(code), edits: edits,
	})
}

// elsewhere adds a finding whose place is not in the file.
func (c *checker) elsewhere(severity Severity, code, where, field, message, why, fix string) {
	c.findings = append(c.findings, Finding{
		Code: code, Severity: severity, File: where, Field: field, Message: message, Why: why, Fix: fix, Docs: docs(code),
	})
}

func docs(code string) string { return "docs/doctor.md#" + strings.ToLower(code) }

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
		fmt.Fprintf(&b, "    Fix: %s.", f.Fix)
		if f.Fixable {
			b.WriteString(" --fix does this.")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "    See: %s\n", f.Docs)
	return b.String()
}
