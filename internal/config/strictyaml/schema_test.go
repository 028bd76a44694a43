package strictyaml_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config/strictyaml"
)

func compiled(t *testing.T, into any) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(strictyaml.SchemaOf(into, nil))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func valid(t interface{ Fatal(...any) }, schema *jsonschema.Schema, text []byte) error {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(document)
}

// inexpressible are cases with errors that a schema does not find: Go types that no file can set,
// and a number that is too large for JSON.
var inexpressible = map[string]bool{"go-types.yaml": true, "json-free.yaml": true}

// The schema of a type accepts what Decode accepts, and no value of another type.
func TestSchemaOf(t *testing.T) {
	schema := compiled(t, &Sample{})
	for _, file := range []string{"values.txtar", "types.txtar"} {
		archive, err := txtar.ParseFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			text, err := yaml.YAMLToJSONStrict(f.Data)
			if filepath.Ext(f.Name) != ".yaml" || err != nil {
				continue
			}
			invalid := valid(t, schema, text)
			doc, err := strictyaml.Parse("f", f.Data)
			if err == nil {
				err = doc.Decode(new(Sample))
			}
			if (err == nil) != (invalid == nil) && (err == nil || !inexpressible[f.Name]) {
				t.Errorf("%s %s\n%s: Decode returned %v, the schema %v", file, f.Name, f.Data, err, invalid)
			}
		}
	}
}

// The pattern of durations matches every valid duration.
func TestSchemaOfText(t *testing.T) {
	durations := compiled(t, new(time.Duration))
	for _, text := range []string{"", "5", "1x", "1s ", "1m 30s", "s", "--1s", "0x1s"} {
		quoted, _ := json.Marshal(text)
		if valid(t, durations, quoted) == nil {
			t.Errorf("the schema accepts %q as a duration", text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 100 {
			text := rapid.StringMatching(`[+-]?[0-9]{0,2}\.?[0-9]{0,2}(ns|us|µs|μs|ms|s|m|h|k|n|)([0-9]s)?`).Draw(t, "text")
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := time.ParseDuration(text); err == nil && valid(t, durations, quoted) != nil {
				t.Fatalf("the schema rejects %q as a duration", text)
			}
		}
	})
}

// Descriptions are those of the fields, with their names in files; defaults are those of the value.
func TestSchemaDescriptionsAndDefaults(t *testing.T) {
	into := struct {
		Item
		Opt *Defined `json:"opt"`
	}{Item: Item{Name: "x", Count: 3}}
	schema := strictyaml.SchemaOf(&into, func(structure reflect.Type, field string) string {
		return field + " is of " + structure.Name() + "."
	})
	for field, want := range map[string]struct {
		description string
		value       any
	}{"name": {"Of Item.", "x"}, "count": {"Of Item.", 3.0}, "opt": {"Of .", nil}} {
		got := schema.Properties[field]
		if got == nil || got.Description != want.description || got.Default != want.value {
			t.Errorf("%s: got %+v, want %+v", field, got, want)
		}
	}
	weight := schema.Properties["opt"].Properties["weight"]
	if weight.Default != 1.0 || weight.Description != "Of Defined." {
		t.Errorf("got %+v", weight)
	}
	inner := strictyaml.SchemaOf(&Sample{}, func(reflect.Type, string) string { return "Of GRACE, Graces and Grace." })
	if got, want := inner.Properties["grace"].Description, "Of GRACE, Graces and grace."; got != want {
		t.Errorf("the description is %q, want %q", got, want)
	}
	schema.Require("count")
	if count := schema.Properties["count"]; count.Default != nil || count.Type.Has("null") || schema.Required[0] != "count" {
		t.Errorf("required: %+v", count)
	}
}
