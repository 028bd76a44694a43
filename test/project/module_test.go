package project

import (
	"maps"
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
// in a kube-scheduler build changes no other module of it. Modules that contain no code of Outboard have the versions of the programs
// that they build: their go.mod says which.
func TestModulesHaveTheVersionsOfKubernetes(t *testing.T) {
	versions := versionsOf(modfileOf(t, "kubernetes"))
	for _, dir := range modules(t) {
		file := modfileOf(t, dir)
		common := versionsOf(file)
		if _, ours := common[module]; dir != "." && !ours {
			if len(file.Module.Syntax.Before) == 0 {
				t.Errorf("%s/go.mod has no comment that says whose versions it has", dir)
			}
			continue
		}
		maps.DeleteFunc(common, func(path, _ string) bool { return path == module || versions[path] == "" })
		if len(common) == 0 {
			t.Errorf("%s/go.mod and kubernetes/go.mod have nothing in common", dir)
		}
		for path, version := range common {
			if version != versions[path] {
				t.Errorf("%s/go.mod requires %s %s, kubernetes/go.mod %s", dir, path, version, versions[path])
			}
		}
	}
}

// versionsOf returns the versions of the modules that the module requires.
func versionsOf(file *modfile.File) map[string]string {
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range file.Replace {
		versions[r.Old.Path] = r.New.Version
	}
	return versions
}

// modules returns the folders of all modules, relative to the root: "." is that of the root module.
func modules(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root(t), "ls-files", "go.mod", "*/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for path := range strings.FieldsSeq(string(out)) {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}
