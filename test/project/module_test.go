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

// A module with replace lines cannot be installed with go install, and one that
// needs k8s.io/kubernetes forces its replace lines on all who import it.
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

// Modules of the same version are compiled once for the control plane and for
// Outboard; and a policy that is built into kube-scheduler changes nothing else in it.
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

// strangersPolicy is what somebody else writes against the module.
const strangersPolicy = `package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

type quiet struct{}

func (quiet) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return quiet{}, nil
}

func (quiet) Score(n *snapshot.Node) int64 {
	return policy.MaxScore / int64(1+len(n.Pods))
}

func main() {
	e, err := engine.New(engine.Options{Policies: []engine.Member{{Name: "Quiet", Policy: quiet{}, Weight: 1}}})
	if err != nil {
		panic(err)
	}
	var builder snapshot.Builder
	node := new(corev1.Node)
	node.Name = "n1"
	builder.SetNode(node)
	view := builder.View()
	var result engine.Result
	if err := e.Score(context.Background(), engine.Request{Pod: new(corev1.Pod), View: view, Nodes: []*snapshot.Node{view.Node("n1")}}, &result); err != nil {
		panic(err)
	}
	fmt.Println(result.Totals)
}
`

// A stranger's module builds and runs with nothing but a require line. The
// replace line here stands for the published version.
func TestStrangersModuleBuilds(t *testing.T) {
	dir, repo := t.TempDir(), root(t)
	sums, err := os.ReadFile(filepath.Join(repo, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"main.go": strangersPolicy,
		"go.sum":  string(sums),
		"go.mod":  "module example.com/stranger\n\ngo 1.26.0\n\nrequire outboard.dev/outboard v0.0.0\n\nreplace outboard.dev/outboard => " + repo + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); !strings.HasSuffix(got, "[100]") {
		t.Errorf("the stranger's policy scored %q, want [100]", got)
	}
}
