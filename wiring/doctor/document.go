package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/config/strictyaml"
	"outboard.dev/outboard/wiring"
)

// configuration is a KubeSchedulerConfiguration with PEM data in base64, as in the file.
type configuration struct {
	schedulerv1.KubeSchedulerConfiguration
	Extenders []extender `json:"extenders"`
}

type extender struct {
	schedulerv1.Extender
	TLSConfig *tlsConfig `json:"tlsConfig"`
}

type tlsConfig struct {
	schedulerv1.ExtenderTLSConfig
	CAData   string `json:"caData"` // base64, like the others
	CertData string `json:"certData"`
	KeyData  string `json:"keyData"`
}

// document is the KubeSchedulerConfiguration in a file.
type document struct {
	name   string
	root   strictyaml.Value
	config configuration
	above  int  // lines of the file above it
	inner  bool // it is one document of several, or in a ConfigMap
}

// line returns the line of the file with the field at path, or with what is nearest around it.
func (d *document) line(path string) int {
	placed := d.root.At(path).Place(errors.New(""))
	if len(placed) == 0 || placed[0].Line == 0 {
		return 0
	}
	return placed[0].Line + d.above
}

// read finds and decodes the configuration. It returns false if there is nothing more to check.
func (c *checker) read() bool {
	c.doc.name = c.File
	text, found := c.locateText()
	if !found {
		return false
	}
	var err error
	if c.doc.root, err = strictyaml.Parse(c.File, text); err != nil {
		c.syntax(err)
		return false
	}
	var errs strictyaml.Errors
	errors.As(c.doc.root.Decode(&c.doc.config), &errs)
	if kind := c.doc.config.Kind; kind == "Policy" || kind == "" && c.isPolicy() {
		c.at(Error, "LegacyPolicy", "kind", "this is a Policy of kube-scheduler 1.22 and earlier",
			"kube-scheduler 1.23 and later has no flag for a Policy, and does not start with one as --config; kubectl apply fails with \"no matches for kind\"",
			"outboard scheduler-config --from "+c.File+" converts it", edit{})
		return false
	} else if kind == config.Kind {
		c.at(Error, "Kind", "kind", "this is a configuration of Outboard", "kube-scheduler reads a KubeSchedulerConfiguration only, and does not start",
			"outboard check "+c.File+" checks this file; name kube-scheduler's file, and this one with --config")
		return false
	} else if kind != "KubeSchedulerConfiguration" {
		c.at(Error, "Kind", "kind", fmt.Sprintf("kind is %q", kind), "kube-scheduler reads a KubeSchedulerConfiguration only, and does not start", "set kind: KubeSchedulerConfiguration")
		return false
	}
	c.fields(errs)
	// What the rest of the file says is unknown then: further findings could be wrong, and corrections harmful.
	return !slices.ContainsFunc(errs, notRead)
}

// notRead reports whether the error is about YAML that strictyaml does not read, such as merge keys.
func notRead(e *strictyaml.Error) bool { return e.Kind == "" }

func (c *checker) isPolicy() bool {
	return c.doc.config.APIVersion == "v1" || c.doc.config.APIVersion == "" && (!c.doc.root.At("predicates").IsZero() || !c.doc.root.At("priorities").IsZero())
}

func (c *checker) syntax(err error) {
	var errs strictyaml.Errors
	if !errors.As(err, &errs) {
		errs = strictyaml.Errors{{Rule: err.Error()}}
	}
	for _, e := range errs {
		c.at(Error, "Syntax", "", e.Rule, "kube-scheduler does not start", "")
		if e.Line > 0 {
			c.findings[len(c.findings)-1].Line = e.Line + c.doc.above
		}
	}
}

// locateText returns the configuration: the file itself, or a value in a ConfigMap of the file.
func (c *checker) locateText() (text []byte, found bool) {
	parts := partsOf(c.Data)
	for _, part := range parts {
		var object struct {
			Kind string            `json:"kind"`
			Data map[string]string `json:"data"`
		}
		root, err := strictyaml.Parse(c.File, part.text)
		if err == nil {
			_ = root.Decode(&object) // other kinds have other fields
		}
		switch object.Kind {
		case "ConfigMap":
			for _, key := range slices.Sorted(maps.Keys(object.Data)) {
				if value := object.Data[key]; holdsConfiguration(value) {
					c.doc.root = root
					c.doc.above, c.doc.inner = part.above+c.doc.line("data["+key+"]"), true
					return []byte(value), true
				}
			}
		case "KubeSchedulerConfiguration", "Policy":
			if len(parts) > 1 {
				c.doc.above, c.doc.inner = part.above, true
				return part.text, true
			}
		}
	}
	if len(parts) < 2 {
		return c.Data, true
	}
	c.at(Error, "Syntax", "", "there is no KubeSchedulerConfiguration in the file, and no ConfigMap that holds one", "there is nothing to read: "+rejected, "")
	return nil, false
}

// part is one of the documents of a file, and how many lines are above it.
type part struct {
	text  []byte
	above int
}

// separator is a line between documents. The content of a ConfigMap is indented, so it has none.
var (
	separator = regexp.MustCompile(`(?m)^---[ \t]*(?:[ \t]#.*)?\r?$`)
	content   = regexp.MustCompile(`(?m)^[ \t]*[^ \t\r\n#]`)
)

// partsOf returns the documents of a file, without empty ones.
func partsOf(data []byte) []part {
	var parts []part
	start := 0
	for _, s := range append(separator.FindAllIndex(data, -1), []int{len(data), len(data)}) {
		if text := data[start:s[0]]; content.Match(text) {
			parts = append(parts, part{text, bytes.Count(data[:start], []byte("\n"))})
		}
		start = s[1]
	}
	return parts
}

func holdsConfiguration(text string) bool {
	return strings.Contains(text, "kind: KubeSchedulerConfiguration") || strings.Contains(text, "kind: Policy") || strings.Contains(text, `"Policy"`)
}

// apply returns the file with the edits of the findings.
func (c *checker) apply() ([]byte, error) {
	for _, f := range c.findings {
		if f.Code == "LegacyPolicy" {
			result, _, err := wiring.Migrate(c.File, c.Data)
			return result, err
		}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(c.Data, &root); err != nil {
		return nil, err
	}
	for _, f := range c.findings {
		for _, e := range f.edits {
			if err := e.apply(root.Content[0]); err != nil {
				return nil, err
			}
		}
	}
	return encode(&root)
}

// minorOf returns the minor version of a version such as v1.37.0, or 0 for "".
func minorOf(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	v, err := version.ParseGeneric(text)
	if err != nil || v.Major() != 1 {
		return 0, fmt.Errorf("version %q: must be such as 1.37 or v1.37.0", text)
	}
	return int(v.Minor()), nil
}

// since reports whether kube-scheduler has the minor version or a later one, or its version is unknown.
func (c *checker) since(minor int) bool { return c.minor == 0 || c.minor >= minor }
