package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The commands of docs/emergency.md on the host of the cluster's own scheduler remove its entries, and bring them back, also if the first
// ones were repeated. The manifest of the static pod is then where it was.
func TestEmergencyOnTheHost(t *testing.T) {
	const with = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: https://10.96.0.20}]\n"
	host := t.TempDir()
	file := filepath.Join(host, "outboard", "scheduler.yaml")
	for path, text := range map[string]string{"outboard/scheduler.yaml": with, "manifests/kube-scheduler.yaml": "kind: Pod\n", "bin/sleep": "#!/bin/sh\n"} {
		path = filepath.Join(host, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "emergency.md"))
	if err != nil {
		t.Fatal(err)
	}
	var onHost []string
	all, _ := blocksOf("emergency.md", page)
	for _, b := range all {
		if strings.HasPrefix(b.text, "cd /etc/kubernetes\n") {
			onHost = append(onHost, strings.ReplaceAll(b.text, "/etc/kubernetes", host))
		}
	}
	if len(onHost) != 2 {
		t.Fatalf("the page has %d blocks for the host, want one that removes the entries and one that brings them back", len(onHost))
	}
	for _, step := range []struct {
		commands string
		entries  bool
	}{{onHost[0], false}, {onHost[0], false}, {onHost[1], true}} {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", step.commands)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(host, "bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, step.commands)
		}
		text, err := os.ReadFile(file)
		if err != nil || (string(text) == with) != step.entries || strings.Contains(string(text), "extenders") != step.entries {
			t.Fatalf("%v: the file is\n%s\nafter\n%s", err, text, step.commands)
		}
		if _, err := os.Stat(filepath.Join(host, "manifests", "kube-scheduler.yaml")); err != nil {
			t.Fatalf("%v after\n%s", err, step.commands)
		}
	}
}
