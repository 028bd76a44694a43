package wiring_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/wiring"
)

// TestMigrate runs testdata/migrate/*.txtar: each has a Policy and the result, whose comments have
// the notes. Run with -update to write what is now.
func TestMigrate(t *testing.T) {
	golden(t, "testdata/migrate/*.txtar", func(t *testing.T, policy txtar.File) []txtar.File {
		result, notes, err := wiring.Migrate(policy.Name, policy.Data, wiring.Options{})
		if err != nil {
			t.Fatal(err)
		}
		strictly(t, result)
		return []txtar.File{{Name: "scheduler.yaml", Data: result}, {Name: "notes", Data: []byte(strings.Join(append(notes, ""), "\n"))}}
	})
}

func TestMigrateErrors(t *testing.T) {
	for _, tt := range []struct{ name, policy, want string }{
		{"no JSON", "{", ": not valid YAML"},
		{"a wrong value", "{\"kind\": \"Policy\",\n\"extenders\": [{\"weight\": \"5\"}]}", "policy.json:2: extenders[0].weight: Invalid value"},
		{"nothing", `{"kind": "Policy"}`, "the Policy has no extenders"},
		{"another kind", "kind: Pod", "there is no Policy"},
		{"a configuration", "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nextenders: []\n", "there is no Policy"},
		{"another ConfigMap", "kind: ConfigMap\ndata: {a: b, c: d}\n", "there is no Policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := wiring.Migrate("policy.json", []byte(tt.policy), wiring.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want it to say %q", err, tt.want)
			}
		})
	}
}

// Whatever a Policy says, what it is converted to can be read.
func FuzzMigrate(f *testing.F) {
	archives, err := filepath.Glob("testdata/migrate/*.txtar")
	if err != nil || len(archives) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Add([]byte(`{"kind": "Policy", "predicates": [{"name": "bell \u0007, line \u2028 and end"}], "extenders": [{"urlPrefix": "http://a #b", "tlsConfig": {"caFile": "\n"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		result, _, err := wiring.Migrate("policy.json", data, wiring.Options{})
		if err != nil {
			return
		}
		root, err := strictyaml.Parse("scheduler.yaml", result)
		if err != nil {
			t.Fatalf("%v\n%s", err, result)
		}
		var header struct {
			Kind string `json:"kind"`
		}
		_ = root.Decode(&header) // the other fields are those of kube-scheduler
		if header.Kind != "KubeSchedulerConfiguration" {
			t.Errorf("the kind is %q:\n%s", header.Kind, result)
		}
	})
}
