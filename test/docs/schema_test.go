package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// The schema accepts every configuration of the documentation, and every one in deploy.
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
	check := func(name, text string) {
		var file struct{ Kind string }
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil || json.Unmarshal(data, &file) != nil || file.Kind != config.Kind {
			return
		}
		checked++
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const root = "../.."
	for _, b := range blocks(t, root) {
		if b.language == "yaml" {
			for doc := range strings.SplitSeq(b.text, "\n---\n") {
				check(b.String(), doc)
			}
		}
	}
	ofDocs := checked
	manifests, err := filepath.Glob(filepath.Join(root, "deploy", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range manifests {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var object corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil || object.Kind != "ConfigMap" {
				continue
			}
			for _, file := range object.Data {
				check(name, file)
			}
		}
	}
	if ofDocs < 10 || checked == ofDocs {
		t.Errorf("there are %d configurations in the documentation, and %d in deploy", ofDocs, checked-ofDocs)
	}
}
