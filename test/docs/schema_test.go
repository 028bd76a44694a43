package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// schema returns that of the configuration.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(config.Schema(config.Types{Policies: policies.Types(), Signals: signals.Types()}, nil))
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

// The schema accepts every configuration of the documentation.
func TestSchema(t *testing.T) {
	schema := schema(t)
	checked := 0
	for _, p := range Pages(t) {
		blocks, _ := p.Blocks()
		for _, b := range blocks {
			for doc := range strings.SplitSeq(b.Text, "\n---\n") {
				var file struct{ Kind string }
				data, err := yaml.YAMLToJSON([]byte(doc))
				if err != nil || json.Unmarshal(data, &file) != nil || file.Kind != config.Kind {
					continue
				}
				checked++
				document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(document); err != nil {
					t.Errorf("%s: %v", b, err)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("there are only %d configurations in the documentation", checked)
	}
}

// formatted is a value that fmt formats.
var formatted = regexp.MustCompile(`%(\[\d+\])?[a-z]`)

// The fields in configurations of benchmarks and tests exist. make test runs few of these programs.
func TestFieldsInGoFiles(t *testing.T) {
	schema, checked := schema(t), 0
	walk(t, ".go", func(file, text string) {
		if !strings.Contains(text, config.Kind) {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v := value(n)
			if text, ok := v.(string); ok {
				v = nil
				_ = yaml.Unmarshal([]byte(formatted.ReplaceAllString(text, "x")), &v) // other strings are not YAML
			}
			if m, ok := v.(map[string]any); ok && m["kind"] == config.Kind {
				checked++
				for line := range strings.Lines(fmt.Sprint(schema.Validate(m))) { // values that are computed are invalid
					if strings.Contains(line, "additional properties") {
						t.Errorf("%s: %s", file, line)
					}
				}
			}
			return true
		})
	})
	if checked < 30 {
		t.Errorf("there are only %d configurations in Go files", checked)
	}
}

// value returns what an expression says as it is written; nil if it must be computed.
func value(n ast.Node) any {
	switch n := n.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil {
			return text
		}
	case *ast.CompositeLit:
		list, fields := []any{}, map[string]any{}
		for _, e := range n.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				list = append(list, value(e))
			} else if key, ok := value(pair.Key).(string); ok {
				fields[key] = value(pair.Value)
			}
		}
		if len(list) > 0 {
			return list
		}
		return fields
	}
	return nil
}
