package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policy/fields"
)

// configuration is a KubeSchedulerConfiguration with PEM data in base64, as in the file.
type configuration struct {
	schedulerv1.KubeSchedulerConfiguration
	Profiles  []profile  `json:"profiles"`
	Extenders []extender `json:"extenders"`
}

type profile struct {
	schedulerv1.KubeSchedulerProfile
	PluginConfig []pluginConfig `json:"pluginConfig"`
}

type pluginConfig struct {
	Name string           `json:"name"`
	Args strictyaml.Value `json:"args"`
	args runtime.Object   // Args decoded; nil if kube-scheduler knows no type for them
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

// document is the KubeSchedulerConfiguration in a file, as it is meant: misspelled and misplaced
// fields are corrected.
type document struct {
	source source
	tree   *yaml.Node
	root   strictyaml.Value
	config configuration
	// refusal says why kube-scheduler cannot decode the text; nil: it can.
	refusal error
	// former is the Policy of which the configuration is made, for the lines.
	former strictyaml.Value
}

// source is the text of a configuration in a file.
type source struct {
	manifest.Text
	whole *manifest.Text // all that kube-scheduler is given, such as the text with further documents
}

// line returns the line of the file with the field at path, or with what is nearest around it.
func (d *document) line(path string) int {
	root := d.root
	if !d.former.IsZero() {
		root = d.former
	}
	line := root.At(path).Line()
	if line == 0 {
		return 0
	}
	return d.source.Line(line)
}

// read finds and decodes the configuration. It returns false if there is nothing more to check.
func (c *checker) read() bool {
	found := c.locate()
	c.doc.refusal = accepted(c.doc.source.whole.Data)
	if !found || !c.parse(c.doc.source.Data) {
		return false
	}
	_ = c.doc.root.Decode(&c.doc.config)
	if c.isPolicy() {
		former := c.doc.root
		c.at(Error, "LegacyPolicy", "kind", "this is a Policy of kube-scheduler 1.22 and earlier",
			"kube-scheduler 1.23 and later has no flag for a Policy, and does not start with one as --config; kubectl apply fails with \"no matches for kind\"",
			"outboard setup scheduler --from "+c.File+" converts it")
		c.findings[len(c.findings)-1].refused = true
		converted, _, err := wiring.Migrate(c.File, c.doc.source.Data, wiring.Options{})
		if err != nil {
			c.findings[len(c.findings)-1].Fix = "correct it, and then convert it with outboard setup scheduler --from " + c.File + ": " + err.Error()
			return false
		}
		if !c.parse(converted) {
			return false
		}
		c.doc.former = former
	} else if !c.isConfiguration() || c.unindented() {
		return false
	}
	c.fields(c.spelling())
	return true
}

var yamlLine = regexp.MustCompile(`yaml: line (\d+):`)

// parse reads the text. If it cannot, it reports why.
func (c *checker) parse(text []byte) bool {
	_, err := strictyaml.Parse(c.File, text)
	if err == nil {
		var document yaml.Node
		if err = yaml.Unmarshal(text, &document); err == nil {
			c.doc.tree = plain(document.Content[0])
			if line := template(c.doc.tree); line > 0 {
				err = strictyaml.Errors{{Line: line, Rule: "the key of a field is a mapping: if the file is a template, such as a chart's, render it first"}}
			} else {
				c.doc.root, err = strictyaml.FromNode(c.File, c.doc.tree)
			}
		}
	}
	if err == nil {
		return true
	}
	if c.doc.refusal != nil && !strings.Contains(c.doc.refusal.Error(), "yaml:") {
		return false // kube-scheduler's parser reads it
	}
	if c.unindented() {
		return false
	}
	for _, e := range errorsOf(err) {
		line := 0
		if e.Line > 0 {
			line = c.doc.source.Line(e.Line)
		}
		if m := yamlLine.FindStringSubmatch(fmt.Sprint(c.doc.refusal)); m != nil {
			line, _ = strconv.Atoi(m[1]) // that kube-scheduler names
			line = c.doc.source.whole.Line(line)
		}
		if c.doc.refusal == nil {
			c.at(Warning, "Syntax", "", e.Rule, "kube-scheduler reads the file, and outboard check --scheduler cannot check it", "")
		} else {
			c.refuse("Syntax", "", e.Rule, "", "")
		}
		if line > 0 {
			c.findings[len(c.findings)-1].Line = line
		}
	}
	return false
}

// template returns the line of a key that is no scalar, which is what YAML makes of {{ … }}; 0 if
// there is none.
func template(n *yaml.Node) int {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind != yaml.ScalarNode {
			return child.Line
		}
		if line := template(child); line > 0 {
			return line
		}
	}
	return 0
}

func errorsOf(err error) strictyaml.Errors {
	var errs strictyaml.Errors
	if err != nil && !errors.As(err, &errs) {
		errs = strictyaml.Errors{{Rule: err.Error()}}
	}
	return errs
}

// isPolicy reports whether the document is a Policy, which had no kind in the first versions.
func (c *checker) isPolicy() bool { return policyIs(c.doc.root) }

func policyIs(root strictyaml.Value) bool {
	var header struct{ Kind, APIVersion string }
	_ = root.At("kind").Decode(&header.Kind)
	_ = root.At("apiVersion").Decode(&header.APIVersion)
	return header.Kind == "Policy" || header.Kind == "" && (header.APIVersion == "v1" || header.APIVersion == "" && (!root.At("predicates").IsZero() || !root.At("priorities").IsZero()))
}

// isConfiguration reports whether the document is a KubeSchedulerConfiguration, or is meant to be
// one.
func (c *checker) isConfiguration() bool {
	const kind = ofScheduler
	found := c.doc.config.Kind
	switch {
	case found == kind:
		return true
	case found == config.Kind:
		c.refuse("Kind", "kind", "this is a configuration of Outboard", "kube-scheduler reads a KubeSchedulerConfiguration only",
			"outboard check "+c.File+" checks this file; name kube-scheduler's file with --scheduler")
		return false
	case strings.HasPrefix(c.doc.config.APIVersion, "kubescheduler.config.k8s.io/"), strings.EqualFold(found, kind):
		c.refuse("Kind", "kind", fmt.Sprintf("kind is %q", found), "kube-scheduler reads a KubeSchedulerConfiguration only", "set kind: "+kind)
		return true
	}
	message, fix := fmt.Sprintf("kind is %q", found), "name kube-scheduler's file"
	switch {
	case !c.doc.root.At("urlPrefix").IsZero():
		c.refuse("MisplacedExtenders", "kind", "this is one extender, and no configuration", "kube-scheduler reads a KubeSchedulerConfiguration only", "put it into the list extenders of kube-scheduler's file, or of the one that outboard setup scheduler prints")
		return false
	case found == "" && slices.ContainsFunc(strictyaml.Fields(&configuration{}), func(name string) bool { return !c.doc.root.At(name).IsZero() }):
		fix = "set kind: " + kind
	case schedulerArguments.Match(c.Data):
		message, fix = "the file has arguments of kube-scheduler, and no KubeSchedulerConfiguration", "name the file that kube-scheduler has as --config: see the argument config"
	}
	c.refuse("Kind", "kind", message, "kube-scheduler reads a KubeSchedulerConfiguration only", fix)
	return false
}

// locate finds the configuration: the first document of the file, or a value in a ConfigMap.
func (c *checker) locate() bool {
	whole := manifest.Text{Data: c.Data}
	parts := documents(&whole)
	c.doc.source = source{whole, &whole}
	var all []source
	first := -1
	for i := range parts {
		found := configurations(&parts[i])
		if len(found) > 0 && first < 0 {
			first = i
		}
		all = append(all, found...)
	}
	switch {
	case len(all) > 0:
	case len(parts) == 0:
		c.refuse("Syntax", "", "the file is empty", "there is nothing to read", startHere)
		return false
	case len(parts) == 1 && !isConfigMap(&parts[0]):
		c.doc.source = parts[0]
		return true
	default:
		c.refuse("Syntax", "", "there is no KubeSchedulerConfiguration in the file, and no ConfigMap that holds one", "there is nothing to read", startHere)
		return false
	}
	c.doc.source = all[0]
	for t := &c.doc.source.Text; t != nil; t = t.Around {
		if t.Path != "" {
			c.inside = strings.TrimSuffix(t.Path+": "+c.inside, ": ")
		}
	}
	if first > 0 && all[0].whole.Around == nil {
		c.refuse("IgnoredDocument", "kind", "the configuration is not the first document of the file", "kube-scheduler reads the first one only", "move it into a file of its own")
		c.findings[0].Line = all[0].Line(1)
	}
	for _, other := range all[1:] {
		c.at(Warning, "IgnoredDocument", "", "another configuration begins here", "kube-scheduler reads the first document of a file only, and outboard check --scheduler has not checked this one", "move it into a file of its own, or remove it")
		c.findings[len(c.findings)-1].Line = other.Line(1)
	}
	return true
}

func isConfigMap(p *source) bool {
	kind, _ := p.Object()
	return kind == configMap
}

// documents returns the documents of a text, without empty ones.
func documents(whole *manifest.Text) (all []source) {
	for _, part := range whole.Documents() {
		if manifest.IsJSON(part.Data) {
			part.Data = escape.ReplaceAllFunc(part.Data, func(e []byte) []byte { // YAML has no escape for a slash
				return bytes.Replace(e, []byte(`\/`), []byte("/"), 1)
			})
		}
		all = append(all, source{part, whole})
	}
	return all
}

// configurations returns the configurations in one document: itself, those in a ConfigMap, or those
// inside another object.
func configurations(p *source) (all []source) {
	kind, values := p.Object()
	another := kind != "" && fields.Nearest(kind, []string{ofScheduler, "Policy"}) == ""
	if kind != configMap && (kind == "" || another) {
		parts := p.Embedded(ofScheduler, embedded)
		for i := range parts {
			for _, inner := range documents(&parts[i]) {
				all = append(all, configurations(&inner)...)
			}
		}
		if len(all) > 0 || another {
			return all
		}
	}
	if kind != configMap {
		if !holdsConfiguration(string(p.Data)) {
			return nil
		}
		return []source{*p}
	}
	for i := range values {
		if holdsConfiguration(string(values[i].Data)) {
			all = append(all, documents(&values[i])...)
		}
	}
	return all
}

// embedded reports whether an object in another one is a configuration, and which lines Talos adds
// above it.
func embedded(path string, object *yaml.Node) (header string, ok bool) {
	if i := find(object, "kind"); i >= 0 || !strings.HasSuffix(path, "cluster.scheduler.config") {
		return "", i >= 0 && object.Content[i+1].Value == ofScheduler
	}
	if find(object, "apiVersion") < 0 {
		header = "apiVersion: " + apiVersion + "\n"
	}
	return header + "kind: " + ofScheduler + "\n", true
}

var (
	// schedulerArguments are those in files of k3s and RKE2, and of kubeadm, kind and Talos.
	schedulerArguments = regexp.MustCompile(`kube-scheduler-arg|scheduler"?:\s[^#]*extraArgs`)
	// escape is an escape in JSON.
	escape  = regexp.MustCompile(`\\.`)
	typical = regexp.MustCompile(`"?(?:predicates|priorities|extenders)"?\s*:|kubescheduler\.config\.k8s\.io|KubeSchedulerConfiguration|"?kind"?\s*:\s*["']?Policy\b`)
)

func holdsConfiguration(text string) bool { return typical.MatchString(text) }

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

// since reports whether kube-scheduler has the minor version or a later one, or its version is
// unknown.
func (c *checker) since(minor int) bool { return c.minor == 0 || c.minor >= minor }
