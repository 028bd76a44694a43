package main

import (
	"bytes"
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
	cmd.SetArgs([]string{"schema"})
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
func configuration(string) (string, error) {
	root, err := readSchema()
	if err != nil {
		return "", err
	}
	p := configurationPage{document: newDocument("Configuration", "the comments, types and defaults of configurations, by outboard schema"), anchors: map[string]bool{}}
	p.paragraph(introduction)
	p.table([]string{"type", "form"}, forms)
	p.paragraph("`null` is the same as an absent field. A file has no other fields than these.")
	p.line("## Contents\n")
	p.contents("", root)
	policies := policiesOf(root)
	for _, one := range policies {
		p.contents(one.If.Properties["type"].Const, one.Then.Properties["config"])
	}
	p.line("")
	p.object("", "OutboardConfiguration", false, root)
	for _, one := range policies {
		name := one.If.Properties["type"].Const
		p.object(name, name, true, one.Then.Properties["config"])
	}
	return strings.TrimSuffix(p.String(), "\n"), p.err
}

// policiesOf returns the rules of the schema about the configuration of each policy.
func policiesOf(root *schema) []*schema {
	return root.Properties["profiles"].Items.Properties["policies"].Items.AllOf
}

const introduction = "Fields of the configuration file of Outboard, and of each policy and signal source that comes with it. `outboard schema` prints the\n" +
	"same for editors, and `outboard check` reports all errors of a file. A section describes one object by its path: `[]` is an item of a\n" +
	"list. The sections that begin with the name of a policy are its `profiles[].policies[].config`."

// forms are the forms of types that have a name of their own.
var forms = [][]string{
	{"duration", "a number with a unit, such as `500ms`, `30s`, `5m` or `1h30m`"},
	{"size", "a number of bytes, such as `64Ki`, `128Mi` or `1Gi`"},
	{"quantity", "a quantity of Kubernetes, such as `500m`, `1.5` or `200Mi`"},
}

type configurationPage struct {
	*document
	anchors map[string]bool
	err     error
}

// contents writes a line for each object directly below s, or, for a policy, for its configuration.
func (p *configurationPage) contents(policy string, s *schema) {
	if policy != "" {
		p.line("* [`%s`](#%s), a policy", policy, anchor(policy))
		return
	}
	p.line("* [`OutboardConfiguration`](#outboardconfiguration), the file")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if path, _ := below(name, s.Properties[name]); path != "" {
			p.line("* [`%s`](#%s)", path, anchor(path))
		}
	}
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

// object writes the section about the object at path, and those about objects in it. policy says
// that it is the configuration of a policy.
func (p *configurationPage) object(path, heading string, policy bool, s *schema) {
	if p.anchors[anchor(heading)] {
		p.err = fmt.Errorf("two headings have the anchor #%s", anchor(heading))
	}
	p.anchors[anchor(heading)] = true
	p.line("## %s\n", heading)
	if policy {
		p.paragraph("The `config` of a policy with `type: %s`: [README](../../policies/%s/README.md).", path, strings.ToLower(path))
	}
	if text := strings.TrimSpace(strings.TrimPrefix(s.Description, "The configuration of the policy.")); text != "" {
		p.paragraph("%s", plain(text))
	}
	whole, _, _ := strings.Cut(path, ".")
	if !policy && slices.Contains(config.ReadAtStart(), whole) {
		p.line("A change takes effect after a restart.\n")
	}
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	names := s.names()
	var rows [][]string
	for _, name := range names {
		f := s.Properties[name]
		row := []string{code(name), typeOf(prefix+name, f), defaultOf(f, slices.Contains(s.Required, name)), plain(f.description())}
		if path == "" {
			row = append(row, takesEffect(name, f))
		}
		rows = append(rows, row)
	}
	header := []string{"field", "type", "default", "description"}
	if path == "" {
		header = append(header, "a change takes effect")
	}
	if len(rows) > 0 {
		p.table(header, rows)
	} else {
		p.line("It has no fields.\n")
	}
	for _, text := range s.alternatives() {
		p.paragraph("%s", text)
	}
	for _, name := range names {
		if path, inner := below(prefix+name, s.Properties[name]); path != "" {
			p.object(path, path, false, inner)
		}
	}
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
func (s *schema) alternatives() []string {
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
			all = append(all, fmt.Sprintf("Exactly one is required of %s.", strings.Join(fields, ", ")))
		}
	}
	return all
}

// takesEffect says when a change of a field of the file takes effect.
func takesEffect(name string, s *schema) string {
	if len(s.Enum) == 1 { // no change is valid
		return ""
	}
	if slices.Contains(config.ReadAtStart(), name) {
		return "after a restart"
	}
	return "at once, by a reload"
}

// typeOf returns the type of the field at path, with its values and limits.
func typeOf(path string, s *schema) string {
	if s.Items != nil {
		if name, inner := below(path, s); inner != nil {
			return "list of [objects](#" + anchor(name) + ")"
		}
		return "list of " + strings.Replace(typeOf(path, s.Items), "string", "strings", 1)
	}
	if len(s.Properties) > 0 {
		link := "[object](#" + anchor(path) + ")"
		if word := strings.Trim(s.Pattern, "^$"); word != "" {
			link += " or `" + word + "`"
		}
		return link
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
	switch {
	case strings.Contains(s.Pattern, "ns|us|"):
		return "duration"
	case strings.Contains(s.Pattern, "numkMGTPE"):
		return "quantity"
	case strings.Contains(s.Pattern, "Ki|Mi"):
		return "size"
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

// limits returns the limits of a number, a duration or a size, except those that all numbers of its
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
