package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
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
