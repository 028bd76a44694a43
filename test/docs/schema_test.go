package docs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// The schema accepts every configuration of the documentation.
func TestSchema(t *testing.T) {
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
