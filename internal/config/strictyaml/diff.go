package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Change is a field that differs between two values.
type Change struct {
	// Path is that of the field in the new value, or in the old one if only that has the field.
	Path string `json:"field"`
	// Old and New are the two values in one line, clipped to the first difference; "" if the field
	// is absent.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// String returns a line such as "profiles[0].shortlist: 8 → 16".
func (c Change) String() string {
	return c.Path + ": " + cmp.Or(redact(c.Old), "none") + " → " + cmp.Or(redact(c.New), "none")
}

// Diff returns the changes from a to b, with paths below path. Mappings in a list are compared by
// their path or name if they have one, else in order; another list is compared as a whole.
func Diff(path string, a, b Value) []Change { return diff(path, a.node, b.node) }

func diff(path string, a, b *yaml.Node) (changes []Change) {
	x, y := inOneLine(a), inOneLine(b)
	before, after := partsOf(a), partsOf(b)
	switch {
	case x == y:
		return nil
	case before == nil || after == nil:
		return []Change{clipped(path, x, y)}
	}
	for _, p := range after {
		if i := find(before, p.key); i >= 0 {
			changes = append(changes, diff(joinPath(path, p.at), before[i].node, p.node)...)
		} else {
			changes = append(changes, Change{Path: joinPath(path, p.at), New: p.text()})
		}
	}
	for _, p := range before {
		if find(after, p.key) < 0 {
			changes = append(changes, Change{Path: joinPath(path, p.at), Old: p.text()})
		}
	}
	return changes
}

// part is a field of a mapping, or an item of a list of mappings.
type part struct {
	key  string // the same in another value
	at   string // its path
	node *yaml.Node
}

func find(parts []part, key string) int {
	return slices.IndexFunc(parts, func(p part) bool { return p.key == key })
}

// text returns the name of an item that has one, and the value of another part.
func (p part) text() string {
	if p.key != p.at {
		return p.key
	}
	return clip(inOneLine(p.node), maxChanged)
}

// partsOf returns the parts of a mapping or a list of mappings; nil for another value.
func partsOf(n *yaml.Node) []part {
	if n == nil {
		return nil
	}
	n = resolve(n)
	parts := []part{}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, part{key: n.Content[i].Value, at: n.Content[i].Value, node: n.Content[i+1]})
		}
		return parts
	case yaml.SequenceNode:
		for i, item := range n.Content {
			key := fmt.Sprintf("[%d]", i)
			p := part{key: key, at: key, node: item}
			for _, field := range partsOf(item) {
				if field.key == "path" || field.key == "name" && p.key == key {
					p.key = field.node.Value
				}
			}
			if resolve(item).Kind != yaml.MappingNode {
				return nil
			}
			parts = append(parts, p)
		}
		return parts
	}
	return nil
}

const (
	maxChanged = 160 // bytes of a value in a Change
	context    = 40  // bytes before the first difference, if the beginning is clipped
)

// clipped returns the change of the field at path from x to y, of which one may be "".
func clipped(path, x, y string) Change {
	same := 0
	for same < min(len(x), len(y)) && x[same] == y[same] {
		same++
	}
	if from := same - context; from > 0 && max(len(x), len(y)) > maxChanged {
		x, y = "…"+strings.ToValidUTF8(x[from:], ""), "…"+strings.ToValidUTF8(y[from:], "")
	}
	return Change{path, clip(x, maxChanged), clip(y, maxChanged)}
}

// inOneLine returns n as JSON, or without quotes if it is a text that needs none; "" if n is nil.
func inOneLine(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	if n = resolve(n); n.Kind == yaml.ScalarNode && n.Value != "" && strconv.Quote(n.Value) == `"`+n.Value+`"` {
		return n.Value
	}
	data, _ := (&decoder{}).json(Value{node: n}, nil)
	return string(data)
}
