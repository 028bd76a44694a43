package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal/standard"
)

// compiled is the schema of files with the given types, compiled by another library.
func compiled(t *testing.T, types config.Types) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(config.Schema(types, nil))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func childOf(path, step string) string {
	if path == "" {
		return step
	}
	return path + "." + step
}

// expressible are the errors that the schema must find.
var expressible = regexp.MustCompile(`^Unknown field|^Unsupported value|: must be (a string|a mapping|a list|true or false|a whole number|a number such|a duration such)`)

// checkFile checks that the schema accepts the file if it loads, and rejects it if it has an error that a schema can express.
func checkFile(t *testing.T, schema *jsonschema.Schema, name, text string, types config.Types) {
	t.Helper()
	_, err := config.Parse("f", []byte(text), types)
	if listed := config.Errors(nil); err != nil && !errors.As(err, &listed) {
		t.Fatalf("the error does not list errors of the file, so the file neither loads nor is invalid: %v\n%.3000s", err, text)
	}
	data, wrong := yaml.YAMLToJSON([]byte(text))
	if wrong != nil {
		t.Fatal(wrong)
	}
	document, wrong := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if wrong != nil {
		t.Fatal(wrong)
	}
	errs, rejected := withoutSignals(err), schema.Validate(document)
	if len(errs) == 0 && rejected != nil {
		t.Errorf("%s: the file loads, and the schema rejects it: %v", name, rejected)
	}
	if found := func(e *config.Error) bool { return expressible.MatchString(e.Message()) }; rejected == nil && slices.ContainsFunc(errs, found) {
		t.Errorf("%s: the schema accepts a file with these errors:\n%v", name, errs)
	}
}

// cases calls each with the files of the archives that are called name, or that have that extension
// if it begins with a dot.
func cases(t *testing.T, pattern, name string, each func(archive, text string)) {
	t.Helper()
	archives, err := filepath.Glob(pattern)
	if err != nil || len(archives) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, file := range archives {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, name) {
				each(file, string(f.Data))
			}
		}
	}
}

// realTypes are the types that come with Outboard.
var realTypes = config.Types{Policies: policies.Types(), Signals: standard.Types()}

// scenario returns a file with the configuration of a policy from an archive of its folder.
func scenario(archive, text string) string {
	folder := filepath.Base(filepath.Dir(filepath.Dir(archive)))
	for _, p := range realTypes.Policies {
		if strings.EqualFold(p.Name, folder) {
			indented := strings.ReplaceAll("\n"+strings.TrimSpace(text), "\n", "\n      ")
			return fmt.Sprintf("%sprofiles:\n- policies:\n  - type: %s\n    config:%s\n", plain, p.Name, indented)
		}
	}
	return ""
}

const (
	header = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n"
	plain  = header + "serving: {insecure: true}\n"
)

// The schema accepts every file that loads, and finds wrong names, types and words in the others.
func TestSchema(t *testing.T) {
	schema := compiled(t, types)
	cases(t, "testdata/*.txtar", ".yaml", func(archive, text string) {
		if _, err := yaml.YAMLToJSON([]byte(text)); err == nil { // otherwise the loader cannot parse it
			checkFile(t, schema, archive, text, types)
		}
	})
	schema = compiled(t, realTypes)
	cases(t, "../../policies/*/testdata/*.txtar", "config.yaml", func(archive, text string) {
		if text := scenario(archive, text); text != "" {
			checkFile(t, schema, archive, text, realTypes)
		}
	})
	for name, text := range examples(t) {
		checkFile(t, schema, name, text, realTypes)
	}
}

// examples are the configurations in examples/.
func examples(t *testing.T) map[string]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../../examples/*/*.yaml", "../../examples/from-the-tutorials/*/*.yaml"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, matches...)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "kind: "+config.Kind) && !strings.Contains(file, "own-policy") {
			found[file] = string(text)
		}
	}
	if len(found) < 5 {
		t.Errorf("there are %d configurations in examples", len(found))
	}
	return found
}

// missingSignal is the rule about the name of a signal that the file does not have.
var missingSignal = regexp.MustCompile(`^there are no signals|^known signals: |^did you mean`)

// withoutSignals returns the errors of the loader except those about missing signals, which
// scenarios define elsewhere.
func withoutSignals(err error) config.Errors {
	errs := config.Errors(nil)
	errors.As(err, &errs)
	return slices.DeleteFunc(errs, func(e *config.Error) bool {
		return e.Kind == "Unsupported value" && missingSignal.MatchString(e.Rule) && !strings.HasSuffix(e.Path, ".type")
	})
}

// The schema supports any type of policy that the contract permits: one without a configuration,
// one that does not decode into a struct of its own, and one that contains itself.
func TestSchemaOfOwnPolicies(t *testing.T) {
	type tree struct {
		Depth    int    `json:"depth"`
		Children []tree `json:"children"`
	}
	own := func(name string, into any) policy.Type {
		return policy.Type{Name: name, New: func(decode func(any) error) (policy.Policy, error) {
			if into != nil {
				if err := decode(into); err != nil {
					return nil, err
				}
			}
			return fake{}, nil
		}}
	}
	types := config.Types{Policies: []policy.Type{own("None", nil), own("Any", new(any)), own("Later", new(strictyaml.Value)), own("Tree", new(tree))}}
	schema := compiled(t, types)
	for _, text := range []string{
		"{type: None}", "{type: None, config: {}}", "{type: None, config: {a: 1}}", "{type: Any, config: [1]}", "{type: Later, config: {a: b}}",
		"{type: Tree, config: {depth: 1, children: [{depth: 1}]}}", "{type: Tree, config: {depth: x}}", "{type: Tree, config: {dept: 1}}", "{type: Three}",
	} {
		checkFile(t, schema, text, plain+"profiles:\n- policies:\n  - "+text+"\n", types)
	}
}

// The limits and values of the schema are those of validation: a value at a limit is valid, and the next one is not.
func TestSchemaHasTheLimitsOfValidation(t *testing.T) {
	root := config.Schema(realTypes, nil)
	limit := regexp.MustCompile(`^must be (between|at least|more than) [0-9]`)
	checked := 0
	// try reports whether a file with the value at the path has an error about its limits or values.
	try := func(path string, file any) bool {
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		_, err = config.Parse("f", text, realTypes)
		var errs config.Errors
		errors.As(err, &errs)
		return slices.ContainsFunc(errs, func(e *config.Error) bool {
			return e.Path == path && (e.Kind == "Unsupported value" || limit.MatchString(e.Rule))
		})
	}
	var visit func(s *strictyaml.Schema, path string, file func(any) any)
	visit = func(s *strictyaml.Schema, path string, file func(any) any) {
		for name, property := range s.Properties {
			visit(property, childOf(path, name), func(value any) any { return file(map[string]any{name: value}) })
		}
		if s.Items != nil {
			visit(s.Items, path+"[0]", func(value any) any { return file([]any{value}) })
		}
		if s.Enum != nil && s.Const == nil {
			for _, value := range s.Enum {
				if value != nil && try(path, file(value)) {
					t.Errorf("%s: the schema allows %q, and validation does not", path, value)
				}
			}
			if !try(path, file("none of them")) {
				t.Errorf("%s: validation allows other values than %q", path, s.Enum)
			}
		}
		if !s.Type.Has("integer") && !s.Type.Has("number") || s.Type.Has("string") {
			return
		}
		next := func(limit, direction float64) float64 {
			if s.Type.Has("integer") {
				return limit + direction
			}
			return math.Nextafter(limit, direction*math.Inf(1))
		}
		for _, end := range []struct {
			at        *float64
			direction float64
		}{{s.Minimum, -1}, {s.Maximum, 1}} {
			if end.at == nil || math.Abs(*end.at) >= math.MaxInt32 { // of the type in Go
				continue
			}
			if try(path, file(*end.at)) {
				t.Errorf("%s: the schema allows %v, and validation does not", path, *end.at)
			}
			if outside := next(*end.at, end.direction); !try(path, file(outside)) {
				t.Errorf("%s: validation allows %v, and the schema does not", path, outside)
			}
		}
		if low := s.ExclusiveMinimum; low != nil && (!try(path, file(*low)) || try(path, file(next(*low, 1)))) {
			t.Errorf("%s: the schema allows numbers above %v, and validation does not", path, *low)
		}
	}
	visit(root, "", func(value any) any { return value })
	for _, one := range root.Properties["profiles"].Items.Properties["policies"].Items.AllOf {
		name := one.If.Properties["type"].Const
		visit(one.Then.Properties["config"], "profiles[0].policies[0].config", func(value any) any {
			return map[string]any{"apiVersion": config.APIVersion, "kind": config.Kind, "profiles": []any{map[string]any{
				"policies": []any{map[string]any{"type": name, "config": value}},
			}}}
		})
	}
	if checked < 150 {
		t.Errorf("only %d values are tried", checked)
	}
}
