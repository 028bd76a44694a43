package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of a document. They are far above those of real documents, and bound the
// time and memory for a hostile one.
const (
	// MaxBytes is the longest document accepted.
	MaxBytes = 1 << 20
	// maxValues counts mappings, lists, keys and scalars with aliases written out.
	maxValues = 100_000
	// maxText is how many bytes of scalars and keys there may be with aliases
	// written out.
	maxText = 4 * MaxBytes
	// maxDepth is how deep mappings and lists may nest.
	maxDepth = 64
	// maxKey is the longest key, in bytes.
	maxKey = 1024
)

// document is shared by all values of one text.
type document struct {
	file string
	// errs are the errors that do not depend on the Go type. The rest of the document is decoded
	// nevertheless.
	errs Errors
}

// Value is one part of a document with its position. The zero Value is absent.
// As a field of a struct, a Value keeps its part to decode it later. Values are
// immutable and may be used concurrently.
type Value struct {
	doc  *document
	node *yaml.Node
	path *field.Path
	line int
}

// IsZero reports whether the value is absent or null.
func (v Value) IsZero() bool { return v.node == nil || isNull(resolve(v.node)) }

// Line is the value's line in its document; for an absent value, that of the innermost value around
// it.
func (v Value) Line() int { return v.line }

// IsBlock reports whether the value is written as a block of lines, after | or >.
func (v Value) IsBlock() bool {
	return v.node != nil && resolve(v.node).Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// Path is the value's path in its document; "" for the whole.
func (v Value) Path() string { return pathText(v.path) }

func (v Value) file() string {
	if v.doc == nil {
		return ""
	}
	return v.doc.file
}

// Parse reads one document. file is its name in errors. If the text is not valid
// YAML, Parse returns an error of type [Errors]. Decode reports errors that leave the rest
// readable, such as a duplicate key, together with its own.
func Parse(file string, data []byte) (Value, error) {
	fatal := func(line int, rule string) (Value, error) {
		return Value{}, Errors{{File: file, Line: line, Rule: rule}}
	}
	if len(data) > MaxBytes {
		return fatal(0, fmt.Sprintf("must not be longer than %d bytes", MaxBytes))
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if line, rule := checkText(data); rule != "" {
		return fatal(line, rule)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var top, second yaml.Node
	switch err := decoder.Decode(&top); {
	case errors.Is(err, io.EOF):
		return fatal(1, "must not be empty")
	case err != nil:
		return fatal(explain(data, err))
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return fatal(explain(data, err))
	default:
		return fatal(second.Line, "must be one document: a second one begins here")
	}
	root := top.Content[0]
	if isNull(root) {
		return fatal(root.Line, "must not be empty")
	}
	return FromNode(file, root)
}

// FromNode is Parse for a value that yaml.v3 has parsed. The caller must not change it afterwards.
func FromNode(file string, root *yaml.Node) (Value, error) {
	c := checker{file: file, open: map[*yaml.Node]bool{}, checked: map[*yaml.Node]bool{}}
	if !c.check(root, nil, 0) {
		return Value{}, Join(c.errs)
	}
	return Value{doc: &document{file: file, errs: c.errs}, node: root, line: root.Line}, nil
}

// A directive is only valid at the beginning of a line. The YAML parser takes
// quadratic time for many of them, so checkText rejects them before.
var directive = regexp.MustCompile(`(?:^|[\n\r\x{85}\x{2028}\x{2029}])%`)

// checkText finds errors for which the YAML parser has worse messages. It returns an
// empty rule if there are none.
func checkText(data []byte) (line int, rule string) {
	lineAt := func(offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }
	for offset := 0; offset < len(data); {
		r, size := utf8.DecodeRune(data[offset:])
		switch {
		case r == utf8.RuneError && size == 1:
			return lineAt(offset), "not valid UTF-8"
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7F:
			return lineAt(offset), fmt.Sprintf("not valid YAML: control character %q", r)
		}
		offset += size
	}
	if at := directive.FindIndex(data); at != nil {
		return lineAt(at[1] - 1), "not supported: a line that begins with %"
	}
	return 0, ""
}

var (
	yamlLine      = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	tabIndent     = regexp.MustCompile(`(?m)^ *\t`)
	// parserErrors matches errors of the YAML parser itself, whose line counts from 0.
	parserErrors = regexp.MustCompile(`^did not find expected (?:<|node content|key|'-'|',')|^found undefined tag handle`)
)

// blockErrors matches errors of the YAML parser about wrong indentation. Their line is that of the
// beginning of the mapping or list.
var blockErrors = regexp.MustCompile(`^did not find expected (?:key|'-' indicator)`)

// firstLine returns the line that causes the error of the YAML parser: the last of the shortest
// beginning of data with that error.
func firstLine(data []byte, err error) int {
	ends := []int{0}
	for at, c := range data {
		if c == '\n' {
			ends = append(ends, at+1)
		}
	}
	ends = append(ends, len(data))
	return sort.Search(len(ends)-1, func(lines int) bool {
		var n yaml.Node
		got := yaml.Unmarshal(data[:ends[lines]], &n)
		return got != nil && got.Error() == err.Error()
	})
}

// explain turns an error of the YAML parser into a line and a rule. The parser
// writes the line in three ways, depending on which of its layers found the error.
func explain(data []byte, err error) (line int, rule string) {
	match := yamlLine.FindStringSubmatch(err.Error())
	if match == nil {
		return 0, "not valid YAML: " + oneLine(err.Error())
	}
	line, _ = strconv.Atoi(match[1])
	problem := match[2]
	if anchor := unknownAnchor.FindStringSubmatch(problem); anchor != nil {
		at := max(0, bytes.Index(data, []byte("*"+anchor[1])))
		return 1 + bytes.Count(data[:at], []byte("\n")), "not valid YAML: no anchor &" + clip(printable(anchor[1]), 80) + " before this"
	}
	switch {
	case blockErrors.MatchString(problem):
		line = firstLine(data, err)
	case parserErrors.MatchString(problem):
		line++
	}
	line = max(1, line)
	if strings.Contains(problem, "tab character") || strings.Contains(problem, "cannot start any token") {
		for _, at := range tabIndent.FindAllIndex(data, -1) {
			if tab := 1 + bytes.Count(data[:at[0]], []byte("\n")); tab >= line {
				return tab, "not valid YAML: indented with a tab, use spaces"
			}
		}
	}
	return line, "not valid YAML: " + oneLine(problem)
}

// checker finds the errors of a document that do not depend on the Go type.
type checker struct {
	file    string
	errs    Errors
	values  int
	text    int
	open    map[*yaml.Node]bool // anchored values around the one being checked
	checked map[*yaml.Node]bool // anchored values whose errors are reported already
	silent  bool                // inside an alias to one of those
}

func (c *checker) fail(n *yaml.Node, path *field.Path, kind, value, rule string) {
	if !c.silent && len(c.errs) <= maxErrors {
		c.errs = append(c.errs, &Error{File: c.file, Line: n.Line, Path: pathText(path), Kind: kind, Value: value, Rule: rule})
	}
}

// giveUp reports an error after which check cannot continue.
func (c *checker) giveUp(n *yaml.Node, path *field.Path, rule string) bool {
	c.silent = false
	c.fail(n, path, "", "", rule)
	return false
}

// check checks n with aliases expanded. It returns false if the
// document cannot be decoded at all.
func (c *checker) check(n *yaml.Node, path *field.Path, depth int) bool {
	c.values++
	c.text += len(n.Value)
	switch {
	case c.values > maxValues || c.text > maxText:
		return c.giveUp(n, nil, fmt.Sprintf("must not have more than %d values or %d bytes of text, with aliases expanded", maxValues, maxText))
	case depth > maxDepth:
		return c.giveUp(n, nil, fmt.Sprintf("must not nest deeper than %d", maxDepth))
	case n.Kind == yaml.AliasNode:
		return c.checkAlias(n, path, depth)
	case n.Style&yaml.TaggedStyle != 0:
		c.fail(n, path, "", "", "not supported: tag "+clip(printable(n.Tag), 80))
	}
	if n.Anchor != "" {
		c.open[n] = true
		defer func() { delete(c.open, n); c.checked[n] = true }()
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			if !c.check(item, path.Index(i), depth+1) {
				return false
			}
		}
	case yaml.MappingNode:
		return c.checkMapping(n, path, depth)
	}
	return true
}

func (c *checker) checkAlias(n *yaml.Node, path *field.Path, depth int) bool {
	if c.open[n.Alias] {
		return c.giveUp(n, path, "not valid YAML: &"+clip(printable(n.Value), 80)+" contains itself")
	}
	if c.checked[n.Alias] && !c.silent {
		c.silent = true
		defer func() { c.silent = false }()
	}
	return c.check(n.Alias, path, depth)
}

func (c *checker) checkMapping(n *yaml.Node, path *field.Path, depth int) bool {
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		c.values++
		c.text += len(n.Content[i].Value)
		key, value := n.Content[i], n.Content[i+1]
		name, ok := keyText(key)
		switch {
		case key.Tag == "!!merge":
			c.fail(key, path, "", "", "not supported: merge key <<: write the fields instead")
		case len(key.Value) > maxKey:
			c.fail(key, path, "Invalid key", describe(key), "must not be longer than "+strconv.Itoa(maxKey)+" bytes")
		case key.Kind != yaml.ScalarNode:
			c.fail(key, path, "Invalid key", describe(key), "must be a string: if the file is a template, such as a chart's, render it first")
		case !ok:
			c.fail(key, path, "Invalid key", describe(key), "must be a string: put it in quotes")
		case first[name] != 0:
			c.fail(key, childPath(path, name), "Duplicate field", "", "already set on line "+strconv.Itoa(first[name]))
		default:
			first[name] = key.Line
		}
		if !c.check(value, childPath(path, name), depth+1) {
			return false
		}
	}
	return true
}

// keyText returns the text of a mapping's key, and false if it is no plain
// string.
func keyText(key *yaml.Node) (string, bool) {
	ok := key.Kind == yaml.ScalarNode && key.Style&yaml.TaggedStyle == 0 && classify(key) == text && len(key.Value) <= maxKey
	if !ok {
		return "", false
	}
	return key.Value, true
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func childPath(path *field.Path, name string) *field.Path {
	if identifier.MatchString(name) {
		return path.Child(name)
	}
	return path.Key(name)
}

// resolve follows an alias. An alias never leads to another one.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// find returns the node at path below v, or nil, and its line or that of the innermost node
// around it.
func (v Value) find(path string) (*yaml.Node, int) {
	n, line := v.node, v.line
	for n != nil && path != "" {
		n, path = step(resolve(n), path, &line)
	}
	return n, line
}

// step goes one step down the path rel. It returns nil if there is no such value.
func step(n *yaml.Node, rel string, line *int) (*yaml.Node, string) {
	switch n.Kind {
	case yaml.SequenceNode:
		inner, ok := strings.CutPrefix(rel, "[")
		index, rest, closed := strings.Cut(inner, "]")
		i, err := strconv.Atoi(index)
		if !ok || !closed || err != nil || i < 0 || i >= len(n.Content) {
			return nil, ""
		}
		*line = n.Content[i].Line
		return n.Content[i], rest
	case yaml.MappingNode:
		var found *yaml.Node
		remain := rel
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			rest, ok := cutKey(rel, key.Value)
			if ok && (found == nil || len(rest) < len(remain)) {
				found, remain, *line = n.Content[i+1], rest, key.Line
			}
		}
		return found, remain
	}
	return nil, ""
}

// cutKey cuts key, written as "key", ".key" or "[key]", off the beginning of rel.
func cutKey(rel, key string) (rest string, ok bool) {
	if rest, ok := strings.CutPrefix(rel, "["+key+"]"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(strings.TrimPrefix(rel, "."), key)
	return rest, ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
