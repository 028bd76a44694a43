package doctor

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// correction changes the tree of a configuration to what it is meant to be, for the checks that
// follow. It is no error if the field does not exist: an earlier correction may have removed it.
type correction func(root *yaml.Node)

func rename(path, name string) correction {
	return func(root *yaml.Node) {
		if parent, i := locate(root, path); parent != nil {
			parent.Content[i].Value = name
		}
	}
}

// move moves the value of a field, or the items of the value, to a list at the top. It wraps a
// scalar as the field that name names.
func move(path, list, name string) correction {
	return func(root *yaml.Node) {
		parent, i := locate(root, path)
		if parent == nil {
			return
		}
		value := parent.Content[i+1]
		parent.Content = slices.Delete(parent.Content, i, i+2)
		items := []*yaml.Node{value}
		switch {
		case name != "":
			items[0] = &yaml.Node{Kind: yaml.MappingNode, Line: value.Line, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: value.Line}, value}}
		case value.Kind == yaml.SequenceNode:
			items = value.Content
		}
		at := find(root, list)
		if at < 0 {
			at = len(root.Content)
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: list, Line: value.Line}, &yaml.Node{Kind: yaml.SequenceNode, Line: value.Line})
		}
		to := root.Content[at+1]
		if to.Kind == yaml.ScalarNode { // null
			*to = yaml.Node{Kind: yaml.SequenceNode, Line: to.Line}
		}
		if to.Kind == yaml.SequenceNode {
			to.Content = append(to.Content, items...)
		}
	}
}

// locate returns the mapping or list around the field at path, and the index of its key or item;
// nil if it does not exist.
func locate(root *yaml.Node, path string) (parent *yaml.Node, index int) {
	value := root
	for step := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		parent, index = value, find(value, step)
		if index < 0 {
			return nil, 0
		}
		value = *valueOf(parent, index)
	}
	return parent, index
}

// valueOf returns where the item of a list, or the value of the key of a mapping, is.
func valueOf(parent *yaml.Node, i int) **yaml.Node {
	if parent.Kind == yaml.MappingNode {
		i++
	}
	return &parent.Content[i]
}

// find returns the index of a key or an item; -1 if it is not there.
func find(n *yaml.Node, step string) int {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return i
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return i
		}
	}
	return -1
}
