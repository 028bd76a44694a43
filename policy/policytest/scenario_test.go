package policytest_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// goodType is the good policy with a configuration in which max and min must have their default values.
func goodType() policy.Type {
	return policy.Type{Name: "Good", New: func(decode func(any) error) (policy.Policy, error) {
		config := struct {
			Min int `json:"min"`
			Max int `json:"max"`
		}{Min: 2, Max: 2}
		if err := decode(&config); err != nil {
			return nil, err
		}
		var errs field.ErrorList
		if config.Min != 2 {
			errs = append(errs, field.Invalid(field.NewPath("min"), config.Min, "must be 2"))
		}
		if config.Max != 2 {
			errs = append(errs, field.Invalid(field.NewPath("max"), config.Max, "must be 2"))
		}
		if len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
		return newGood()
	}}
}

// The package defines no flags: tests of policies have their own, such as this usual one.
var _ = flag.Bool("update", false, "")

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, goodType(), "testdata/*.txtar")
}

const wholeScenario = `About this file.
-- nodes.yaml --
- metadata: {name: a}
-- pods.yaml --
- {metadata: {name: x}, spec: {nodeName: a}}
-- pod.yaml --
metadata: {name: new, annotations: {example.com/size: "3"}}
-- want.txt --
node  verdict  have/want  score
a     fits     -          0
`

func TestScenarioThatDoesNotHold(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string // what is replaced in wholeScenario
		says     string
	}{
		"another score":          {"-          0", "-          7", "the policy decides differently"},
		"unknown configuration":  {"-- nodes", "-- config.yaml --\nmix: 1\n-- nodes", `unknown field "mix"`},
		"file of another name":   {"-- want.txt", "-- wanted.txt", "wanted.txt: is not a file of a scenario"},
		"no pod":                 {"metadata: {name: new, annotations: {example.com/size: \"3\"}}", "", "pod.yaml: has 0 pods: must be one"},
		"no pod file":            {"-- pod.yaml --\nmetadata: {name: new, annotations: {example.com/size: \"3\"}}\n", "", "pod.yaml is missing"},
		"pod on an unknown node": {"nodeName: a", "nodeName: b", `pod "default/x" is on node "b", which is not in nodes.yaml`},
		"node without a name":    {"{name: a}", "{}", "nodes.yaml: a node has no name"},
		"empty item":             {"- metadata: {name: a}", "-", "nodes.yaml: item 0 of a list is empty"},
		"misspelt field":         {"nodeName", "nodename", `pods.yaml: unknown field "[0].spec.nodename"`},
		"field twice":            {"{name: a}", "{name: a, name: b}", `key "name" already set in map`},
		"not YAML":               {"metadata: {name: a}", "{", "nodes.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(wholeScenario, tc.from, tc.to, 1)
			if text == wholeScenario {
				t.Fatal("the text to replace is missing")
			}
			errs := policytest.CheckScenario(goodType(), write(t, text), false)
			if len(errs) == 0 || !strings.Contains(errs[0].Error(), tc.says) {
				t.Errorf("got %v, want %q", errs, tc.says)
			}
		})
	}
	t.Run("broken policy", func(t *testing.T) {
		kind := policy.Type{New: func(func(any) error) (policy.Policy, error) {
			return cycleOf(scoreFunc(func(n *snapshot.Node) int64 { return int64(101 * len(n.Pods)) })), nil
		}}
		table := wholeScenario[strings.Index(wholeScenario, "node  verdict"):]
		failure := "error\npolicy under test: score 101 for node \"a\": must be between 0 and 100\n"
		errs := policytest.CheckScenario(kind, write(t, strings.Replace(wholeScenario, table, failure, 1)), false)
		if rules := broken(errs); len(rules) != 1 || rules[0] != "score" {
			t.Errorf("got %v, want the rule score to fail", errs)
		}
	})
}

func TestUpdateRewritesOnlyWhatIsWanted(t *testing.T) {
	for name, old := range map[string]string{
		"wrong":   strings.Replace(wholeScenario, "-          0", "-          7", 1),
		"missing": wholeScenario[:strings.Index(wholeScenario, "-- want.txt")],
		"right":   wholeScenario,
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, old)
			if errs := policytest.CheckScenario(goodType(), file, true); len(errs) > 0 {
				t.Fatal(errs)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != wholeScenario {
				t.Errorf("got:\n%s", got)
			}
		})
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.txtar")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
