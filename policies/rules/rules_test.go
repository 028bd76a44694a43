package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/policies/rules"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, rules.Type(), "testdata/*.txtar")
}

// everything reads all variables, in parts that are computed at each of the possible times.
const everything = `
filters:
- {name: pod, expression: 'pod.spec.containers.size() < 3'}
- {name: node, expression: 'node.metadata.?labels[?"team"].orValue("") != "green"'}
- {name: both, expression: 'node.metadata.labels["team"] == pod.metadata.labels["team"]'}
- {name: usage, expression: 'usage.pods < 2 && podRequests["cpu"].compareTo(usage.free["cpu"]) <= 0'}
- {name: signal, expression: 'signals.load < 0.9'}
- {name: keyed, expression: 'keyed["seats"]["cad"] > 0.0'}
scores:
- {name: load, expression: '100.0 * (1.0 - signals.load)'}
- {name: cores, expression: 'node.status.allocatable["cpu"].asInteger()', weight: 2}
`

func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New: policytest.FromYAML(rules.Type(), everything),
		Pods: policytest.Pods(`
- metadata: {name: one, labels: {team: red}}
  spec: {containers: [{name: c, image: nginx, resources: {requests: {cpu: 500m}}}]}
`),
		Nodes: policytest.Nodes(`
- metadata: {name: a, labels: {team: red}}
  status: {allocatable: {cpu: "4"}}
- metadata: {name: b, labels: {team: blue}}
  status: {allocatable: {cpu: "8"}}
- metadata: {name: c}
`),
		Assigned: policytest.Pods(`
- {metadata: {name: p1}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}
`),
		Signals:   policytest.Signals("load: {a: 0.5, b: 0.25}\nseats: {cad: 3, sim: 0}"),
		Allocates: 10, // CEL copies quantities, because functions write to them, and numbers
	})
}

func TestExplain(t *testing.T) {
	view := policytest.View(policytest.Nodes(`
- metadata: {name: a, labels: {team: red}}
  status: {allocatable: {cpu: "4"}}
`), nil, policytest.Signals("load: {a: 0.5}\nheat: {a: {number: 91, stale: true}}"))
	pod := policytest.Pods("metadata: {name: p, labels: {team: blue}}")[0]
	for expression, want := range map[string]string{
		`signals.load < 0.4`:              "rule one: false (signals.load is 0.5)",
		`0.4 > signals["load"]`:           `rule one: false (signals["load"] is 0.5)`,
		`signals.heat < 85`:               "rule one: unknown (signal heat is stale for the node, 91 at 2026-01-01T12:00:00Z)",
		`node.metadata.name == "b"`:       "rule one: false",
		`usage.pods > 0`:                  "rule one: false",
		`node.metadata.labels["x"] == ""`: "rule one: unknown (no such key: x)",
		`pod.metadata.labels["team"] == node.metadata.labels["team"]`: `rule one: false (pod.metadata.labels["team"] is "blue", node.metadata.labels["team"] is "red")`,
		`podRequests["cpu"].compareTo(usage.free["cpu"]) > 0`:         `rule one: false (podRequests["cpu"] is 0, usage.free["cpu"] is 4)`,
	} {
		p := policytest.Build(t, rules.Type(), "filters: [{name: one, expression: '"+expression+"'}]")
		cycle := policytest.Prepare[policy.Explainer](t, p, pod, view)
		if told := cycle.Explain(view.Node("a")); len(told) != 1 || told[0] != want {
			t.Errorf("the explanation of %s is\n%q, want\n%q", expression, told, want)
		}
	}
}

// A scenario uses each rule of the README, and the rule passes some pod on a node there; and each
// filter rejects a node in a scenario.
func TestReadmeExamplesAreScenarios(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "\n```yaml\n")
	block, _, _ := strings.Cut(after, "\n```")
	var document struct {
		Profiles []struct {
			Policies []struct{ Config rules.Config }
		}
	}
	if err := yaml.Unmarshal([]byte(block), &document); err != nil {
		t.Fatal(err)
	}
	config := document.Profiles[0].Policies[0].Config
	if len(config.Filters) == 0 || len(config.Scores) == 0 {
		t.Fatal("the example has no rules")
	}
	scenarios := readScenarios(t)
	for _, f := range config.Filters {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool {
			return slices.ContainsFunc(s.config.Filters, func(g rules.FilterRule) bool { return reflect.DeepEqual(f, g) }) && strings.Contains(s.want, " "+f.Name)
		}) {
			t.Errorf("rule %s rejects no node in a scenario, as it stands in the README", f.Name)
		}
	}
	for _, r := range config.Scores {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool {
			return slices.ContainsFunc(s.config.Scores, func(g rules.ScoreRule) bool { return reflect.DeepEqual(r, g) }) && strings.Contains(s.want, "fits")
		}) {
			t.Errorf("rule %s scores in no scenario, as it stands in the README", r.Name)
		}
	}
}

type scenario struct {
	config rules.Config
	want   string
}

func readScenarios(t *testing.T) []scenario {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all []scenario
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "-- config.yaml --\n")
		config, _, _ := strings.Cut(after, "\n-- ")
		_, want, _ := strings.Cut(after, "-- want.txt --\n")
		s := scenario{want: want}
		if err := yaml.Unmarshal([]byte(config), &s.config); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, s)
	}
	return all
}

func BenchmarkRules(b *testing.B) {
	pod, view := crowd()
	policytest.Benchmark(b, policytest.Build(b, rules.Type(), `
filters:
- {name: room, expression: 'usage.free["cpu"].isGreaterThan(podRequests["cpu"])'}
- {name: same-team, expression: 'pod.metadata.labels["team"] == node.metadata.labels["team"]'}
scores:
- {name: cores, expression: 'node.status.allocatable["cpu"].asInteger()'}
`), pod, view)
}

// crowd returns 5,000 nodes, and a pod that fits on half of them.
func crowd() (*corev1.Pod, *snapshot.View) {
	pod, view, _ := crowds()
	return pod, view
}

// crowds returns the nodes also with new numbers of the signal.
func crowds() (pod *corev1.Pod, now, later *snapshot.View) {
	var b snapshot.Builder
	loads := [2]map[string]snapshot.Value{{}, {}}
	for i := range 5000 {
		name := fmt.Sprint("node-", i)
		b.SetNode(policytest.Nodes(fmt.Sprintf(`
metadata: {name: %s, labels: {team: %s, zone: z%d}}
status: {allocatable: {cpu: "%d", memory: 64Gi}, nodeInfo: {kubeletVersion: v1.36.%d}}`,
			name, []string{"red", "blue"}[i%2], i%3, 8+i%8, i%9))[0])
		for j := range loads {
			loads[j][name] = snapshot.Value{Number: float64((i+j)%100) / 100, At: policytest.Now}
		}
	}
	b.SetSignal(snapshot.NewSignal("load", loads[0]))
	now = b.View()
	b.SetSignal(snapshot.NewSignal("load", loads[1]))
	return policytest.Pods(`
metadata: {name: new, labels: {team: red}}
spec: {containers: [{name: a, image: registry.example.com/a, resources: {requests: {cpu: "1"}}}, {name: b, image: registry.example.com/b}]}`)[0], now, b.View()
}

// A rule that reads a label which pods may not have is warned about, whether it filters or scores;
// a score of weight 0 is not evaluated.
func TestLookupsAreWarnedAbout(t *testing.T) {
	const condition = `matchConditions: [{name: team, expression: 'pod.metadata.labels["team"] == "a"'}]`
	for config, want := range map[string]int{
		"{filters: [{name: r, message: m, " + condition + ", expression: 'true'}]}":                            1,
		"{scores: [{name: r, " + condition + ", expression: '1.0'}]}":                                          1,
		"{scores: [{name: r, weight: 0, " + condition + ", expression: '1.0'}, {name: s, expression: '1.0'}]}": 0,
		"{scores: [{name: r, expression: 'pod.metadata.name == \"a\" ? 1.0 : 0.0'}]}":                          0,
	} {
		warnings := policytest.Build(t, rules.Type(), config).(policy.Warner).Warnings()
		if len(warnings) != want {
			t.Errorf("%s: the warnings are %v, want %d", config, warnings, want)
		}
	}
}

// An expression may have 10,000 bytes.
func TestLengthOfExpressions(t *testing.T) {
	for length, valid := range map[int]bool{10_000: true, 10_001: false} {
		text := fmt.Sprintf("%-*s", length, "true")
		_, err := policytest.FromYAML(rules.Type(), "{filters: [{name: r, message: m, expression: '"+text+"'}]}")()
		if (err == nil) != valid {
			t.Errorf("an expression of %d bytes: %v", length, err)
		}
	}
}
