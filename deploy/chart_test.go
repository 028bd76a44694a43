// Package deploy tests the parts of the chart and the manifests that need neither Helm nor a
// cluster.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/wiring"
	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	signals "outboard.dev/outboard/signal/standard"
)

var update = flag.Bool("update", false, "rewrite the generated files of the chart")

// head is the text that the chart puts before a preset.
const head = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: 0.0.0.0:8443, tls: {certFile: a, keyFile: b, clientCAFile: c}}
admin: {address: 0.0.0.0:8081, expose: Metrics}
`

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Each preset is valid, and the configuration of kube-scheduler beside it is what outboard setup
// scheduler prints.
func TestPresets(t *testing.T) {
	paths, err := filepath.Glob("chart/presets/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	presets := slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "-scheduler.yaml") })
	if len(presets) != 5 {
		t.Errorf("%d presets, want 5: %v", len(presets), presets)
	}
	for _, path := range presets {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, err := config.Parse(path, append([]byte(head), read(t, path)...), config.Types{Policies: policies.Types(), Signals: signals.Types()})
			if err != nil {
				t.Fatal(err)
			}
			// Utilization only scores pods, so its extender can be ignorable. The others limit or
			// allocate.
			w, err := wiring.New(c, wiring.Options{For: wiring.Service, Strict: filepath.Base(path) != "utilization.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			file := strings.TrimSuffix(path, ".yaml") + "-scheduler.yaml"
			if *update {
				if err := os.WriteFile(file, w.YAML(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(read(t, file), w.YAML()) {
				t.Errorf("%s is not current: make generate", file)
			}
		})
	}
}

// The chart checks its value config by the JSON Schema of configurations, without descriptions.
func TestChartHasTheSchema(t *testing.T) {
	const file = "chart/configuration.schema.json"
	schema, err := json.MarshalIndent(config.Schema(config.Types{Policies: policies.Types(), Signals: signals.Types()}, nil), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	schema = append(schema, '\n')
	if *update {
		if err := os.WriteFile(file, schema, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, file), schema) {
		t.Errorf("%s is not current: make generate", file)
	}
}

// The table of values, values.yaml and its schema have the same values.
func TestValuesAreDocumented(t *testing.T) {
	var values map[string]any
	var schema struct{ Properties map[string]any }
	if err := errors.Join(yaml.Unmarshal(read(t, "chart/values.yaml"), &values), json.Unmarshal(read(t, "chart/values.schema.json"), &schema)); err != nil {
		t.Fatal(err)
	}
	// A group of values has a field for each of them in the schema; what is in a value itself is up
	// to Kubernetes.
	var names func(schema, values map[string]any, prefix string) []string
	names = func(schema, values map[string]any, prefix string) (all []string) {
		for name, s := range schema {
			value, ok := values[name]
			if !ok && name != "global" {
				t.Errorf("values.yaml has no %s%s", prefix, name)
			}
			group, isGroup := s.(map[string]any)["properties"].(map[string]any)
			switch {
			case name == "global": // Helm's own
			case isGroup:
				all = append(all, names(group, value.(map[string]any), prefix+name+".")...)
			default:
				all = append(all, prefix+name)
			}
		}
		for name := range values {
			if _, ok := schema[name]; !ok {
				t.Errorf("the schema has no %s%s", prefix, name)
			}
		}
		return all
	}
	want := names(schema.Properties, values, "")
	_, table, _ := strings.Cut(string(read(t, "README.md")), "| value |")
	var got []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				got = append(got, name[1])
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%q\nand the chart\n%q", got, want)
	}
}

// The chart knows which policies make allocations, and which read ConfigMaps or devices: it grants
// the permissions for these.
func TestChartKnowsWhatPoliciesNeed(t *testing.T) {
	helpers := string(read(t, "chart/templates/_helpers.tpl"))
	list := regexp.MustCompile(`\$withoutAllocations := list (.*) }}`).FindStringSubmatch(helpers)
	if list == nil {
		t.Fatal("the chart has no list of policies without allocations")
	}
	var withoutAllocations, known []string
	types := config.Types{Policies: policies.Types(), Signals: signals.Types()}
	paths, err := filepath.Glob("../examples/*/outboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "../policies/standard/testdata/all.yaml") { // the latter has those without an example
		c, err := config.Load(path, types)
		if err != nil {
			continue // it has a policy of its own program
		}
		for _, p := range slices.Concat(c.Profiles[0].Policies, c.Profiles[len(c.Profiles)-1].Policies) {
			if slices.Contains(known, p.Type) {
				continue
			}
			known = append(known, p.Type)
			if _, reserves := p.Policy.(policy.Reserver); !reserves {
				withoutAllocations = append(withoutAllocations, `"`+p.Type+`"`)
			}
			reader, ok := p.Policy.(policy.InputReader)
			if reads := ok && len(reader.Inputs().ConfigMaps) > 0; reads != (p.Type == "GPUMemory") {
				t.Errorf("%s reads ConfigMaps: %t", p.Type, reads)
			}
			if reads := ok && reader.Inputs().Devices; reads != (p.Type == "ResourceClaims") {
				t.Errorf("%s reads devices: %t", p.Type, reads)
			}
		}
	}
	slices.Sort(withoutAllocations)
	if want := strings.Join(withoutAllocations, " "); list[1] != want || len(known) != len(types.Policies) {
		t.Errorf("of %s, the policies without allocations are %s, and the chart has %s", known, want, list[1])
	}
}

// The file that errors name is that of the chart.
func TestErrorsNameTheLedgerCRD(t *testing.T) {
	const file = "chart/crds/ledgers.yaml"
	if command := "kubectl apply --server-side --force-conflicts -f deploy/" + file; !strings.Contains(ledger.ErrNotServed.Error(), command) {
		t.Errorf("%q does not name %q", ledger.ErrNotServed, command)
	}
	if !bytes.Contains(read(t, file), []byte("\n  name: "+ledger.Resource.GroupResource().String()+"\n")) {
		t.Errorf("%s is not the CRD of %s", file, ledger.Resource.GroupResource())
	}
}

var metric = regexp.MustCompile(`outboard_[a-z_]+`)

// Every metric in an alert or on the dashboard exists: it is on the page about metrics, which a
// test of the project compares with the code. The dashboard shows those of each alert, and each
// alert has cases for make test-monitoring.
func TestMonitoringNamesMetricsThatExist(t *testing.T) {
	page := string(read(t, "../docs/reference/metrics.md"))
	check := func(where, expression string) (names []string) {
		for _, name := range metric.FindAllString(expression, -1) {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			names = append(names, name)
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: %q contains no metric", where, expression)
		}
		return names
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(read(t, "chart/monitoring/alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "chart/monitoring/dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range check(panel.Title, target.Expr) {
				shown[name] = true
			}
		}
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			for _, name := range check(rule.Alert, rule.Expr) {
				if !shown[name] {
					t.Errorf("%s: no panel shows %s", rule.Alert, name)
				}
			}
		}
	}
	if len(alerts.Groups) == 0 || len(dashboard.Panels) == 0 {
		t.Error("no alerts or no panels")
	}

	const file = "../test/monitoring/testdata/alerts.yaml" // for Prometheus, which make test does not have
	check(file, string(read(t, file)))
	var cases struct {
		Tests []struct {
			Alerts []struct {
				Name  string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(read(t, file), &cases); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, a := range c.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Fires) > 0
			silent[a.Name] = silent[a.Name] || len(a.Fires) == 0
		}
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			if !fires[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("%s must have a case in which %s fires, and one in which it does not", file, rule.Alert)
			}
		}
	}
}
