package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func modfileOf(t *testing.T, dir string) *modfile.File {
	t.Helper()
	path := filepath.Join(root(t), dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A module with replace lines cannot be installed with go install, and a module that requires
// k8s.io/kubernetes forces its replace lines on all importers.
func TestRootModuleIsImportable(t *testing.T) {
	file := modfileOf(t, ".")
	if len(file.Replace) > 0 || len(file.Exclude) > 0 {
		t.Errorf("go.mod has %d replace and %d exclude lines", len(file.Replace), len(file.Exclude))
	}
	for _, r := range file.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			t.Errorf("go.mod requires %s", r.Mod)
		}
	}
}

// Go compiles modules of the same version once for the control plane and for Outboard; and a policy
// in a kube-scheduler build changes no other module of it.
func TestModulesHaveTheVersionsOfKubernetes(t *testing.T) {
	kubernetes := modfileOf(t, "kubernetes")
	versions := map[string]string{}
	for _, r := range kubernetes.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range kubernetes.Replace {
		versions[r.Old.Path] = r.New.Version
	}
	common := 0
	for _, r := range modfileOf(t, ".").Require {
		want, known := versions[r.Mod.Path]
		if !known {
			continue
		}
		if common++; r.Mod.Version != want {
			t.Errorf("go.mod requires %s, kubernetes/go.mod %s", r.Mod, want)
		}
	}
	if common == 0 {
		t.Error("the modules have nothing in common")
	}
}
