package app

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionAsJSON(t *testing.T) {
	text, err := execute(t, "version", "-o", "json")
	var v struct{ Version, Commit, GoVersion, Platform string }
	if err != nil || json.Unmarshal([]byte(text), &v) != nil || v.Version == "" || v.Commit == "" || !strings.HasPrefix(v.GoVersion, "go") || !strings.Contains(v.Platform, "/") {
		t.Errorf("%v: %s", err, text)
	}
}

// A command that needs the API server names the kubeconfig that it has not found.
func TestKubeconfigThatDoesNotExist(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", missing)
	for _, args := range [][]string{{"gpus", "--audit"}, {"explain"}, {"gpus", "--audit", "--kubeconfig", missing}} {
		if _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), "no API server is configured: stat "+missing+": no such file or directory") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
