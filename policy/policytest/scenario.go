package policytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// RunScenarios compares the decisions of a policy with the files that match the pattern, txtar
// archives such as
//
//	Node a runs the most web pods it may.
//	-- config.yaml --
//	max: 1
//	selector: {matchLabels: {app: web}}
//	-- nodes.yaml --
//	- metadata: {name: a}
//	- metadata: {name: b}
//	-- pods.yaml --
//	- {metadata: {name: old, labels: {app: web}}, spec: {nodeName: a}}
//	-- pod.yaml --
//	metadata: {name: new, labels: {app: web}}
//	-- want.txt --
//	node  verdict       have/want        score
//	a     LimitReached  0/1 free places  -
//	b     fits          -                100
//
// config.yaml is the policy's configuration, pods.yaml the pods on the nodes, pod.yaml the pod to
// place; only pod.yaml is required. signals.yaml holds the signals of the View, in the form of
// [Signals], and devices.yaml the devices and the allocations of them, in the form of [Devices].
// allocates.txt is the number in Options.Allocates. As in the engine,
// nodes that do not fit get no score, the scores of the others are normalized together, and
// NoOpinion is replaced. "!" after a verdict means that it is unresolvable. Instead of a table,
// want.txt can say that the policy does not apply to the pod, or contain an error.
//
// RunScenarios also checks every scenario as [Run] does. With the environment variable
// POLICYTEST_UPDATE=1 it rewrites the files to the decisions of the policy.
func RunScenarios(t *testing.T, kind policy.Type, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario matches %q (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			for _, err := range checkScenario(kind, file, os.Getenv("POLICYTEST_UPDATE") == "1") {
				t.Error(err)
			}
		})
	}
}

// checkScenario returns the errors of the policy or the file. With rewrite it rewrites the file
// instead of comparing.
func checkScenario(kind policy.Type, file string, rewrite bool) []error {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return []error{err}
	}
	s, err := parseScenario(archive)
	if err != nil {
		return []error{fmt.Errorf("%s: %w", file, err)}
	}
	build := FromYAML(kind, s.config)
	var errs []error
	if got := s.decide(build); got != s.want && rewrite {
		setWant(archive, got)
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			return []error{err}
		}
	} else if got != s.want {
		errs = append(errs, fmt.Errorf("%s: the policy decides differently (POLICYTEST_UPDATE=1 go test rewrites the file):\n%s", file, cmp.Diff(s.want, got)))
	}
	if _, err := build(); err != nil {
		return errs
	}
	suite := newSuite(Options{New: build, Pods: []*corev1.Pod{s.pod}, Nodes: s.nodes, Assigned: s.assigned, Signals: s.signals, Extend: s.devices, Allocates: s.allocates})
	if suite.prepareCases() {
		suite.checkRules()
	}
	return append(errs, suite.failures...)
}

type scenario struct {
	config    string
	nodes     []*corev1.Node
	assigned  []*corev1.Pod
	pod       *corev1.Pod
	signals   []*snapshot.Signal
	devices   func(*snapshot.Builder) // nil: none
	allocates int
	want      string
}

func parseScenario(archive *txtar.Archive) (*scenario, error) {
	s := &scenario{}
	for _, f := range archive.Files {
		text := string(f.Data)
		var err error
		switch f.Name {
		case "config.yaml":
			s.config = text
		case "nodes.yaml":
			s.nodes, err = parseNodes(text)
		case "pods.yaml":
			s.assigned, err = parsePods(text)
		case "signals.yaml":
			s.signals, err = parseSignals(text)
		case "devices.yaml":
			s.devices, err = parseDevices(text)
		case "allocates.txt":
			s.allocates, err = strconv.Atoi(strings.TrimSpace(text))
		case "pod.yaml":
			var pods []*corev1.Pod
			if pods, err = parsePods(text); err == nil && len(pods) != 1 {
				err = fmt.Errorf("has %d pods: must be one", len(pods))
			}
			if err == nil {
				s.pod = pods[0]
			}
		case "want.txt":
			s.want = text
		default:
			err = errors.New("is not a file of a scenario")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if s.pod == nil {
		return nil, errors.New("pod.yaml is missing")
	}
	for _, p := range s.assigned {
		if !slices.ContainsFunc(s.nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			return nil, fmt.Errorf("pods.yaml: pod %q is on node %q, which is not in nodes.yaml", podName(p), p.Spec.NodeName)
		}
	}
	return s, nil
}

func setWant(archive *txtar.Archive, want string) {
	for i, f := range archive.Files {
		if f.Name == "want.txt" {
			archive.Files[i].Data = []byte(want)
			return
		}
	}
	archive.Files = append(archive.Files, txtar.File{Name: "want.txt", Data: []byte(want)})
}

// decide returns the content of want.txt.
func (s *scenario) decide(build func() (policy.Policy, error)) string {
	p, err := build()
	if err != nil {
		return "invalid configuration\n" + lines(err)
	}
	c := &cluster{nodes: s.nodes, pods: s.assigned, signals: s.signals}
	w := c.build(s.devices)
	pod := s.pod.DeepCopy()
	snapshot.TrimPod(pod)
	prep := prepare(context.Background(), p, pod, w.view)
	switch {
	case prep.err != nil:
		return "error\n" + lines(prep.err)
	case prep.cycle == nil:
		return "the policy does not apply to the pod\n"
	}
	return s.table(w.view, p, pod, prep)
}

func (s *scenario) table(view *snapshot.View, p policy.Policy, pod *corev1.Pod, prep prepared) string {
	nodes := make([]*snapshot.Node, len(s.nodes))
	for i, n := range s.nodes {
		nodes[i] = view.Node(n.Name)
	}
	all := prep.evaluate(nodes, forward(len(nodes)))
	if all.panicked != "" {
		return all.panicked + "\n"
	}
	var fitting []*snapshot.Node
	for i, n := range nodes {
		if all.verdicts == nil || all.verdicts[i].Fits() {
			fitting = append(fitting, n)
		}
	}
	scores, err := engineScores(view, p, pod, fitting)
	if err != nil {
		return "error\n" + lines(err)
	}
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(columns, "node\tverdict\thave/want\tscore\n")
	for i, n := range nodes {
		verdict, numbers, score := "fits", "-", "-"
		if all.verdicts != nil && !all.verdicts[i].Fits() {
			verdict, numbers = columnsOf(all.verdicts[i])
		} else if all.scores != nil {
			score, scores = fmt.Sprint(scores[0]), scores[1:]
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s\n", n.Name, verdict, numbers, score)
	}
	columns.Flush()
	return text.String()
}

// engineScores returns the engine's scores of the policy for the nodes that fit.
func engineScores(view *snapshot.View, p policy.Policy, pod *corev1.Pod, fitting []*snapshot.Node) ([]int64, error) {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "under test", Policy: p, Weight: 1}}})
	if err != nil {
		return nil, err
	}
	var result engine.Result
	err = e.Score(context.Background(), engine.Request{Pod: pod, View: view, Nodes: fitting}, &result)
	return result.Totals, err
}

func columnsOf(v policy.Verdict) (verdict, numbers string) {
	verdict, numbers = v.Reason.Code, "-"
	if v.Unresolvable {
		verdict += "!"
	}
	if v.Reason.Unit != "" {
		numbers = fmt.Sprintf("%d/%d %s", v.Have, v.Want, v.Reason.Unit)
	}
	return verdict, numbers
}

// lines writes an error, or each of several, on its own line.
func lines(err error) string {
	errs := []error{err}
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		errs = several.Errors()
	}
	var text strings.Builder
	for _, err := range errs {
		fmt.Fprintln(&text, err)
	}
	return text.String()
}
