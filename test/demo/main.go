// Command demo runs an example folder: it starts a real control plane, Outboard
// and an unmodified kube-scheduler on this machine, creates the folder's nodes and
// pods, and shows where each pod went and why.
package main

import (
	"cmp"
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
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
)

// patience limits the start, and the placing of each pod, far above what they take on a slow
// machine.
const patience = 3 * time.Minute

// lag limits how long Outboard may show an earlier state of the pods; without a cluster, it shows
// none.
const lag = 5 * time.Second

func main() {
	keep := flag.Bool("keep", false, "leave everything running until interrupted")
	dir := flag.String("example", "", "the folder to run, with outboard.yaml, scheduler.yaml, nodes.yaml and pods.yaml (default: examples/placement, and with --keep examples/gpu-sharing, of which the page shows most)")
	binary := flag.String("outboard", "", "outboard binary (default: built from this checkout)")
	real := flag.String("node", "", "the node of the example, without the others, that is real and runs pods, in the namespaces of test/node/enter")
	flag.Parse()
	if *dir == "" {
		*dir = "examples/placement"
		if *keep {
			*dir = "examples/gpu-sharing"
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, os.Stdout, *dir, *binary, *real, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, w io.Writer, dir, binary, real string, keep bool) (err error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	example, err := stage.ReadExample(dir)
	if err != nil {
		return err
	}
	progress := newProgress()
	progress.step("starting etcd and kube-apiserver")
	// The default of controlplane if the variable is not set.
	options := stage.Options{Outboard: binary}
	if real != "" {
		options.ControlPlane = node.ControlPlane()
	}
	s, err := stage.Set(bounded, options)
	if err != nil {
		return err
	}
	defer func() {
		kept, lost := keepLogs(s)
		if err = errors.Join(err, lost, s.Stop()); err != nil {
			err = fmt.Errorf("%w\nThe logs of all programs: %s", err, kept)
		} else if !keep {
			_, err = fmt.Fprintf(w, "The logs of all programs: %s\n", kept)
		}
	}()
	if real != "" {
		progress.step("starting kubelet, containerd and what makes a cluster")
		if err := makeReal(bounded, s, example, real); err != nil {
			return err
		}
	}
	progress.step(fmt.Sprintf("creating %d nodes, starting Outboard and kube-scheduler", len(example.Nodes)))
	play, err := s.Play(bounded, example)
	if err != nil {
		return err
	}
	progress.step(fmt.Sprintf("creating %d pods, one after the other", len(example.Pods)))
	var placed []*corev1.Pod
	for _, pod := range example.Pods {
		p, err := place(ctx, s, pod)
		if err != nil {
			return err
		}
		placed = append(placed, p)
	}
	outcomes, err := read(ctx, play, placed)
	if err != nil {
		return err
	}
	progress.done()
	shown, err := show(w, play, outcomes)
	if err == nil && real != "" {
		err = logs(bounded, w, s, outcomes)
	}
	if err != nil {
		return err
	}
	if keep {
		wait(ctx, w, play, shown)
		return nil
	}
	_, err = fmt.Fprintf(w, "\nThe page shows this, too: make demo KEEP=1 leaves pods that share GPUs running, and prints its address.\n")
	return err
}

// makeReal starts the node of the example, which then has no others, and changes the pods into ones that run.
func makeReal(ctx context.Context, s *stage.Stage, example *stage.Example, name string) error {
	i := slices.IndexFunc(example.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("the example has no node %s", name)
	}
	if _, err := node.Start(ctx, s.ControlPlane, s.Root, example.Nodes[i]); err != nil {
		return err
	}
	example.Nodes = nil
	for i, pod := range example.Pods {
		example.Pods[i] = node.Running(pod)
	}
	return nil
}

// logs waits until the pods with a node run, and writes what their containers log.
func logs(ctx context.Context, w io.Writer, s *stage.Stage, outcomes []outcome) error {
	for _, o := range outcomes {
		if o.pod.Spec.NodeName == "" {
			continue
		}
		if _, err := controlplane.WaitForPod(ctx, s.Client, o.pod, func(p *corev1.Pod) (bool, error) { return p.Status.Phase == corev1.PodRunning, nil }); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n$ kubectl logs --all-containers %s\n", o.pod.Name)
		for _, c := range o.pod.Spec.Containers {
			out, err := node.Logs(ctx, s.ControlPlane, o.pod, c.Name)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s: %s", c.Name, out)
		}
	}
	return nil
}

// place creates the pod, and returns it after the first attempt to schedule it.
func place(ctx context.Context, s *stage.Stage, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	outcome, err := s.Place(ctx, pod)
	return outcome.Pod, err
}

// keepLogs copies the logs of etcd, kube-apiserver, kube-scheduler and Outboard, which end with the
// stage, to a folder in place of those of the run before. It returns the pattern of their names.
func keepLogs(s *stage.Stage) (pattern string, err error) {
	dir := filepath.Join(s.Root, "bin", "demo-logs")
	pattern = filepath.Join(relative(dir), "*.log")
	logs, err := filepath.Glob(filepath.Join(s.Dir(), "*.log"))
	if err := errors.Join(err, os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return pattern, err
	}
	for _, name := range logs {
		log, err := os.ReadFile(name)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.Base(name)), log, 0o600)); err != nil {
			return pattern, err
		}
	}
	return pattern, nil
}

// relative returns an absolute path as one from the working directory, and another path as it is.
func relative(path string) string {
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, path); err == nil {
			return short
		}
	}
	return path
}

// outcome is a pod, and what Outboard says about it in the same state; nil if the pod is deleted.
type outcome struct {
	pod  *corev1.Pod
	says *explain.Document
}

// read returns the current outcomes of the pods.
func read(ctx context.Context, play *stage.Play, placed []*corev1.Pod) ([]outcome, error) {
	all := make([]outcome, len(placed))
	deadline := time.Now().Add(lag)
	for i, pod := range placed {
		o := &all[i]
		for same := false; !same; time.Sleep(20 * time.Millisecond) {
			now, err := play.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				*o = outcome{pod: pod}
				break
			}
			if err != nil {
				return nil, err
			}
			says, err := explain.Fetch(ctx, http.DefaultClient, play.Outboard.Admin, url.Values{
				"namespace": {pod.Namespace}, "pod": {pod.Name}, "nodes": {"3"}, "decisions": {"32"},
			})
			if err != nil {
				return nil, err
			}
			*o = outcome{now, says}
			same = time.Now().After(deadline) || says.Node == now.Spec.NodeName &&
				(len(now.Spec.SchedulingGates) > 0 || says.Unschedulable == stage.Waiting(now))
		}
	}
	return all, nil
}

// row returns where the pod is, and why.
func (o *outcome) row(created *corev1.Pod) (node, why string) {
	switch {
	case o.says == nil:
		return "(deleted)", "kube-scheduler deletes pods to make room for those with a higher priority"
	case o.pod.Spec.NodeName == "":
		// The first sentence is about nodes, the rest about preemption.
		why, _, _ = strings.Cut(stage.Waiting(o.pod), ". ")
		return "(waits)", "kube-scheduler says: " + why
	case created.Spec.NodeName != "":
		why = "created with spec.nodeName: no scheduler placed it"
	case len(o.says.Decisions) == 0:
		why = "kube-scheduler placed it without a call to Outboard"
	default:
		why = cmp.Or(o.says.Annotation, decision.Why(o.says.Decisions, "", o.pod.Spec.NodeName),
			"kube-scheduler placed it: Outboard neither rejected nor scored a node")
	}
	return o.pod.Spec.NodeName, why
}

// interest is larger for pods whose explanation shows more.
func (o *outcome) interest() int {
	switch {
	case o.says == nil || len(o.says.Decisions) == 0:
		return 0
	case o.says.Node != "":
		return 1
	}
	return 2
}

// show writes on which node each pod is and why, and explains one of them, which it returns; nil if
// there are no pods.
func show(w io.Writer, play *stage.Play, outcomes []outcome) (*corev1.Pod, error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "POD\tNODE\tWHY")
	for i := range outcomes {
		node, why := outcomes[i].row(play.Example.Pods[i])
		fmt.Fprintf(table, "%s\t%s\t%s\n", outcomes[i].pod.Name, node, why)
	}
	if err := table.Flush(); err != nil || len(outcomes) == 0 {
		return nil, err
	}
	shown := slices.MaxFunc(outcomes, func(a, b outcome) int { return cmp.Compare(a.interest(), b.interest()) })
	if shown.says == nil {
		return shown.pod, nil
	}
	shown.says.Decisions = shown.says.Decisions[:min(2, len(shown.says.Decisions))]
	fmt.Fprintf(w, "\n$ outboard explain %s --limit 3\n", podName(shown.pod))
	return shown.pod, shown.says.Text(w)
}

// podName returns the pod as an argument of outboard explain.
func podName(pod *corev1.Pod) string {
	if pod.Namespace == metav1.NamespaceDefault {
		return pod.Name
	}
	return pod.Namespace + "/" + pod.Name
}

// wait prints how to use the running control plane, and returns when interrupted.
func wait(ctx context.Context, w io.Writer, play *stage.Play, shown *corev1.Pod) {
	example := "POD"
	if shown != nil {
		example = podName(shown)
	}
	fmt.Fprintf(w, `
Everything keeps running until you press Ctrl-C. In another terminal:

%s  export KUBECONFIG=%s OUTBOARD_ADMIN=%s
  %s get pods -o wide
  %s explain %s
  curl $OUTBOARD_ADMIN/metrics

The page with waiting pods, GPUs and decisions: %s/ui/

Outboard follows changes of its configuration, and kube-scheduler reads its own at the start:

  %s
  %s

The logs of etcd, kube-apiserver, kube-scheduler and Outboard:

  %s
`, node.Enter(), play.Kubeconfig(), play.Outboard.Admin, word(play.KubectlPath()), relative(play.Binary()), example, play.Outboard.Admin,
		play.Outboard.ConfigFile, play.Scheduler.ConfigFile(), filepath.Join(play.Dir(), "*.log"))
	<-ctx.Done()
}

// word returns the path as one word of a shell command: the folder of envtest's programs may have a
// space in its name.
func word(path string) string {
	if strings.ContainsAny(path, " ()&;$") {
		return "'" + path + "'"
	}
	return path
}

// progress reports each step and its duration on standard error, if that is a terminal.
type progress struct {
	shown bool
	what  string
	since time.Time
}

func newProgress() *progress { return &progress{shown: term.IsTerminal(int(os.Stderr.Fd()))} }

func (p *progress) step(what string) {
	if !p.shown {
		return
	}
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
