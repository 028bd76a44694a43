// Package manifest finds texts in files of Kubernetes manifests: documents, and values in
// ConfigMaps.
package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"outboard.dev/outboard/internal/config/strictyaml"
)

// Text is a file, a document of one, or a value in a ConfigMap.
type Text struct {
	Data []byte

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
			all = append(all, Text{Data: data, above: t.Line(bytes.Count(t.Data[:start], []byte("\n"))), oneLine: t.oneLine})
		}
		start = s[1]
	}
	return all
}

// IsJSON reports whether Kubernetes reads a text as JSON and not as YAML.
func IsJSON(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

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
			values = append(values, Text{Data: []byte(data[key]), above: t.Line(at.Line()), oneLine: !at.IsBlock()})
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
