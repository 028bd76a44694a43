package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// The generated pages match the code.
func TestPagesAreUpToDate(t *testing.T) {
	for _, p := range pages {
		want, err := p.write()
		if err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		got, err := os.ReadFile(filepath.Join(root, p.path))
		if err != nil {
			t.Fatal(err)
		}
		if line := firstDifference(string(got), want); line > 0 {
			t.Errorf("line %d of %s differs: make generate", line, p.path)
		}
	}
}

// firstDifference returns the number of the first line that differs, 0 if none does.
func firstDifference(a, b string) int {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			return i + 1
		}
	}
	return 0
}

// repeatsLimits matches limits of a number, a duration or a size, which the column of the type has.
var repeatsLimits = regexp.MustCompile(`\d[a-zA-Z]*\.\.\d|\bat least \d|\d or more\b`)

// No description in the schema begins with the name of its field as a Go comment does, leaves it to the reader which field is
// required, repeats the limits beside the type, or is that of another field of the object.
func TestDescriptionsAreSentences(t *testing.T) {
	root, err := readSchema()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	var visit func(path string, s *schema)
	visit = func(path string, s *schema) {
		described := map[string]string{}
		for name, f := range s.Properties {
			checked++
			text := f.description()
			if other := described[text]; other != "" && text != "" {
				t.Errorf("%s: %s and %s have one description: %s", path, name, other, text)
			}
			described[text] = name
			if f.limits() != "" && repeatsLimits.MatchString(text) {
				t.Errorf("%s.%s repeats the limits: %s", path, name, text)
			}
			if regexp.MustCompile(`^(?i:`+regexp.QuoteMeta(name)+`) (is|are|says?|configures) `).MatchString(text) && !strings.HasPrefix(text, name+" and ") {
				t.Errorf("%s.%s: %s", path, name, text)
			}
			if saysRequired.MatchString(text) {
				t.Errorf("%s.%s repeats the column: %s", path, name, text)
			}
			visit(path+"."+name, f)
		}
		if s.Items != nil {
			visit(path, s.Items)
		}
		for _, rule := range s.AllOf {
			if rule.Then != nil {
				visit(path, rule.Then)
			}
		}
	}
	visit("", root)
	if checked < 200 {
		t.Errorf("only %d fields are checked", checked)
	}
}

// The limits of Go's types are not on the page, and stay in the schema, from which the other columns are written.
func TestLimits(t *testing.T) {
	number := func(text string) *json.Number { return (*json.Number)(&text) }
	for _, tt := range []struct {
		name string
		s    schema
		want string
	}{
		{"none", schema{}, ""},
		{"of the type", schema{Minimum: number("-2147483648"), Maximum: number("2147483647")}, ""},
		{"least of the type", schema{Minimum: number("-2147483648"), Maximum: number("5")}, ", at most 5"},
		{"most of the type", schema{Minimum: number("1"), Maximum: number("2147483647")}, ", at least 1"},
		{"both", schema{Minimum: number("1"), Maximum: number("5")}, ", 1 to 5"},
		{"more than", schema{ExclusiveMinimum: number("0"), Maximum: number("5")}, ", more than 0, at most 5"},
		{"of a text", schema{Minimum: number("1"), Pattern: "^[0-9]+$"}, ""},
		{"of a duration", schema{Description: "How long. Default 5m. Must be between 1s and 24h.", Pattern: "."}, ", 1s to 24h"},
	} {
		former := tt.s
		if got := tt.s.limits(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if !reflect.DeepEqual(tt.s, former) {
			t.Errorf("%s: the schema is changed to %+v", tt.name, tt.s)
		}
	}
}

// The column has the default of the Go type or the one that only the description says, and the description says neither that nor limits.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct {
		s                schema
		column, describe string
	}{
		{schema{Description: "How long."}, "", "How long."},
		{schema{Description: "How long. Default 5m."}, "`5m`", "How long."},
		{schema{Description: "How long. Default 5m.", Default: 5.0}, "`5`", "How long."},
		{schema{Description: "How long. Default 5m. More.", Pattern: "."}, "`5m`", "How long. More."},
		{schema{Description: "How long. Default 5m. Must be between 1s and 24h.", Pattern: "."}, "`5m`", "How long."},
		{schema{Description: "Which. Default: any."}, "", "Which. Default: any."},
	} {
		if column, text := defaultOf(&tt.s, false), tt.s.description(); column != tt.column || text != tt.describe {
			t.Errorf("%q: %q, %q", tt.s.Description, column, text)
		}
	}
}

// namesSignal matches the description of a field with the name of a signal.
var namesSignal = regexp.MustCompile(`\bname of (a|the) signal\b`)

// Lists have plural names, the values of enums begin with a capital, and fields that name a signal end in Signal.
func TestNamesInFiles(t *testing.T) {
	root, err := readSchema()
	if err != nil {
		t.Fatal(err)
	}
	// Names of Kubernetes that are values.
	kubernetes := []any{"cpu", "memory", "outboard.dev/v1alpha1"} // two resources, and a group and version
	lists, values, signals := 0, 0, 0
	var visit func(path, parent string, s *schema)
	visit = func(path, parent string, s *schema) {
		for name, f := range s.Properties {
			if f.Items != nil {
				lists++
				if !strings.HasSuffix(name, "s") {
					t.Errorf("%s.%s is a list: name it in the plural", path, name)
				}
			}
			for _, value := range f.Enum {
				text, _ := value.(string)
				values++
				if text != "" && !('A' <= text[0] && text[0] <= 'Z') && !slices.Contains(kubernetes, value) {
					t.Errorf("%s.%s: value %q does not begin with a capital", path, name, text)
				}
			}
			text := f.scalar() == "string" && f.Items == nil && f.Enum == nil
			named := strings.HasSuffix(name, "Signal") || name == "signal" || name == "name" && parent == "signal"
			if said := namesSignal.MatchString(f.Description); text && said != named {
				t.Errorf("%s.%s: a field with the name of a signal, and no other, is called signal or …Signal: %s", path, name, f.Description)
			} else if said && text {
				signals++
			}
			visit(path+"."+name, name, f)
		}
		if s.Items != nil {
			visit(path+"[]", parent, s.Items)
		}
		for _, rule := range s.AllOf {
			if rule.Then != nil {
				visit(path, parent, rule.Then)
			}
		}
	}
	visit("", "", root)
	if lists < 20 || values < 50 || signals < 5 {
		t.Errorf("only %d lists, %d values and %d names of signals are checked", lists, values, signals)
	}
}
