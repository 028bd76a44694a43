package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"outboard.dev/outboard/app"
	"outboard.dev/outboard/internal/config"
)

// schema is the part of a JSON Schema that the page shows.
type schema struct {
	Description          string
	Type                 any // a string, or a list of them
	Const                string
	Enum                 []any
	Default              any
	Pattern              string
	Minimum              *json.Number
	ExclusiveMinimum     *json.Number
	Maximum              *json.Number
	Items                *schema
	Properties           map[string]*schema
	Required             []string
	AdditionalProperties json.RawMessage
	OneOf, AllOf         []*schema
	If, Then, Not        *schema
}

// readSchema returns what the command schema prints.
func readSchema() (*schema, error) {
	var out bytes.Buffer
	cmd := app.NewCommand()
	cmd.SetArgs([]string{"check", "--schema"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(&out)
	decoder.UseNumber()
	s := &schema{}
	return s, decoder.Decode(s)
}

// configuration returns the page about the configuration file.
func configuration() (string, error) {
	root, err := readSchema()
	if err != nil {
		return "", err
	}
	d := newDocument("Configuration", "the comments, types and defaults of configurations, by outboard check --schema")
	atOnce := slices.DeleteFunc(slices.Sorted(maps.Keys(root.Properties)), func(name string) bool {
		return slices.Contains(config.ReadAtStart(), name)
	})
	d.paragraph(introduction, strings.Join(atOnce, "` or `"))
	d.table([]string{"type", "form"}, forms)
	d.line("## OutboardConfiguration\n")
	var rows [][]string
	for _, name := range root.names() {
		f := root.Properties[name]
		kind := typeOf(f)
		if path, inner := below(name, f); inner != nil {
			kind = "[" + kind + "](#" + anchor(path) + ")"
		}
		rows = append(rows, []string{code(name), kind, defaultOf(f, slices.Contains(root.Required, name)), plain(f.description())})
	}
	d.table(fieldHeader, rows)
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		if path, inner := below(name, root.Properties[name]); inner != nil {
			section(d, path, inner, "")
		}
	}
	for _, one := range policiesOf(root) {
		name, s := one.If.Properties["type"].Const, one.Then.Properties["config"]
		text := strings.TrimSpace(strings.TrimPrefix(s.Description, "The configuration of the policy."))
		if len(s.Properties) == 0 {
			continue
		}
		section(d, name, s, fmt.Sprintf("[%s](../../policies/%s/README.md). %s", name, strings.ToLower(name), plain(text)))
	}
	return strings.TrimSuffix(d.String(), "\n"), nil
}

// policiesOf returns the rules of the schema about the configuration of each policy.
func policiesOf(root *schema) []*schema {
	return root.Properties["profiles"].Items.Properties["policies"].Items.AllOf
}

const introduction = "The fields of Outboard's configuration file, with those of each policy and source of signals. `[]` is an item of a list. The\n" +
	"sections with the name of a policy are its `profiles[].policies[].config`. `null` is the same as an absent field.\n\n" +
	"A change of `%s` takes effect at once, by a reload, and one of another field after a restart. `outboard check` reports all errors of a file."

var fieldHeader = []string{"field", "type", "default", "description"}

// forms are the forms of types that have a name of their own.
var forms = [][]string{
	{"duration", "a number with a unit, such as `500ms`, `30s`, `5m` or `1h30m`"},
	{"label selector", "`matchLabels` and `matchExpressions`, as in Kubernetes"},
	{"source", "the key of either an `annotation` or a `label`"},
	{"match", "a `key`, and the `values` that match; without `values`, any value matches"},
}

// formOf returns the name of the object's form, by its fields; "" if it has none.
func (s *schema) formOf() string {
	switch strings.Join(slices.Sorted(maps.Keys(s.Properties)), " ") {
	case "matchExpressions matchLabels":
		return "label selector"
	case "annotation label":
		return "source"
	case "key values":
		return "match"
	}
	return ""
}

// below returns the path and schema of the object that a field with this path has, or whose items
// it has; "" if it has none, or one that may have any fields.
func below(path string, s *schema) (string, *schema) {
	for s.Items != nil {
		s, path = s.Items, path+"[]"
	}
	if len(s.Properties) == 0 {
		return "", nil
	}
	return path, s
}

// section writes the section about the fields of an object, with those of the objects in it.
func section(d *document, heading string, s *schema, text string) {
	d.line("## %s\n", heading)
	if text = strings.TrimSpace(text + " " + s.alternatives()); text != "" {
		d.paragraph("%s", text)
	}
	rows, _ := fieldRows("", s, map[string]string{})
	d.table(fieldHeader, rows)
}

// fieldRows returns a row for each field of the object at prefix, each followed by those of the
// fields in it. Equal fields of several objects have one row: the text says where those without are,
// and seen has the paths of the others.
func fieldRows(prefix string, s *schema, seen map[string]string) (rows [][]string, same string) {
	elsewhere := map[string][]string{}
	for _, name := range s.names() {
		f := s.Properties[name]
		path, inner := below(prefix+name, f)
		text := plain(f.description())
		key := fmt.Sprint(name, text, typeOf(f), len(f.Properties))
		if first := seen[key]; first != "" && len(text) > 20 {
			elsewhere[first] = append(elsewhere[first], code(name))
			continue
		}
		seen[key] = strings.TrimSuffix(prefix, ".")
		at := len(rows)
		rows = append(rows, []string{code(prefix + name), typeOf(f), defaultOf(f, slices.Contains(s.Required, name)), ""})
		if inner != nil && inner.formOf() == "" {
			below, same := fieldRows(path+".", inner, seen)
			rows = append(rows, below...)
			text += " " + inner.alternatives() + same
		}
		rows[at][3] = strings.Join(strings.Fields(text), " ")
	}
	for _, object := range slices.Sorted(maps.Keys(elsewhere)) {
		same += fmt.Sprintf(" %s as in %s.", strings.Join(elsewhere[object], ", "), code(object))
	}
	return rows, same
}

// names returns the names of the object's fields, those that are required first.
func (s *schema) names() []string {
	return slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		if x, y := slices.Contains(s.Required, a), slices.Contains(s.Required, b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}

// alternatives says which fields of the object exclude each other.
func (s *schema) alternatives() string {
	var all []string
	for _, rule := range s.AllOf {
		switch {
		case rule.Not != nil:
			all = append(all, fmt.Sprintf("At most one of `%s` may be set.", strings.Join(rule.Not.Required, "` and `")))
		case rule.If == nil:
			var fields []string
			for _, alternative := range rule.OneOf {
				if len(alternative.Required) > 0 { // not null
					fields = append(fields, "`"+alternative.Required[0]+"`")
				}
			}
			all = append(all, fmt.Sprintf("Exactly one of %s is required.", strings.Join(fields, ", ")))
		}
	}
	return strings.Join(all, " ")
}

// typeOf returns the type of a field, with its values and limits.
func typeOf(s *schema) string {
	if s.Items != nil {
		kind := typeOf(s.Items)
		for _, one := range []string{"string", "object", "match"} {
			kind = strings.Replace(kind, one, one+"s", 1)
		}
		return "list of " + strings.Replace(kind, "matchs", "matches", 1)
	}
	if len(s.Properties) > 0 {
		kind := cmp.Or(s.formOf(), "object")
		if word := strings.Trim(s.Pattern, "^$"); word != "" {
			kind += " or `" + word + "`"
		}
		return kind
	}
	if s.Enum != nil {
		var values []string
		for _, v := range s.Enum {
			switch v {
			case nil:
			case "":
				values = append(values, code(`""`))
			default:
				values = append(values, code(fmt.Sprint(v)))
			}
		}
		return strings.Join(values, ", ")
	}
	return s.scalar() + s.limits()
}

func (s *schema) scalar() string {
	if strings.Contains(s.Pattern, "ns|us|") {
		return "duration"
	}
	types := fmt.Sprint(s.Type)
	for _, name := range []string{"object", "string", "boolean", "integer", "number"} {
		if strings.Contains(types, name) {
			if name == "object" && len(s.AdditionalProperties) > 0 && s.AdditionalProperties[0] == '{' {
				return "map"
			}
			return name
		}
	}
	return "depends on `type`"
}

// limits returns the limits of a number or a duration, except those that all numbers of its
// Go type have.
func (s *schema) limits() string {
	if s.Pattern != "" {
		m := saysLimits.FindStringSubmatch(s.Description)
		if m == nil {
			return ""
		}
		return ", " + m[1] + " to " + m[2]
	}
	least, most := s.Minimum, s.Maximum
	if least != nil && *least == "-2147483648" {
		least = nil
	}
	if most != nil && *most == "2147483647" {
		most = nil
	}
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf(", %s to %s", *least, *most)
	case s.ExclusiveMinimum != nil && most != nil:
		return fmt.Sprintf(", more than %s, at most %s", *s.ExclusiveMinimum, *most)
	case least != nil:
		return fmt.Sprintf(", at least %s", *least)
	case most != nil:
		return fmt.Sprintf(", at most %s", *most)
	}
	return ""
}

func defaultOf(s *schema, required bool) string {
	if required {
		return "required"
	}
	switch v := s.Default.(type) {
	case nil:
		if m := saysDefault.FindStringSubmatch(s.Description); m != nil { // of a pointer
			return code(strings.Trim(m[1], `"`))
		}
		return ""
	case []any:
		if len(v) > 0 && s.Items != nil && len(s.Items.Properties) > 0 {
			return "as described"
		}
	case string:
		return code(shortDuration(s, v))
	}
	text, err := json.Marshal(s.Default)
	if err != nil {
		return ""
	}
	return code(string(text))
}

// shortDuration returns 5m for 5m0s, and other text unchanged.
func shortDuration(s *schema, v string) string {
	if s.scalar() != "duration" {
		return v
	}
	for _, zero := range []string{"m0s", "h0m"} {
		if short, ok := strings.CutSuffix(v, zero); ok {
			v = short + zero[:1]
		}
	}
	return v
}

var (
	saysDefault  = regexp.MustCompile(` Default (true|false|"[^"]*"|[^ ,:;]+)\.( |$)`)
	saysLimits   = regexp.MustCompile(` Must be between ([^ ]+) and ([^ ]+)\.$`) // as Limits.Rule of package fields
	saysRequired = regexp.MustCompile(`\bRequired(?:, and |; |\.(?: |$))`)
)

// description returns what the other columns do not say.
func (s *schema) description() string {
	text := saysLimits.ReplaceAllString(s.Description, "")
	text = saysDefault.ReplaceAllString(text, "$2")
	if s.Default != nil {
		text = strings.ReplaceAll(text, " (the default)", "")
	}
	text = strings.TrimSuffix(text, " Default: none.")
	text = sentences(saysRequired.ReplaceAllString(text, ""))
	if s.Minimum != nil && s.Maximum != nil {
		text = strings.Replace(text, fmt.Sprintf(", %s..%s.", *s.Minimum, *s.Maximum), ".", 1)
	}
	return strings.TrimSpace(text)
}

var afterStop = regexp.MustCompile(`\. [a-z]+[ .]`)

// sentences returns the text with a capital letter after each full stop.
func sentences(text string) string {
	return afterStop.ReplaceAllStringFunc(text, func(start string) string { return ". " + strings.ToUpper(start[2:3]) + start[3:] })
}
