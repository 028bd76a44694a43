// Command demo runs an example folder: it starts a real control plane, Outboard
// and an unmodified kube-scheduler on this machine, creates the folder's nodes and
// pods, and shows where each pod went and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"outboard.dev/outboard/controlplane"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/explain"
	"outboard.dev/outboard/test/stage"
)

// patience limits the duration of the whole demo, far above what it takes on a slow machine.
const patience = 3 * time.Minute

func main() {
	keep := flag.Bool("keep", false, "leave everything running until interrupted")
	dir := flag.String("example", "examples/placement", "folder of the example to run")
	binary := flag.String("outboard", "", "outboard binary (default: built from this checkout)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *dir, *binary, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, dir, binary string, keep bool) (err error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	example, err := stage.ReadExample(dir)
	if err != nil {
		return err
	}
	progress := newProgress()
	progress.step("starting etcd and kube-apiserver")
	// The default of controlplane if the variable is not set.
	s, err := stage.Set(bounded, stage.Options{Outboard: binary, ControlPlane: controlplane.Options{BinDir: os.Getenv("KUBEBUILDER_ASSETS")}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	progress.step(fmt.Sprintf("creating %d nodes, starting Outboard and kube-scheduler", len(example.Nodes)))
	play, err := s.Play(bounded, example)
	if err != nil {
		return err
	}
	var placed []stage.Placed
	progress.step(fmt.Sprintf("creating %d pods, one after the other", len(example.Pods)))
	for _, pod := range example.Pods {
		p, err := s.Place(bounded, pod)
		if err != nil {
			return err
		}
		placed = append(placed, p)
	}
	progress.done()
	if err := show(bounded, os.Stdout, play, placed); err != nil {
		return err
	}
	if keep {
		wait(ctx, play)
	}
	return nil
}

// show writes on which node each pod is and why.
func show(ctx context.Context, w io.Writer, play *stage.Play, placed []stage.Placed) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tNODE\tWHY")
	var unplaced *stage.Placed
	for i, p := range placed {
		node, why := p.Pod.Spec.NodeName, p.Pod.Annotations[decision.Annotation]
		if node == "" {
			// The first sentence is about nodes, the rest about preemption.
			why, _, _ = strings.Cut(p.Waiting, ". ")
			unplaced, node, why = &placed[i], "(waits)", "kube-scheduler says: "+why
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Pod.Name, node, why)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	last := placed[0]
	if unplaced != nil {
		last = *unplaced
	}
	fmt.Fprintf(w, "\n$ outboard explain %s --nodes 3\n", last.Pod.Name)
	doc, err := explain.Fetch(ctx, http.DefaultClient, play.Outboard.Admin, url.Values{
		"namespace": {last.Pod.Namespace}, "pod": {last.Pod.Name}, "nodes": {"3"}, "decisions": {"2"},
	})
	if err != nil {
		return err
	}
	return doc.Text(w)
}

// wait prints how to use the running control plane, and returns when interrupted.
func wait(ctx context.Context, play *stage.Play) {
	binary, err := filepath.Rel(".", play.Binary())
	if err != nil {
		binary = play.Binary()
	}
	fmt.Printf(`
Everything keeps running until you press Ctrl-C. In another terminal:

  export KUBECONFIG=%s
  %s get pods -o wide
  %s explain web-1 --admin %s
  curl %s/metrics
`, play.Kubeconfig(), word(play.KubectlPath()), binary, play.Outboard.Admin, play.Outboard.Admin)
	<-ctx.Done()
}

// word returns the path as one word of a shell command: the folder of envtest's programs may have a space in its name.
func word(path string) string {
	if strings.ContainsAny(path, " ()&;$") {
		return "'" + path + "'"
	}
	return path
}

// progress reports each step and its duration on standard error.
type progress struct {
	what  string
	since time.Time
}

func newProgress() *progress { return &progress{} }

func (p *progress) step(what string) {
	p.done()
	p.what, p.since = what, time.Now()
	fmt.Fprintf(os.Stderr, "%s … ", what)
}

func (p *progress) done() {
	if p.what != "" {
		fmt.Fprintf(os.Stderr, "%.1f s\n", time.Since(p.since).Seconds())
		p.what = ""
	}
}
