package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
)

// monitoring is the folder of the chart with alerts and the dashboard.
var monitoring = filepath.Join("..", "..", "deploy", "chart", "monitoring")

// Prometheus loads and evaluates every alert of the chart, and accepts every query of the dashboard.
func TestMonitoringOfTheChart(t *testing.T) {
	alerts, err := filepath.Abs(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := controlplane.StartPrometheus(t.Context(), controlplane.PrometheusOptions{
		Config: fmt.Sprintf("global: {evaluation_interval: 200ms}\nrule_files: [%q]\n", alerts),
	})
	if err != nil {
		t.Fatal(err) // also if it does not accept the alerts
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	defer http.DefaultClient.CloseIdleConnections()

	type rule struct{ Name, Health, LastError string }
	var want struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	read(t, "alerts.yaml", &want)
	var got struct {
		Groups []struct{ Rules []rule }
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	evaluated := func() bool {
		ask(ctx, t, p, "rules", nil, &got)
		for _, group := range got.Groups {
			for _, r := range group.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(got.Groups) > 0
	}
	for !evaluated() {
		time.Sleep(50 * time.Millisecond)
	}
	rules := 0
	for i, group := range want.Groups {
		for j, r := range group.Rules {
			rules++
			if evaluated := got.Groups[i].Rules[j]; evaluated.Name != r.Alert || evaluated.Health != "ok" {
				t.Errorf("%s: Prometheus has %+v", r.Alert, evaluated)
			}
		}
	}

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read(t, "dashboard.json", &dashboard)
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			ask(ctx, t, p, "query", url.Values{"query": {target.Expr}}, &struct{}{})
		}
	}
	if rules == 0 || queries == 0 {
		t.Errorf("%d alerts and %d queries", rules, queries)
	}
}

// promtool, the tool of Prometheus, finds nothing to object to in the alerts, and each alert fires when testdata/alerts.yaml says so, and
// at no other time. A test of deploy requires cases for each alert.
func TestAlerts(t *testing.T) {
	alerts, err := filepath.Abs(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", alerts)

	cases, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(file, bytes.Replace(cases, []byte("ALERTS"), []byte(alerts), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// promtool runs the tool of Prometheus, which make control-plane builds.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), filepath.Join("..", "prometheus", "bin", "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(monitoring, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// ask calls the API of Prometheus. A request that it rejects fails the test.
func ask(ctx context.Context, t *testing.T, p *controlplane.Prometheus, path string, query url.Values, data any) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Errorf("%s %v: %s", path, query, answer.Error)
		return
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		t.Fatal(err)
	}
}
