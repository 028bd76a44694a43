package controlplane_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
)

func TestPrometheusStartsAndStops(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, err := controlplane.StartPrometheus(within(t), controlplane.PrometheusOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + p.Address + "/api/v1/query?query=1%2B1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), `"scalar"`) {
		t.Errorf("the response is %s, %v", body, err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", p.Address); err == nil {
		conn.Close()
		t.Error("the port is open after Stop")
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPrometheusDoesNotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := controlplane.StartPrometheus(within(t), controlplane.PrometheusOptions{Config: "nonsense: 1"})
	if err == nil || !strings.Contains(err.Error(), "field nonsense not found") {
		t.Errorf("a wrong configuration: %v, want the message of Prometheus", err)
	}
	_, err = controlplane.StartPrometheus(within(t), controlplane.PrometheusOptions{BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "prometheus is not in ") {
		t.Errorf("no program: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "outboard-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
