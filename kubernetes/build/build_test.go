package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module makes the working directory a module with one program.
func module(t *testing.T, mainGo string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"go.mod":         "module example.test/toy\n\ngo 1.26\n",
		"toy/main.go":    mainGo,
		"part/part.go":   "package part\n\nconst Answer = \"forty-two\"\n",
		"part/doc.go":    "// Package part is needed by toy.\npackage part\n",
		"other/other.go": "package other\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const toy = `package main

import "example.test/toy/part"

var version = "none"

func main() { println(version, part.Answer) }
`

func TestBuild(t *testing.T) {
	module(t, toy)
	// These settings would break the build if they took effect.
	t.Setenv("GOFLAGS", "-mod=vendor")
	t.Setenv("GOWORK", filepath.Join(t.TempDir(), "no-such.work"))
	var out bytes.Buffer
	if err := build(t.Context(), newReport(&out, "toy", false), program{pkg: "example.test/toy/toy"}, "-X main.version=v7", "bin/toy"); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	got, err := exec.Command("bin/toy").CombinedOutput()
	if err != nil || string(got) != "v7 forty-two\n" {
		t.Errorf("the program prints %q, %v; want %q", got, err, "v7 forty-two\n")
	}
	if !strings.HasPrefix(out.String(), "toy: built in ") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("output %q; want the one line that it is built", &out)
	}
	onlyFiles(t, "toy")
}

// A program that is up to date is not linked again: what was appended to it stays.
func TestUpToDateProgramIsNotLinkedAgain(t *testing.T) {
	module(t, toy)
	builds := func() {
		t.Helper()
		if err := build(t.Context(), newReport(io.Discard, "toy", false), program{pkg: "example.test/toy/toy"}, "-X main.version=v7", "bin/toy"); err != nil {
			t.Fatal(err)
		}
	}
	builds()
	program, err := os.ReadFile("bin/toy")
	if err != nil {
		t.Fatal(err)
	}
	marked := append(program, "mark"...)
	if err := os.WriteFile("bin/toy", marked, 0o755); err != nil {
		t.Fatal(err)
	}
	builds()
	if got, err := os.ReadFile("bin/toy"); err != nil || !bytes.Equal(got, marked) {
		t.Errorf("the program has %d bytes, %v; want the %d of the first one and the mark", len(got), err, len(marked))
	}
	if err := os.WriteFile("part/part.go", []byte("package part\n\nconst Answer = \"forty-three\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	builds()
	if got, err := exec.Command("bin/toy").CombinedOutput(); err != nil || string(got) != "v7 forty-three\n" {
		t.Errorf("after a change of its source, the program prints %q, %v", got, err)
	}
	onlyFiles(t, "toy")
}

func TestBuildFailureIsReportedAndKeepsTheOldProgram(t *testing.T) {
	tests := []struct {
		name, pkg, source, want string
	}{
		{"does not compile", "example.test/toy/toy", strings.ReplaceAll(toy, "part.Answer", "part.Question"), "undefined: part.Question"},
		{"does not exist", "example.test/toy/none", toy, "example.test/toy/none"},
		{"cannot be imported", "example.test/toy/toy", strings.ReplaceAll(toy, "toy/part", "toy/missing"), "example.test/toy/missing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			module(t, test.source)
			oldProgram(t)
			var out bytes.Buffer
			err := build(t.Context(), newReport(&out, "toy", false), program{pkg: test.pkg}, "", "bin/toy")
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(out.String(), test.want) || !strings.Contains(out.String(), "toy: failed after ") {
				t.Errorf("output\n%s\nlacks the compiler's %q or that it failed", &out, test.want)
			}
			isOldProgram(t)
		})
	}
}

// halfABuild is a go command whose build writes a part of the program, and ends only when it is interrupted.
const halfABuild = `#!/bin/sh
[ "$1" = build ] || exec "$REAL_GO" "$@"
trap 'exit 1' INT
while [ "$1" != -o ]; do shift; done
rm -f "$2"
echo half >"$2"
while :; do sleep 0.05; done
`

func TestInterruptedBuildKeepsTheOldProgram(t *testing.T) {
	module(t, toy)
	oldProgram(t)
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "go"), []byte(halfABuild), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REAL_GO", goCommand)
	t.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report := newReport(writerFunc(func(p []byte) (int, error) {
		if half, _ := filepath.Glob("bin/.*"); len(half) > 0 && !bytes.HasPrefix(p, []byte("toy: failed")) {
			if text, _ := os.ReadFile(half[0]); string(text) == "half\n" {
				cancel()
			}
		}
		return len(p), nil
	}), "toy", false)
	report.interval = time.Millisecond // a line interrupts the build
	if err := build(ctx, report, program{pkg: "example.test/toy/toy"}, "", "bin/toy"); err == nil {
		t.Fatal("no error")
	}
	isOldProgram(t)
	onlyFiles(t, "toy")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func oldProgram(t *testing.T) {
	t.Helper()
	if err := os.Mkdir("bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bin/toy", []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func isOldProgram(t *testing.T) {
	t.Helper()
	if got, err := os.ReadFile("bin/toy"); err != nil || string(got) != "old" {
		t.Errorf("bin/toy is %q, %v; want it unchanged", got, err)
	}
	onlyFiles(t, "toy")
}

func onlyFiles(t *testing.T, want string) {
	t.Helper()
	entries, err := os.ReadDir("bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != want {
			t.Errorf("left behind: bin/%s", e.Name())
		}
	}
}

func TestRunRejectsUnknownPrograms(t *testing.T) {
	t.Chdir("..")
	if err := run(t.Context(), []string{"bin/kubelet"}); err == nil || !strings.Contains(err.Error(), "bin/kubelet") {
		t.Errorf("error %v; want one naming bin/kubelet", err)
	}
}

func TestLinkerFlags(t *testing.T) {
	got, err := linkerFlags("v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3",
		"-X k8s.io/component-base/version.gitMinor=36",
		"-X k8s.io/client-go/pkg/version.gitMajor=1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("flags %q lack %q", got, want)
		}
	}
	for _, bad := range []string{"", "(devel)", "v1.36", "1.36.3"} {
		if _, err := linkerFlags(bad); err == nil {
			t.Errorf("version %q is accepted", bad)
		}
	}
}

func TestProgress(t *testing.T) {
	r := newReport(io.Discard, "[1/4] etcd", false)
	expect := func(want string) {
		t.Helper()
		if got := r.status(61 * time.Second); got != want {
			t.Errorf("status %q, want %q", got, want)
		}
	}
	take := func(line string, want bool) {
		t.Helper()
		if got := r.take(line); got != want {
			t.Errorf("take(%q) = %v, want %v", line, got, want)
		}
	}
	expect("[1/4] etcd: looking at packages, 1m1s")
	take("go: downloading example.test/x v1.0.0", true)
	expect("[1/4] etcd: modules downloaded: 1, 1m1s")
	r.compiling("x/etcd", []string{"a", "b", "c", "d"})
	expect("[1/4] etcd: 0 of 4 packages (0%), 1m1s")
	take("b", true)
	take("# b", false)
	take("b/b.go:3:1: syntax error", false)
	expect("[1/4] etcd: 1 of 4 packages (25%), 1m1s")
	take("a", true)
	take("c", true)
	take("d", true)
	take("x/etcd", true)
	expect("[1/4] etcd: linking, 1m1s")
}

func TestTerminalLineIsRewritten(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, "etcd", true)
	r.show("one")
	r.show("two")
	r.print("a warning")
	if want := "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Ka warning\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}
