// Command compat makes the kube-schedulers of several minor versions of Kubernetes place pods with `outboard serve`, in the same
// scenarios, and prints a table of the results. make compat builds these kube-schedulers and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/stage"
)

func main() {
	var o options
	needs := flag.Bool("needs", false, "print the programs of other releases that the command needs, as arguments of test/compat/build, and exit")
	only := flag.String("only", "", "test only the kube-schedulers of these releases, separated by commas")
	flag.StringVar(&o.outboard, "outboard", "", "the outboard binary (default: built from this checkout)")
	flag.StringVar(&o.kubernetes, "kubernetes", "kubernetes", "the directory with bin/ and compat/RELEASE/bin/")
	flag.StringVar(&o.page, "page", "", "write the table into this page if all releases are tested")
	flag.Parse()
	o.only = strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	if *needs {
		fmt.Println(strings.Join(o.needs(), "\n"))
		return
	}
	klog.SetLogger(logr.Discard()) // client-go reports each watch that ends
	measure.Main("compat", func(ctx context.Context) error { return o.run(ctx, os.Stdout, os.Stderr) })
}

// options are the flags. kubernetes is required.
type options struct {
	outboard, kubernetes, page string
	only                       []string
}

// run runs all scenarios with all pairs of programs, and returns an error if one of them fails.
func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	pairs, err := o.pairs(ctx)
	if err != nil {
		return err
	}
	if o.outboard == "" {
		if o.outboard, err = stage.Build(ctx); err != nil {
			return err
		}
	}
	r := report{day: time.Now().UTC().Format(time.DateOnly)}
	for _, p := range pairs {
		for _, m := range modes {
			row, err := o.play(ctx, p, m, progress)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p, m.name, err)
			}
			r.rows = append(r.rows, row)
		}
	}
	if _, err := io.WriteString(out, r.text()); err != nil {
		return err
	}
	if o.page != "" {
		if err := r.write(o.page); err != nil {
			return err
		}
	}
	if r.failures() > 0 {
		return errors.New("a scenario failed")
	}
	return nil
}

// play runs all scenarios with a pair of programs in a new cluster. What fails in a scenario is in the row. The error is about the start of
// the cluster.
func (o *options) play(ctx context.Context, p pair, m mode, progress io.Writer) (result row, _ error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	result = row{pair: p, mode: m.name}
	dir, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(dir)
	if err := o.link(dir, p); err != nil {
		return result, err
	}
	scene, err := newScene(ctx, stage.Options{Outboard: o.outboard, ControlPlane: controlplane.Options{BinDir: dir}}, p, m)
	if err != nil {
		return result, err
	}
	defer func() {
		if err := scene.Stop(); err != nil {
			result.errors = append(result.errors, fmt.Sprintf("stopping the cluster: %v", err))
		}
	}()
	for _, sc := range scenarios {
		began := time.Now()
		outcome, err := scene.play(ctx, sc)
		if err != nil {
			outcome = failed
			result.errors = append(result.errors, fmt.Sprintf("%s: %v", sc.name, err))
		}
		result.outcomes = append(result.outcomes, outcome)
		fmt.Fprintf(progress, "%s: %s: %s (%.1f s)\n", &result, sc.name, outcome, time.Since(began).Seconds())
		if err != nil {
			fmt.Fprintf(progress, "  %v\n", err)
		}
	}
	return result, nil
}

// link creates links in the directory to the programs of a control plane with this kube-apiserver.
func (o *options) link(dir string, p pair) error {
	for name, path := range map[string]string{
		"etcd":           filepath.Join(o.kubernetes, "bin", "etcd"),
		"kubectl":        filepath.Join(o.kubernetes, "bin", "kubectl"),
		"kube-apiserver": p.serverPath,
	} {
		target, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
