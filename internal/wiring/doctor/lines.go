package doctor

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kubernetesyaml "sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config/manifest"
)

// lineEditor edits the lines of a YAML text, so that all other lines stay as they are. Its methods return false if an edit
// needs more than whole lines or one scalar.
type lineEditor struct {
	lines []string
	root  *yaml.Node // of the lines
}

// inLines returns the text with the edits, or nil if its value then is not that of want.
func inLines(text []byte, edits []edit, want []byte) []byte {
	if manifest.IsJSON(text) {
		return nil
	}
	end := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		end = "\r\n"
	}
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	for _, e := range edits {
		document, err := parseYAML([]byte(strings.Join(lines, "\n")))
		if err != nil {
			return nil
		}
		l := &lineEditor{lines, document.Content[0]}
		if !l.apply(e) {
			return nil
		}
		lines = l.lines
	}
	got := []byte(strings.Join(lines, end) + end)
	value, err := kubernetesyaml.YAMLToJSONStrict(got)
	if err != nil {
		return nil
	}
	wanted, err := kubernetesyaml.YAMLToJSONStrict(want)
	if err != nil || !bytes.Equal(value, wanted) {
		return nil
	}
	return got
}

func (l *lineEditor) apply(e edit) bool {
	switch e.op {
	case setField:
		return l.set(e.path, strings.TrimSuffix(e.text, "\n"))
	case removeField:
		parent, i := locate(l.root, e.path)
		return parent == nil || l.remove(parent, i)
	case renameField:
		parent, i := locate(l.root, e.path)
		return parent == nil || parent.Kind == yaml.MappingNode && l.replace(parent.Content[i], e.to)
	}
	return false
}

// set sets the field at path.
func (l *lineEditor) set(path, value string) bool {
	at, key := l.root, l.root
	names := steps(path)
	for i, name := range names {
		index := find(at, name)
		if index < 0 {
			return at.Kind == yaml.MappingNode && !slices.ContainsFunc(names[i:], isIndex) && l.insert(at, names[i:], value)
		}
		if key = at.Content[index]; at.Kind == yaml.MappingNode {
			index++
		}
		at = at.Content[index]
	}
	if at.Kind == yaml.SequenceNode {
		return l.replaceList(key, at, value)
	}
	return l.replace(at, value)
}

// replace replaces a scalar on one line.
func (l *lineEditor) replace(n *yaml.Node, value string) bool {
	before, after, ok := l.around(n)
	if ok = ok && !strings.Contains(value, "\n"); ok {
		l.lines[n.Line-1] = before + value + after
	}
	return ok
}

// around returns the text around a scalar that is written on one line as its value, perhaps in quotes.
func (l *lineEditor) around(n *yaml.Node) (before, after string, ok bool) {
	quote, known := map[yaml.Style]string{0: "", yaml.DoubleQuotedStyle: `"`, yaml.SingleQuotedStyle: "'"}[n.Style]
	if !known || n.Kind != yaml.ScalarNode || n.Value == "" {
		return "", "", false
	}
	before, rest := l.split(n)
	after, ok = strings.CutPrefix(rest, quote+n.Value+quote)
	return before, after, ok
}

// split returns the text before a value on its first line, and the rest of the line.
func (l *lineEditor) split(n *yaml.Node) (before, rest string) {
	if n.Line < 1 || n.Line > len(l.lines) {
		return "", ""
	}
	line := []rune(l.lines[n.Line-1])
	column := min(max(0, n.Column-1), len(line))
	return string(line[:column]), string(line[column:])
}

// insert adds a field, with mappings around it if there are several names, at the end of a mapping.
func (l *lineEditor) insert(mapping *yaml.Node, names []string, value string) bool {
	if len(mapping.Content) == 0 {
		return false
	}
	if mapping.Style&yaml.FlowStyle != 0 {
		last := mapping.Content[len(mapping.Content)-1]
		after, ok := l.after(last)
		if !ok || len(names) > 1 || strings.Contains(value, "\n") {
			return false
		}
		l.lines[last.Line-1] = strings.TrimSuffix(l.lines[last.Line-1], after) + ", " + names[0] + ": " + value + after
		return true
	}
	indent := mapping.Content[0].Column - 1
	at := l.end(mapping)
	for at < len(l.lines) && isComment(l.lines[at]) && indentation(l.lines[at]) >= indent {
		at++ // it is about the line above
	}
	var fresh []string
	for i, name := range names {
		fresh = append(fresh, strings.Repeat(" ", indent+2*i)+name+":")
	}
	if strings.Contains(value, "\n") {
		fresh = append(fresh, indented(value, indent+2*(len(names)-1))...)
	} else {
		fresh[len(fresh)-1] += " " + value
	}
	l.lines = slices.Insert(l.lines, at, fresh...)
	return true
}

// replaceList replaces the items of a list. The comments between them move above the key.
func (l *lineEditor) replaceList(key, list *yaml.Node, value string) bool {
	from, to := key.Line, l.end(list)
	if list.Style&yaml.FlowStyle != 0 || !strings.Contains(value, "\n") || l.commented(from, to) {
		return false
	}
	above := slices.DeleteFunc(slices.Clone(l.lines[from:to]), func(line string) bool { return !isComment(line) })
	for i, line := range above {
		above[i] = strings.Repeat(" ", key.Column-1) + strings.TrimLeft(line, " ")
	}
	l.lines = slices.Replace(l.lines, from, to, indented(value, list.Column-1)...)
	l.lines = slices.Insert(l.lines, from-1, above...)
	return true
}

// remove removes the item i of a list, or the field with key i of a mapping. Its comments stay.
func (l *lineEditor) remove(parent *yaml.Node, i int) bool {
	first, last, mark := parent.Content[i], parent.Content[i], "-"
	if parent.Kind == yaml.MappingNode {
		last, mark = parent.Content[i+1], ""
	}
	if parent.Style&yaml.FlowStyle != 0 {
		return l.removeInline(first, last)
	}
	if before, _ := l.split(first); strings.TrimSpace(before) != mark {
		return false
	}
	from, to := first.Line-1, l.end(last)
	if l.commented(from, to) {
		return false
	}
	kept := slices.DeleteFunc(slices.Clone(l.lines[from:to]), func(line string) bool { return !isComment(line) })
	if len(kept) == 0 && to < len(l.lines) && isBlank(l.lines[to]) && (from == 0 || isBlank(l.lines[from-1])) {
		to++
	}
	l.lines = slices.Replace(l.lines, from, to, kept...)
	return true
}

// after returns the text after a value that is written on one line.
func (l *lineEditor) after(n *yaml.Node) (string, bool) {
	if n.Style&yaml.FlowStyle == 0 || len(n.Content) == 0 {
		_, after, ok := l.around(n)
		return after, ok
	}
	last := n.Content[len(n.Content)-1]
	after, ok := l.after(last)
	after = strings.TrimLeft(after, " ")
	if !ok || after == "" || !strings.Contains("}]", after[:1]) || last.Line != n.Line {
		return "", false
	}
	return after[1:], true
}

// removeInline removes what is from a key to a value on the same line, with the comma after it or before it.
func (l *lineEditor) removeInline(first, last *yaml.Node) bool {
	before, _, ok := l.around(first)
	after, found := l.after(last)
	if !ok || !found || first.Line != last.Line {
		return false
	}
	if rest, comma := strings.CutPrefix(strings.TrimLeft(after, " "), ","); comma {
		after = strings.TrimLeft(rest, " ")
	} else {
		before = strings.TrimSuffix(strings.TrimRight(before, " "), ",")
	}
	l.lines[first.Line-1] = before + after
	return true
}

// commented reports whether one of the lines has a comment after a value.
func (l *lineEditor) commented(from, to int) bool {
	return slices.ContainsFunc(l.lines[from:to], func(line string) bool { return !isComment(line) && strings.Contains(line, " #") })
}

// end returns the number of the last line of a value, without the comments and blank lines after it.
func (l *lineEditor) end(n *yaml.Node) int {
	last, next := 0, len(l.lines)+1
	each(n, func(part *yaml.Node) { last = max(last, part.Line) })
	each(l.root, func(other *yaml.Node) {
		if other.Line > last {
			next = min(next, other.Line)
		}
	})
	for next-1 > last && (isComment(l.lines[next-2]) || isBlank(l.lines[next-2])) {
		next--
	}
	return next - 1
}

// each calls f for a node and all nodes in it.
func each(n *yaml.Node, f func(*yaml.Node)) {
	f(n)
	for _, child := range n.Content {
		each(child, f)
	}
}

func isBlank(line string) bool   { return strings.TrimSpace(line) == "" }
func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }
func indentation(line string) int {
	return len(line) - len(strings.TrimLeft(line, " "))
}

// indented returns the lines of a text, indented.
func indented(text string, by int) (all []string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Repeat(" ", by)+strings.TrimSuffix(line, "\n"))
	}
	return all
}
