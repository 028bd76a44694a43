// Command build compiles programs of the local control plane, Prometheus or Outboard,
// from the modules pinned in go.mod, and says how far it is while it does:
//
//	build bin/kube-apiserver bin/etcd
//
// An output file is only ever replaced by a finished program. The directory it
// runs in selects the module; the Makefiles run it. They also run
//
//	build missing FOLDER bin/kube-apiserver bin/kube-scheduler bin/etcd
//
// which prints the outputs whose programs are not in the folder, and fails if it lacks
// another one than kube-scheduler, and
//
//	build release v1.29.6 kube-scheduler
//
// which makes the directory a module of another release of Kubernetes, and builds a program of that.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// program is one of the programs, the package it is built from, and the build tags.
type program struct {
	name, pkg, tags string
	// incomplete is true if go.mod and go.sum lack modules, which the go command then adds.
	incomplete bool
}

// controlPlane is in building order: kube-apiserver compiles most of what the others
// need.
var controlPlane = []program{
	{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
	{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
	{name: "kube-scheduler-outboard", pkg: "outboard.dev/outboard/kubernetes/cmd/kube-scheduler-outboard"},
	{name: "ideal-scheduler", pkg: "outboard.dev/outboard/kubernetes/cmd/ideal-scheduler"},
}

// others are the programs of the other modules. Those of Prometheus are built without service discovery, which takes the clients of all
// clouds.
var others = []program{
	{name: "prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus", tags: "remove_all_sd"},
	{name: "promtool", pkg: "github.com/prometheus/prometheus/cmd/promtool", tags: "remove_all_sd"},
	{name: "outboard", pkg: "outboard.dev/outboard/cmd/outboard"},
	{name: "demo", pkg: "outboard.dev/outboard/examples/demo"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 1 && args[0] == "missing":
		err = missing(ctx, os.Stdout, os.Stderr, args[1], args[2:])
	case len(args) > 1 && args[0] == "release":
		err = runRelease(ctx, args[1], args[2:])
	default:
		err = run(ctx, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, outputs []string) error {
	module, err := goOutput(ctx, "list", "-m")
	if err != nil {
		return err
	}
	programs, ldflags := others, "-s -w"
	if strings.HasSuffix(strings.TrimSpace(module), "/kubernetes") {
		version, err := goOutput(ctx, "list", "-m", "-f", "{{.Version}}", kubernetes)
		if err != nil {
			return err
		}
		programs = controlPlane
		if ldflags, err = linkerFlags(strings.TrimSpace(version)); err != nil {
			return err
		}
	}
	return buildAll(ctx, programs, ldflags, outputs)
}

// buildAll builds those of the programs that the outputs name.
func buildAll(ctx context.Context, programs []program, ldflags string, outputs []string) error {
	for _, output := range outputs {
		i := slices.IndexFunc(programs, func(p program) bool { return p.name == filepath.Base(output) })
		if i < 0 {
			return fmt.Errorf("%s: not a program of this module", output)
		}
		report := newReport(os.Stderr, programs[i].name, onTerminal(os.Stderr))
		if err := build(ctx, report, programs[i], ldflags, output); err != nil {
			return err
		}
	}
	return nil
}

// linkerFlags makes programs report version, a release such as v1.36.3. Without
// it they call themselves v0.0.0-master, which clients and version checks refuse.
func linkerFlags(version string) (string, error) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 || !strings.HasPrefix(version, "v") {
		return "", fmt.Errorf("k8s.io/kubernetes has version %q; want vMAJOR.MINOR.PATCH", version)
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+version,
			"-X", pkg+".gitMajor="+parts[0],
			"-X", pkg+".gitMinor="+parts[1],
			"-X", pkg+".gitTreeState=clean")
	}
	return strings.Join(flags, " "), nil
}

// build compiles p, of the module in the working directory, into output.
// On any error, cancellation included, output is as it was.
func build(ctx context.Context, report *report, p program, ldflags, output string) (err error) {
	stop := report.start()
	defer func() { stop(err) }()

	// With nothing but CGO_ENABLED=0 deciding how a package is compiled, the programs
	// share the packages they have in common, also with Outboard and its tests.
	var stale bytes.Buffer
	mod := "-mod=readonly"
	if p.incomplete {
		mod = "-mod=mod"
	}
	list := goCommand(ctx, "list", mod, "-tags", p.tags, "-deps", "-f", "{{if and .Stale .DepOnly}}{{.ImportPath}}{{end}}", p.pkg)
	list.Stdout = &stale
	if err := runReported(list, report); err != nil {
		return err
	}
	report.compiling(p.pkg, strings.Fields(stale.String()))

	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	partial := filepath.Join(filepath.Dir(output), "."+filepath.Base(output)+".partial")
	defer os.Remove(partial)
	// go build keeps a program that is up to date, which saves linking it again, and otherwise replaces the link.
	if err := os.Link(output, partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := runReported(goCommand(ctx, "build", "-v", "-buildvcs="+cmp.Or(os.Getenv("BUILDVCS"), "auto"), "-tags", p.tags, "-ldflags", ldflags, "-o", partial, p.pkg), report); err != nil {
		return err
	}
	return os.Rename(partial, output)
}

// goCommand runs the go command with settings of the environment that would
// change the result, or stop it, overridden: GOFLAGS (which must not be empty,
// or the one from `go env -w` counts), workspaces, cgo.
func goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func goOutput(ctx context.Context, args ...string) (string, error) {
	return goOutputIn(ctx, "", args...)
}

func goOutputIn(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := goCommand(ctx, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, exit.Stderr)
	}
	return string(out), err
}

// runReported runs cmd, an invocation of go, with its standard error read by report.
func runReported(cmd *exec.Cmd, report *report) error {
	r, w := io.Pipe()
	cmd.Stderr = w
	read := make(chan struct{})
	go func() {
		defer close(read)
		report.read(r)
	}()
	err := cmd.Run()
	w.Close()
	<-read
	if err != nil {
		return fmt.Errorf("go %s: %w", cmd.Args[1], err)
	}
	return nil
}

// onTerminal reports whether f can show a line that is rewritten in place.
func onTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
