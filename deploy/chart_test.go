// Package deploy tests the parts of the chart and the manifests that need neither Helm nor a
// cluster.
package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/ledger"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/wiring"
)

var update = flag.Bool("update", false, "rewrite the configurations of kube-scheduler in chart/presets")

// head is the text that the chart puts before a preset.
const head = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: 0.0.0.0:8443, tls: {certFile: a, keyFile: b, clientCAFile: c}}
admin: {address: 0.0.0.0:8080, allowRemoteMetrics: true}
`

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Each preset is valid, and the configuration of kube-scheduler beside it is what outboard scheduler-config prints.
func TestPresets(t *testing.T) {
	paths, err := filepath.Glob("chart/presets/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	presets := slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "-scheduler.yaml") })
	if len(presets) != 4 {
		t.Errorf("%d presets, want 4: %v", len(presets), presets)
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
				t.Errorf("%s is not current: go test ./deploy -update", file)
			}
		})
	}
}

func TestChartHasTheLedgerCRD(t *testing.T) {
	if !bytes.Equal(read(t, "chart/crds/ledgers.yaml"), ledger.CustomResourceDefinition) {
		t.Error("chart/crds/ledgers.yaml differs from ledger/crd.yaml")
	}
}

var metric = regexp.MustCompile(`outboard_[a-z_]+`)

// Every metric in an alert or on the dashboard exists: it is on the page about metrics, which a
// test of the project compares with the code.
func TestMonitoringNamesMetricsThatExist(t *testing.T) {
	page := string(read(t, "../docs/reference/metrics.md"))
	check := func(where, expression string) {
		names := metric.FindAllString(expression, -1)
		if len(names) == 0 {
			t.Errorf("%s: %q contains no metric", where, expression)
		}
		for _, name := range names {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(read(t, "chart/monitoring/alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			check(rule.Alert, rule.Expr)
		}
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
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			check(panel.Title, target.Expr)
		}
	}
	if len(alerts.Groups) == 0 || len(dashboard.Panels) == 0 {
		t.Error("no alerts or no panels")
	}
}
