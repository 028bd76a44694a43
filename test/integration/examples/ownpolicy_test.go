package examples_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var ownPolicyDir = filepath.Join("..", "..", "..", "examples", "own-policy")

// ownPolicy is a program in a module of its own, as a user writes it: Outboard with one additional
// policy. test/nightly serves with it.
type ownPolicy struct {
	t   *testing.T
	dir string
}

func (p *ownPolicy) golang(args ...string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "go", args...)
	cmd.Dir = ownPolicyDir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (p *ownPolicy) file(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// run runs the program and returns its exit status and what it prints.
func (p *ownPolicy) run(args ...string) (status int, printed string) {
	p.t.Helper()
	out, err := exec.CommandContext(p.t.Context(), filepath.Join(p.dir, "outboard"), args...).CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	} else if err != nil {
		status = failed.ExitCode()
	}
	return status, string(out)
}

// A program of at most 20 lines serves a custom policy: every subcommand supports it, with its
// defaults and errors. Its replace line replaces the published version.
func TestOwnPolicy(t *testing.T) {
	p := &ownPolicy{t: t, dir: t.TempDir()}
	p.golang("build", "-ldflags=-s -w", "-o", filepath.Join(p.dir, "outboard"), ".")
	p.golang("test", "-vet=off", "-ldflags=-s -w", "./...")
	main, err := os.ReadFile(filepath.Join(ownPolicyDir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(main, []byte("\n")); lines > 20 {
		t.Errorf("main.go has %d lines, want 20 at most", lines)
	}
	const header = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\n"
	good := p.file("good.yaml", header+"profiles:\n- policies: [{type: Seats, config: {license: cad}}]\n")
	wrong := p.file("wrong.yaml", header+"profiles:\n- policies:\n  - type: Seats\n    config:\n      licence: cad\n      seats: 0\n  - type: Seat\n")
	nodes := p.file("nodes.yaml", "kind: Node\napiVersion: v1\nmetadata: {name: a}\nstatus: {allocatable: {cpu: 8, memory: 16Gi, pods: 10}}\n")
	pod := p.file("pod.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: new, labels: {example.com/license: cad}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n")
	for _, tt := range []struct {
		args   string
		status int
		want   []string
	}{
		{"check " + good, 0, []string{"is valid", "profile /: Seats"}},
		{"check " + wrong, 1, []string{
			`:8: profiles[0].policies[0].config.licence: Unknown field: did you mean "license"?`,
			`:9: profiles[0].policies[0].config.seats: Invalid value: 0: must be at least 1 (policy Seats)`,
			`:10: profiles[0].policies[1].type: Unsupported value: "Seat": did you mean "Seats"?`,
		}},
		{"check --schema", 0, []string{`"const": "Seats"`, `"license"`, `"default": 2`}},
		{"serve --print-config --config " + good, 0, []string{"license: cad\n", "seats: 2\n"}},
		{"simulate " + nodes + " --config " + good + " --count-fitting " + pod, 0, []string{"good: 2 more pods like default/new fit"}},
		{"simulate " + nodes + " --config " + wrong + " --count-fitting " + pod, 2, []string{"did you mean"}},
	} {
		status, printed := p.run(strings.Fields(tt.args)...)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d\n%s", tt.args, status, tt.status, printed)
		}
		for _, want := range tt.want {
			if !strings.Contains(printed, want) {
				t.Errorf("%s prints\n%swant %q", tt.args, printed, want)
			}
		}
	}
}
