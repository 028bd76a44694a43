package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"outboard.dev/outboard/internal/wiring"
)

// edit is a change of a YAML document.
type edit struct {
	op   operation
	path string // of the field, such as extenders[0].tlsConfig.caFile
	to   string // of rename and nest: the name; of move: the path of a list
	text string // of set: the value, as YAML
}

type operation int

const (
	setField operation = iota // creates the mappings around it if needed
	removeField
	renameField
	moveToList // adds the value, or the items of the value, to a list, and removes it
	nestField  // replaces a value by a mapping with the value as its only field
	hoistField // replaces a field by the fields of its value, unless one of them is there
	convert    // replaces a Policy by what it is now
)

func set(path, text string) edit    { return edit{op: setField, path: path, text: text} }
func setText(path, s string) edit   { return set(path, wiring.Quoted(s)) }
func remove(path string) edit       { return edit{op: removeField, path: path} }
func hoist(path string) edit        { return edit{op: hoistField, path: path} }
func rename(path, name string) edit { return edit{op: renameField, path: path, to: name} }
func nest(path, name string) edit   { return edit{op: nestField, path: path, to: name} }
func move(path, list string) edit   { return edit{op: moveToList, path: path, to: list} }

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
		if parent, i := locate(root, e.path); parent != nil && parent.Kind == yaml.MappingNode && find(parent, e.to) < 0 {
			parent.Content[i].Value = e.to
		}
	case hoistField:
		if parent, i := locate(root, e.path); parent != nil {
			hoistNode(parent, i)
		}
	case nestField:
		if parent, i := locate(root, e.path); parent != nil && parent.Kind == yaml.SequenceNode {
			parent.Content[i] = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: e.to}, parent.Content[i]}}
		}
	case moveToList:
		parent, i := locate(root, e.path)
		if parent == nil {
			return nil
		}
		key, value := parent.Content[i], parent.Content[i+1]
		parent.Content = slices.Delete(parent.Content, i, i+2)
		return appendTo(root, e.to, key, value)
	}
	return nil
}

// cut removes the item i of a list, or the field with key i of a mapping. Its comments move to the next one.
func cut(parent *yaml.Node, i int) {
	n := 1
	if parent.Kind == yaml.MappingNode {
		n = 2
	}
	comments := ""
	for _, removed := range parent.Content[i : i+n] {
		comments = lines(comments, commentsOf(removed))
	}
	parent.Content = slices.Delete(parent.Content, i, i+n)
	switch {
	case comments == "":
	case i < len(parent.Content):
		parent.Content[i].HeadComment = lines(comments, parent.Content[i].HeadComment)
	case i > 0:
		parent.Content[i-n].FootComment = lines(parent.Content[i-n].FootComment, comments)
	default:
		parent.HeadComment = lines(parent.HeadComment, comments)
	}
}

// hoistNode replaces the field with key i of a mapping by the fields of its value.
func hoistNode(parent *yaml.Node, i int) {
	value := parent.Content[i+1]
	if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		return
	}
	for j := 0; j+1 < len(value.Content); j += 2 {
		if find(parent, value.Content[j].Value) >= 0 {
			return
		}
	}
	key, fields := parent.Content[i], value.Content
	value.Content = nil
	fields[0].HeadComment = lines(commentsOf(key), commentsOf(value), fields[0].HeadComment)
	parent.Content = slices.Replace(parent.Content, i, i+2, fields...)
}

// commentsOf returns all comments of a value.
func commentsOf(n *yaml.Node) string {
	all := lines(n.HeadComment, n.LineComment)
	for _, child := range n.Content {
		all = lines(all, commentsOf(child))
	}
	return lines(all, n.FootComment)
}

// lines joins texts that are not empty.
func lines(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
}

// locate returns the mapping or list around the field at path, and the index of its key or item; nil
// if it does not exist.
func locate(root *yaml.Node, path string) (parent *yaml.Node, index int) {
	value := root
	for _, step := range steps(path) {
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

func isIndex(step string) bool { return decimal.MatchString(step) }

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

// setNode sets the field at path. It keeps the comments of a value that it replaces. The tree has no aliases.
func setNode(root *yaml.Node, path, text string) error {
	var value yaml.Node
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fresh := value.Content[0]
	at := root
	names := steps(path)
	for i, step := range names {
		index := find(at, step)
		switch {
		case index < 0 && (at.Kind != yaml.MappingNode || slices.ContainsFunc(names[i:], isIndex)):
			return nil // there is no such item
		case index < 0:
			next := &yaml.Node{Kind: yaml.MappingNode, Style: at.Style & yaml.FlowStyle, Line: at.Line}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: step, Line: at.Line}, next)
			index = len(at.Content) - 2
		}
		if at.Kind == yaml.MappingNode {
			index++
		}
		if i == len(names)-1 {
			old := at.Content[index]
			fresh.HeadComment, fresh.LineComment, fresh.FootComment = old.HeadComment, old.LineComment, old.FootComment
			if len(old.Content) > 0 {
				old.HeadComment, old.LineComment, old.FootComment = "", "", ""
				above := at.Content[max(0, index-1)]
				above.HeadComment = lines(above.HeadComment, commentsOf(old))
			}
			fresh.Style |= at.Style & yaml.FlowStyle
			if at.Kind == yaml.SequenceNode && fresh.Kind != yaml.ScalarNode && fresh.Style&yaml.FlowStyle == 0 { // it would be lost
				fresh.HeadComment, fresh.LineComment = lines(fresh.HeadComment, fresh.LineComment), ""
			}
			at.Content[index] = fresh
			return nil
		}
		if next := at.Content[index]; next.Kind == yaml.ScalarNode && !slices.ContainsFunc(names[i+1:], isIndex) { // null
			at.Content[index] = &yaml.Node{Kind: yaml.MappingNode, Style: at.Style & yaml.FlowStyle, HeadComment: lines(next.HeadComment, next.LineComment), FootComment: next.FootComment}
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
		above := lines(key.HeadComment, key.LineComment)
		if value.Kind == yaml.SequenceNode {
			above = lines(above, value.HeadComment, value.LineComment)
			last := items[len(items)-1]
			last.FootComment = lines(last.FootComment, value.FootComment)
		}
		items[0].HeadComment = lines(above, items[0].HeadComment)
		last := items[len(items)-1]
		last.FootComment = lines(last.FootComment, key.FootComment)
	}
	if parent, _ := locate(root, path); parent == nil {
		if err := setNode(root, path, "[]"); err != nil {
			return err
		}
	}
	parent, i := locate(root, path)
	list := parent.Content[i+1]
	if list.Kind == yaml.ScalarNode { // null
		*list = yaml.Node{Kind: yaml.SequenceNode, HeadComment: lines(list.HeadComment, list.LineComment), FootComment: list.FootComment}
	}
	if list.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s is no list", path)
	}
	if len(list.Content) == 0 {
		list.Style &^= yaml.FlowStyle
	}
	list.Content = append(list.Content, items...)
	return nil
}

// parseYAML reads a text. Lines end as in Unix.
func parseYAML(text []byte) (*yaml.Node, error) {
	var document yaml.Node
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("the document is empty")
	}
	keepComments(document.Content[0], strings.Split(string(text), "\n"))
	return &document, nil
}

// properties are the tag and the anchor of a value that begins on the next line, with a comment.
var properties = regexp.MustCompile(`^(?:[!&]\S*[ \t]+)+(#.*)$`)

// keepComments adds the comments between a tag or an anchor and a value in flow style, which the parser loses.
func keepComments(n *yaml.Node, text []string) {
	if n.Style&yaml.FlowStyle == 0 {
		for _, child := range n.Content {
			keepComments(child, text)
		}
		return
	}
	if n.LineComment != "" || n.Line < 1 || n.Line > len(text) {
		return
	}
	line := []rune(text[n.Line-1])
	if m := properties.FindStringSubmatch(string(line[min(max(0, n.Column-1), len(line)):])); m != nil {
		n.LineComment = m[1]
	}
}

// encode writes a document with the indentation of Kubernetes' own files, and with the blank lines of its former text. JSON
// stays JSON, because kube-scheduler reads whatever begins with { as JSON.
func encode(document *yaml.Node, former []byte) ([]byte, error) {
	var b bytes.Buffer
	if json.Valid(former) {
		if err := encodeJSON(&b, document.Content[0]); err != nil {
			return nil, err
		}
	} else {
		keepBlankLines(document.Content[0], bytes.Split(former, []byte("\n")))
		encoder := yaml.NewEncoder(&b)
		encoder.SetIndent(2)
		encoder.CompactSeqIndent()
		if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
			return nil, err
		}
	}
	text := blankLine.ReplaceAll(b.Bytes(), nil)
	if bytes.Contains(former, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text, nil
}

// A comment stands for a blank line while the text is encoded.
const blank = "#(blank line)"

var blankLine = regexp.MustCompile(`(?m)^[ \t]*#\(blank line\)$`)

// keepBlankLines adds comments to the fields and items that have a blank line above them, and keeps comments that would be lost.
func keepBlankLines(n *yaml.Node, former [][]byte) {
	if n.Style&yaml.FlowStyle != 0 {
		return
	}
	for i := 1; i < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i-1], n.Content[i]
		switch {
		case value.Kind == yaml.ScalarNode, value.Style&yaml.FlowStyle != 0: // it would be encoded elsewhere
			key.HeadComment, key.LineComment = lines(key.HeadComment, key.LineComment), ""
		case len(value.Content) == 0: // it would be lost
			key.HeadComment, value.HeadComment, value.FootComment = lines(key.HeadComment, value.HeadComment, value.FootComment), "", ""
			fallthrough
		default:
			key.HeadComment, value.LineComment = lines(key.HeadComment, value.LineComment), ""
		}
	}
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	}
	for i, child := range n.Content {
		if i%step == 0 && i > 0 && child.Column > 0 { // it is from the file
			above := child.Line - 2
			if child.HeadComment != "" {
				above -= 1 + strings.Count(child.HeadComment, "\n")
			}
			if above >= 0 && above < len(former) && len(bytes.TrimSpace(former[above])) == 0 {
				child.HeadComment = strings.TrimSuffix(blank+"\n"+child.HeadComment, "\n")
			}
		}
		keepBlankLines(child, former)
	}
}

func encodeJSON(b *bytes.Buffer, root *yaml.Node) error {
	var value yaml.Node // in the order of the file
	asJSON(root, &value)
	data, err := yaml.Marshal(&value)
	if err != nil {
		return err
	}
	return json.Indent(b, data, "", "  ")
}

// asJSON copies a tree in the style of JSON.
func asJSON(n, into *yaml.Node) {
	*into = yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: yaml.FlowStyle}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		into.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		into.Content = append(into.Content, &yaml.Node{})
		asJSON(child, into.Content[len(into.Content)-1])
	}
}
