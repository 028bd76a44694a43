package doctor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// value is a part of a configuration before it is written: a mapping, a list or a scalar.
type value struct {
	fields []field
	items  []*value
	list   bool
	// scalar is the text as in JSON; "" if the value is a mapping or a list.
	scalar string
	// yaml is the text of a scalar in YAML if people write it differently, such as yes for true.
	yaml string
	// anchor is the name of an anchor before the value, and alias that of an earlier one, of which the value is a copy.
	anchor, alias string
	// merged names an anchor of which the mapping has the first fields.
	merged      string
	mergedCount int
}

type field struct {
	name  string
	value *value
}

func text(s string) *value {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return &value{scalar: strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(quoted))}
}

// raw is a scalar that JSON and YAML write in the same way, without quotes: a number, true, false or null.
func raw(s string) *value { return &value{scalar: s} }

func list(items ...*value) *value { return &value{list: true, items: items} }

// mapping has pairs of names and values.
func mapping(pairs ...any) *value {
	v := &value{}
	for i := 0; i < len(pairs); i += 2 {
		v.set(pairs[i].(string), pairs[i+1].(*value))
	}
	return v
}

func (v *value) isMapping() bool { return !v.list && v.scalar == "" }

func (v *value) get(name string) *value {
	for _, f := range v.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// set replaces the value of the field, or adds the field.
func (v *value) set(name string, to *value) {
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields[i].value = to
			return
		}
	}
	v.fields = append(v.fields, field{name, to})
}

func (v *value) remove(name string) {
	v.fields = slices.DeleteFunc(v.fields, func(f field) bool { return f.name == name })
}

func (v *value) rename(name, to string) {
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields[i].name = to
		}
	}
}

// walk calls visit for the value and all values in it.
func (v *value) walk(visit func(*value)) {
	visit(v)
	for _, f := range v.fields {
		f.value.walk(visit)
	}
	for _, item := range v.items {
		item.walk(visit)
	}
}

func (v *value) json(indent, newline string) string {
	inner := newline + indent
	if newline == "" {
		inner = ""
	}
	var parts []string
	for _, f := range v.fields {
		parts = append(parts, fmt.Sprintf("%q: %s", f.name, f.value.json(indent, inner)))
	}
	for _, item := range v.items {
		parts = append(parts, item.json(indent, inner))
	}
	switch {
	case v.scalar != "":
		return v.scalar
	case v.list:
		return "[" + inner + strings.Join(parts, ","+inner) + newline + "]"
	}
	return "{" + inner + strings.Join(parts, ","+inner) + newline + "}"
}

// style is how a person writes YAML.
type style struct {
	*rand.Rand
	indent   string // of mappings
	dash     string // the indentation of lists in mappings
	flow     int    // percent of small mappings and lists that are {} and []
	comments int    // percent of lines with a comment
	blank    int    // percent of fields after a blank line
	quotes   int    // percent of strings in needless quotes
}

func (s *style) percent(p int) bool { return s.IntN(100) < p }

// note returns a comment, or none.
func (s *style) note(before string) string {
	if !s.percent(s.comments) {
		return ""
	}
	return before + "# note"
}

var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._*-]*(:[/0-9][A-Za-z0-9/._:-]*)?$`)

// reserved are the words that are no strings without quotes.
var reserved = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|~)$`)

func (s *style) scalar(v *value) string {
	var str string
	switch {
	case v.yaml != "":
		return v.yaml
	case json.Unmarshal([]byte(v.scalar), &str) != nil || v.scalar == "null":
		return v.scalar
	case plain.MatchString(str) && !reserved.MatchString(str) && !s.percent(s.quotes):
		return str
	case s.percent(50) && !strings.ContainsAny(str, "'\n"):
		return "'" + str + "'"
	}
	return v.scalar
}

// inFlow returns the value in one line, as YAML.
func (s *style) inFlow(v *value) string {
	var parts []string
	for _, f := range v.fields {
		parts = append(parts, f.name+": "+s.inFlow(f.value))
	}
	for _, item := range v.items {
		parts = append(parts, s.inFlow(item))
	}
	before := ""
	if v.anchor != "" {
		before = "&" + v.anchor + " "
	}
	switch {
	case v.alias != "":
		return "*" + v.alias + " "
	case v.scalar != "":
		return before + s.scalar(v)
	case v.list:
		return before + "[" + strings.Join(parts, ", ") + "]"
	}
	return before + "{" + strings.Join(parts, ", ") + "}"
}

func size(v *value) (n int) {
	v.walk(func(*value) { n++ })
	return n
}

func (s *style) oneLine(v *value) bool {
	if v.scalar != "" || v.alias != "" || len(v.fields)+len(v.items) == 0 {
		return true
	}
	return v.merged == "" && size(v) <= 8 && s.percent(s.flow)
}

// lines returns the value as lines without indentation.
func (s *style) lines(v *value) (lines []string) {
	if s.oneLine(v) {
		return []string{s.inFlow(v)}
	}
	add := func(prefix, rest string, inner *value) {
		if note := s.note(""); note != "" {
			lines = append(lines, note)
		}
		if s.oneLine(inner) {
			lines = append(lines, strings.TrimRight(prefix+s.inFlow(inner), " ")+s.note(" "))
			return
		}
		below := s.lines(inner)
		start := strings.TrimRight(prefix, " ")
		if inner.anchor != "" {
			start += " &" + inner.anchor
		}
		if start == "-" {
			lines = append(lines, "- "+below[0])
			below = below[1:]
		} else {
			lines = append(lines, start+s.note(" "))
		}
		for _, line := range below {
			if line != "" {
				line = rest + line
			}
			lines = append(lines, line)
		}
	}
	fields := v.fields
	if v.merged != "" {
		lines = append(lines, "<<: *"+v.merged)
		fields = fields[v.mergedCount:]
	}
	for _, f := range fields {
		if s.percent(s.blank) {
			lines = append(lines, "")
		}
		rest := s.indent
		if f.value.list {
			rest = s.dash
		}
		add(f.name+": ", rest, f.value)
	}
	for _, item := range v.items {
		add("- ", "  ", item)
	}
	return lines
}

// yaml returns the value as a document.
func (s *style) yaml(v *value) string {
	return strings.Join(s.lines(v), "\n") + "\n"
}
