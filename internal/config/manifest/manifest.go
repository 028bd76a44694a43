// Package manifest finds texts in files of Kubernetes manifests: documents, values in ConfigMaps,
// and objects in other objects.
package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// Text is a file, a document of one, a value in a ConfigMap, or an object in a document.
type Text struct {
	Data []byte
	// Around is the text of which this is a part; nil for a file.
	Around *Text
	// Path is the field of the document Around with this object or text, if [Text.Embedded] has
	// found it.
	Path string

	above   int  // how many lines of the file are above Data
	oneLine bool // the value of a ConfigMap is not a block of lines, but a quoted string in line above
}

// Line returns the line of the file with line n of Data, beginning with 1; with 0, the line above
// Data.
func (t *Text) Line(n int) int {
	if t.oneLine {
		return t.above
	}
	return t.above + n
}

var (
	// separator is a line between documents. The content of a ConfigMap is indented, so it has
	// none.
	separator = regexp.MustCompile(`(?m)^---[ \t]*(?:[ \t]#.*)?\r?$\n?`)
	content   = regexp.MustCompile(`(?m)^(?:[ \t]+[^ \t\r\n#]|[^ \t\r\n#%])`) // no comments or directives
)

// Documents returns the documents of a text, without those that are empty. JSON is one document.
func (t *Text) Documents() (all []Text) {
	if IsJSON(t.Data) {
		return []Text{*t}
	}
	start := 0
	for _, s := range append(separator.FindAllIndex(t.Data, -1), []int{len(t.Data), len(t.Data)}) {
		if data := t.Data[start:s[0]]; content.Match(bytes.TrimPrefix(data, []byte("\uFEFF"))) {
			all = append(all, Text{Data: data, Around: t, above: t.Line(bytes.Count(t.Data[:start], []byte("\n"))), oneLine: t.oneLine})
		}
		start = s[1]
	}
	return all
}

// IsJSON reports whether Kubernetes reads a text as JSON and not as YAML.
func IsJSON(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

// Embedded returns the objects in a document for which is returns true, below the lines that it
// returns, and the texts in it that name the kind, as in files for whole machines and clusters.
func (t *Text) Embedded(kind string, is func(path string, object *yaml.Node) (header string, ok bool)) (all []Text) {
	var root yaml.Node
	if yaml.Unmarshal(t.Data, &root) != nil {
		return nil
	}
	lines := bytes.SplitAfter(t.Data, []byte("\n"))
	var find func(n *yaml.Node, path string)
	find = func(n *yaml.Node, path string) {
		switch {
		case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, kind) && strings.Contains(n.Value, "\n"):
			all = append(all, Text{Data: []byte(n.Value), Around: t, Path: path, above: t.Line(n.Line), oneLine: t.oneLine || n.Style&yaml.LiteralStyle == 0})
		case n.Kind == yaml.MappingNode && path != "":
			if header, ok := is(path, n); ok {
				all = append(all, t.object(n, path, header, lines))
				return
			}
		}
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				find(child, fmt.Sprintf("%s[%d]", path, i))
			case n.Kind == yaml.MappingNode && i%2 == 1:
				find(child, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."))
			case n.Kind == yaml.DocumentNode && child.Kind == yaml.MappingNode:
				find(child, path)
			}
		}
	}
	find(&root, "")
	return all
}

// object returns a mapping of the document as a text of its own below header, with its lines if it
// is a block of lines.
func (t *Text) object(n *yaml.Node, path, header string, lines [][]byte) Text {
	text := Text{Data: []byte(header), Around: t, Path: path, above: t.Line(n.Line - 1 - strings.Count(header, "\n")), oneLine: t.oneLine}
	if n.Style&yaml.FlowStyle != 0 {
		text.above, text.oneLine = t.Line(n.Line), true
		n.Style &^= yaml.FlowStyle
		data, _ := yaml.Marshal(n) // it has been parsed
		text.Data = append(text.Data, data...)
		return text
	}
	indent := n.Column - 1
	text.Data = append(text.Data, lines[n.Line-1][indent:]...)
	for _, line := range lines[n.Line:] {
		inner := bytes.TrimLeft(line, " ")
		if own := len(line) - len(inner); own < indent && len(bytes.TrimSpace(inner)) > 0 && inner[0] != '#' {
			break
		}
		text.Data = append(text.Data, line[min(indent, len(line)-len(inner)):]...)
	}
	return text
}

// Object returns the kind of the object in a document, and the values in it by their keys if it is
// a ConfigMap. A list with ConfigMaps, as kubectl get prints it, counts as a ConfigMap with the
// values of all. The kind is "" if the document is not valid.
func (t *Text) Object() (kind string, values []Text) {
	const configMap = "ConfigMap"
	root, err := strictyaml.Parse("", t.Data)
	if err != nil {
		return "", nil
	}
	type header struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	var object struct {
		header
		Items []header `json:"items"`
	}
	_ = root.Decode(&object) // other kinds have other fields
	kind = object.Kind
	add := func(in string, data map[string]string) {
		kind = configMap
		for _, key := range slices.Sorted(maps.Keys(data)) {
			at := root.At(in + "[" + key + "]")
			values = append(values, Text{Data: []byte(data[key]), Around: t, above: t.Line(at.Line()), oneLine: !at.IsBlock()})
		}
	}
	switch kind {
	case configMap:
		add("data", object.Data)
	case "List", configMap + "List":
		for i, item := range object.Items {
			if item.Kind == configMap {
				add(fmt.Sprintf("items[%d].data", i), item.Data)
			}
		}
	}
	return kind, values
}
