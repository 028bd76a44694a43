package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

const kubernetes = "k8s.io/kubernetes"

// goMod is what a release's own go.mod determines about its programs.
type goMod struct {
	Go      string
	GoDebug []struct{ Key, Value string }
	Replace []struct{ Old, New struct{ Path string } }
}

// runRelease makes the working directory a module of a release, such as v1.29.6, and builds programs of that.
func runRelease(ctx context.Context, release string, outputs []string) error {
	ldflags, err := linkerFlags(release)
	if err != nil {
		return err
	}
	if err := createModule(ctx, release); err != nil {
		return err
	}
	var programs []program
	for _, name := range []string{"kube-apiserver", "kube-scheduler"} {
		programs = append(programs, program{name: name, pkg: kubernetes + "/cmd/" + name, incomplete: true})
	}
	return buildAll(ctx, programs, ldflags, outputs)
}

// createModule writes a go.mod for the programs of a release into the working directory. The go
// command adds the other modules in the versions that the release selects.
func createModule(ctx context.Context, release string) error {
	file, err := ownGoMod(ctx, release)
	if err != nil {
		return err
	}
	parsed, err := goOutput(ctx, "mod", "edit", "-json", file)
	if err != nil {
		return err
	}
	var m goMod
	if err := json.Unmarshal([]byte(parsed), &m); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile("go.mod", []byte(m.text(release)), 0o644)
}

// ownGoMod downloads the go.mod of a release and returns its path. It runs outside the working directory, because a
// go.mod there may be incomplete.
func ownGoMod(ctx context.Context, release string) (string, error) {
	elsewhere, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(elsewhere)
	file, err := goOutputIn(ctx, elsewhere, "list", "-m", "-f", "{{.GoMod}}", kubernetes+"@"+release)
	return strings.TrimSpace(file), err
}

// text returns the go.mod of a module that requires the release. A release replaces its staging modules by its own
// folders, whose content is published as v0.MINOR.PATCH.
func (m *goMod) text(release string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// Written by kubernetes/build.\nmodule outboard.dev/outboard/kubernetes/compat\n\ngo %s\n", m.Go)
	for _, g := range m.GoDebug {
		fmt.Fprintf(&b, "\ngodebug %s=%s\n", g.Key, g.Value)
	}
	fmt.Fprintf(&b, "\nrequire %s %s\n\nreplace (\n", kubernetes, release)
	for _, r := range m.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			fmt.Fprintf(&b, "\t%s => %s v0%s\n", r.Old.Path, r.Old.Path, strings.TrimPrefix(release, "v1"))
		}
	}
	b.WriteString(")\n")
	return b.String()
}
