package doctor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	kubernetesyaml "sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
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
	text   manifest.Text
	whole  manifest.Text // all that kube-scheduler is given, such as the text with further documents
	tree   *yaml.Node    // the text as JSON, with the lines of the text
	root   strictyaml.Value
	config configuration
	// refusal says why kube-scheduler cannot decode the text; nil: it can.
	refusal error
}

// line returns the line of the file with the field at path, or with what is nearest around it.
func (d *document) line(path string) int {
	line := d.root.At(path).Line()
	if line == 0 {
		return 0
	}
	return d.text.Line(line)
}

// read finds and decodes the configuration. It returns false if there is nothing more to check.
func (c *checker) read() bool {
	found := c.locate()
	c.doc.refusal = accepted(c.doc.whole.Data)
	if !found || !c.parse(c.doc.text.Data) {
		return false
	}
	_ = c.doc.root.Decode(&c.doc.config)
	return c.isConfiguration() && c.fields()
}

// parse reads the text as kube-scheduler does. If it cannot, it reports why.
func (c *checker) parse(text []byte) bool {
	var values, lines yaml.Node
	asJSON, err := kubernetesyaml.YAMLToJSON(text)
	if manifest.IsJSON(text) { // it may have escapes that YAML does not have
		var object any
		if err = json.Unmarshal(text, &object); err == nil {
			asJSON, err = json.Marshal(object)
		}
	}
	if err == nil {
		err = yaml.Unmarshal(asJSON, &values)
	}
	if err == nil && len(values.Content) > 0 {
		if yaml.Unmarshal(text, &lines) == nil && len(lines.Content) > 0 { // else, findings have no lines
			setLines(values.Content[0], lines.Content[0], 0)
		}
		c.doc.tree = values.Content[0]
		c.doc.root, err = strictyaml.FromNode(c.File, c.doc.tree)
	}
	if err != nil && c.doc.refusal == nil {
		c.omit("the fields of the file", err.Error())
	}
	return err == nil
}

// setLines gives the values of a tree the lines that they have in another one, which may have
// aliases. line is that of what has no other, such as what comes from a merge key.
func setLines(to, from *yaml.Node, line int) {
	if from != nil && from.Kind == yaml.AliasNode {
		from = from.Alias
	}
	if from != nil {
		line = from.Line
	}
	to.Line = line
	for i, item := range to.Content {
		var same *yaml.Node
		switch {
		case from == nil || from.Kind != to.Kind:
		case to.Kind == yaml.SequenceNode && i < len(from.Content):
			same = from.Content[i]
		case to.Kind == yaml.MappingNode:
			if at := find(from, to.Content[i-i%2].Value); at >= 0 {
				same = from.Content[at+i%2]
			}
		}
		setLines(item, same, line)
	}
}

// isConfiguration reports whether the document is a KubeSchedulerConfiguration, or is meant to be
// one.
func (c *checker) isConfiguration() bool {
	kind, v := c.doc.config.Kind, c.doc.config.APIVersion
	c.undecodable = kind != ofScheduler || v != apiVersion
	switch {
	case kind == ofScheduler && v != apiVersion:
		c.refuse("Syntax", "apiVersion", fmt.Sprintf("apiVersion is %q", v), "", "set apiVersion: "+apiVersion)
	case kind == "Policy" || kind == "" && (!c.doc.root.At("predicates").IsZero() || !c.doc.root.At("priorities").IsZero()):
		c.refuse("Syntax", "kind", "this is a Policy, which only kube-scheduler 1.22 and earlier read", "", "move its extenders into a "+ofScheduler+", as docs/from-the-tutorials.md says")
		return false
	case kind != ofScheduler && strings.HasPrefix(v, "kubescheduler.config.k8s.io/"):
		c.refuse("Syntax", "kind", fmt.Sprintf("kind is %q", kind), "", "set kind: "+ofScheduler)
	case kind == config.Kind:
		c.refuse("Syntax", "kind", "this is a configuration of Outboard", "", "outboard check "+c.File+" checks this file; name kube-scheduler's file with --scheduler")
		return false
	case kind != ofScheduler:
		c.refuse("Syntax", "kind", fmt.Sprintf("kind is %q, and not %s", kind, ofScheduler), "", startHere)
		return false
	}
	return true
}

// undecoded reports what kube-scheduler's own decoder refuses and no other finding names. What it
// says of a key that is set twice counts also beside other findings.
func (c *checker) undecoded() {
	if c.doc.refusal == nil {
		return
	}
	text := c.doc.refusal.Error()
	twice := setTwice.FindAllStringSubmatch(text, -1)
	for _, m := range twice {
		line, _ := strconv.Atoi(m[1])
		c.refuseAt("Syntax", c.doc.whole.Line(line), "", m[2]+" is set twice", "", "remove one of the two")
	}
	emptyFirst := c.doc.config.Kind == ofScheduler && strings.HasPrefix(text, "Object 'Kind' is missing")
	if len(twice) > 0 || c.undecodable && !emptyFirst {
		return
	}
	message, _, _ := strings.Cut(strings.Replace(text, " in '", "\n", 1), "\n") // some have the whole text
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	c.refuseAt("Syntax", c.doc.whole.Line(line), "", "kube-scheduler does not read the file: "+message, "", "")
}

var (
	yamlLine = regexp.MustCompile(`yaml: line (\d+):`)
	setTwice = regexp.MustCompile(`line (\d+): key "?([^"\n]*)"? already set in map`)
)

// accepted returns an error if kube-scheduler cannot decode the text. It knows the versions, fields
// and plugin arguments of the API, and not its validation.
func accepted(text []byte) error {
	scheme := runtime.NewScheme()
	if err := schedulerv1.AddToScheme(scheme); err != nil {
		return err
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	_, err := runtime.Decode(codecs.UniversalDecoder(schedulerv1.SchemeGroupVersion), text)
	return err
}

// locate finds the configuration: the first document of the file, or a value in a ConfigMap.
func (c *checker) locate() bool {
	file := manifest.Text{Data: c.Data}
	c.doc.text, c.doc.whole = file, file
	type found struct{ text, whole manifest.Text }
	var all []found
	parts := file.Documents()
	for _, part := range parts {
		kind, values := part.Object()
		another := kind != "" && fields.Nearest(kind, []string{ofScheduler, "Policy"}) == ""
		if !another && typical.Match(part.Data) || len(parts) == 1 && kind != configMap {
			all = append(all, found{part, file})
		}
		for _, value := range values {
			for _, document := range value.Documents() {
				if typical.Match(value.Data) {
					all = append(all, found{document, value})
				}
			}
		}
	}
	if len(all) == 0 {
		c.undecodable = true
		c.refuse("Syntax", "", "there is no KubeSchedulerConfiguration in the file, and no ConfigMap that holds one", "", startHere)
		return false
	}
	c.doc.text, c.doc.whole = all[0].text, all[0].whole
	if c.doc.whole.Line(1) == 1 && c.doc.text.Line(1) != parts[0].Line(1) {
		c.refuseAt("Syntax", c.doc.text.Line(1), "kind", "the configuration is not the first document of the file", "kube-scheduler reads the first one only", "move it into a file of its own")
	}
	for _, other := range all[1:] {
		c.omit(fmt.Sprintf("the configuration that begins in line %d", other.text.Line(1)), "kube-scheduler reads the first document of a file only")
	}
	return true
}

var typical = regexp.MustCompile(`"?(?:predicates|priorities|extenders)"?\s*:|kubescheduler\.config\.k8s\.io|KubeSchedulerConfiguration|"?kind"?\s*:\s*["']?Policy\b`)

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
