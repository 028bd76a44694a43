package doctor

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	kubernetesyaml "sigs.k8s.io/yaml"
)

// plain returns a copy of a tree as kube-scheduler reads it: with aliases, merge keys and tags
// written out, and with the values that YAML 1.1 gives to words such as yes and 010. The tree must
// not contain itself.
func plain(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return plain(n.Alias)
	}
	fresh := *n
	fresh.Anchor, fresh.Content = "", nil
	switch n.Kind {
	case yaml.ScalarNode:
		plainScalar(&fresh)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Tag == "!!merge" {
				merge(&fresh, n, n.Content[i+1])
			} else {
				fresh.Content = append(fresh.Content, plain(n.Content[i]), plain(n.Content[i+1]))
			}
		}
	default:
		for _, item := range n.Content {
			fresh.Content = append(fresh.Content, plain(item))
		}
	}
	if fresh.Style&yaml.TaggedStyle != 0 {
		fresh.Style &^= yaml.TaggedStyle
		fresh.Tag = ""
	}
	return &fresh
}

// merge adds the fields of a mapping, or of a list of mappings, that neither the mapping n nor its
// copy has.
func merge(fresh, n, from *yaml.Node) {
	if from.Kind == yaml.AliasNode {
		from = from.Alias
	}
	if from.Kind == yaml.SequenceNode {
		for _, item := range from.Content {
			merge(fresh, n, item)
		}
		return
	}
	from = plain(from)
	for i := 0; i+1 < len(from.Content); i += 2 {
		if name := from.Content[i].Value; find(n, name) < 0 && find(fresh, name) < 0 {
			fresh.Content = append(fresh.Content, from.Content[i], from.Content[i+1])
		}
	}
}

var (
	decimal = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
	// oldWord is a word that is a boolean in YAML 1.1, and a string in YAML 1.2.
	oldWord = regexp.MustCompile(`^(?:[yYnN]|yes|Yes|YES|on|On|ON|no|No|NO|off|Off|OFF)$`)
)

// plainScalar writes a scalar as in JSON, with the parser of kube-scheduler.
func plainScalar(n *yaml.Node) {
	const quotes = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Tag == "!!str" && n.Style&yaml.TaggedStyle != 0:
		n.Style |= yaml.DoubleQuotedStyle
		return
	case n.Style&yaml.TaggedStyle != 0 && (n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool" || n.Tag == "!!null"):
		n.Style &^= quotes
	}
	switch {
	case n.Style&quotes != 0 && n.Style&yaml.TaggedStyle == 0, len(n.Value) > 64, decimal.MatchString(n.Value), n.Tag == "!!null",
		n.Tag == "!!str" && !oldWord.MatchString(n.Value):
		return
	}
	data, err := kubernetesyaml.YAMLToJSON([]byte(n.Value))
	text := strings.TrimSuffix(string(data), "\n")
	if err != nil || text == "" || strings.ContainsAny(text[:1], `"[{`) {
		return
	}
	n.Value, n.Style = text, n.Style&^quotes
	n.Tag = ""
	n.Tag = n.ShortTag()
}

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
