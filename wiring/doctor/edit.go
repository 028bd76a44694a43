package doctor

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edit is a change of a YAML document.
type edit struct {
	op   operation
	path string // of the field, such as extenders[0].tlsConfig.caFile
	to   string // of rename: the name; of move: the path of a list
	text string // of set: the value, as YAML
}

type operation int

const (
	setField operation = iota // creates the mappings around it if needed
	removeField
	renameField
	moveToList // adds the value, or the items of the value, to a list, and removes it
)

func set(path, text string) edit    { return edit{op: setField, path: path, text: text} }
func setText(path, s string) edit   { return set(path, quoted(s)) }
func remove(path string) edit       { return edit{op: removeField, path: path} }
func rename(path, name string) edit { return edit{op: renameField, path: path, to: name} }
func move(path, list string) edit   { return edit{op: moveToList, path: path, to: list} }

// quoted returns a string as YAML.
func quoted(s string) string {
	text, err := yaml.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(string(text), "\n")
}

// apply makes the change. It is no error if the field does not exist: an earlier edit may have removed it.
func (e edit) apply(root *yaml.Node) error {
	switch e.op {
	case setField:
		return setNode(root, e.path, e.text)
	case removeField:
		parent, i := locate(root, e.path)
		if parent != nil {
			cut(parent, i)
		}
	case renameField:
		if parent, i := locate(root, e.path); parent != nil && parent.Kind == yaml.MappingNode {
			parent.Content[i].Value = e.to
		}
	case moveToList:
		parent, i := locate(root, e.path)
		if parent == nil {
			return nil
		}
		key, value := parent.Content[i], parent.Content[i+1]
		cut(parent, i)
		return appendTo(root, e.to, key, value)
	}
	return nil
}

// cut removes the item i of a list, or the field with key i of a mapping.
func cut(parent *yaml.Node, i int) {
	n := 1
	if parent.Kind == yaml.MappingNode {
		n = 2
	}
	parent.Content = append(parent.Content[:i], parent.Content[i+n:]...)
}

// locate returns the mapping or list around the field at path, and the index of its key or item; nil
// if it does not exist.
func locate(root *yaml.Node, path string) (parent *yaml.Node, index int) {
	value := root
	for _, step := range steps(path) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		parent, index = value, find(value, step)
		switch {
		case index < 0:
			return nil, 0
		case value.Kind == yaml.MappingNode:
			value = value.Content[index+1]
		default:
			value = value.Content[index]
		}
	}
	return parent, index
}

// steps splits a path into names and indices.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
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

// setNode sets the field at path. It keeps the comments of a value that it replaces.
func setNode(root *yaml.Node, path, text string) error {
	var value yaml.Node
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fresh := value.Content[0]
	at := root
	names := steps(path)
	for i, step := range names {
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		index := find(at, step)
		switch {
		case index < 0 && at.Kind != yaml.MappingNode:
			return nil
		case index < 0:
			next := &yaml.Node{Kind: yaml.MappingNode, Style: at.Style & yaml.FlowStyle}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: step}, next)
			index = len(at.Content) - 2
		}
		if at.Kind == yaml.MappingNode {
			index++
		}
		if i == len(names)-1 {
			old := at.Content[index]
			fresh.HeadComment, fresh.LineComment, fresh.FootComment = old.HeadComment, old.LineComment, old.FootComment
			fresh.Style |= at.Style & yaml.FlowStyle
			at.Content[index] = fresh
			return nil
		}
		if next := at.Content[index]; next.Kind == yaml.ScalarNode { // null
			at.Content[index] = &yaml.Node{Kind: yaml.MappingNode}
		}
		at = at.Content[index]
	}
	return nil
}

// appendTo adds the value of a field, or its items if it is a list, to the list at path, which it
// creates if needed. The comments of the field move to the first item.
func appendTo(root *yaml.Node, path string, key, value *yaml.Node) error {
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	}
	if len(items) > 0 {
		comments := []string{key.HeadComment, strings.TrimSpace(key.LineComment + "\n" + value.LineComment), items[0].HeadComment}
		items[0].HeadComment = strings.Join(slices.DeleteFunc(comments, func(s string) bool { return s == "" }), "\n")
		value.LineComment = ""
	}
	if parent, _ := locate(root, path); parent == nil {
		if err := setNode(root, path, "[]"); err != nil {
			return err
		}
	}
	parent, i := locate(root, path)
	list := parent.Content[i+1]
	if len(list.Content) == 0 {
		list.Style &^= yaml.FlowStyle
	}
	list.Content = append(list.Content, items...)
	return nil
}

// encode writes a document with the indentation of Kubernetes' own files.
func encode(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}
