package strictyaml

import (
	"regexp"

	"go.yaml.in/yaml/v3"
)

// class is the type of a scalar according to YAML 1.1, YAML 1.2 and JSON.
type class int

const (
	text      class = iota
	null            // empty, ~, null
	boolean         // true, false
	integer         // in the syntax of JSON
	number          // in the syntax of JSON, with a fraction or an exponent
	ambiguous       // the type differs between the three
)

var (
	jsonInteger = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
	jsonNumber  = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)
	oldBool     = regexp.MustCompile(`^(?:y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)
)

// classify returns the class of a scalar without a tag.
func classify(n *yaml.Node) class {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Style&quoted != 0:
		return text
	case n.Tag == "!!null":
		return null
	case n.Tag == "!!bool":
		return boolean
	case jsonInteger.MatchString(n.Value):
		return integer
	case jsonNumber.MatchString(n.Value):
		return number
	case n.Tag == "!!str" && !oldBool.MatchString(n.Value), n.Tag == "!!timestamp":
		return text
	}
	return ambiguous
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&yaml.TaggedStyle == 0 && classify(n) == null
}

// describe returns the text of a value in an error: a scalar as in the document, any other
// value by its kind.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	case yaml.AliasNode:
		return "*" + clip(printable(n.Value), 80)
	}
	switch classify(n) {
	case text:
		return render(n.Value)
	case null:
		return "null"
	}
	return clip(printable(n.Value), 80)
}
