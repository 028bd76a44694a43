// Package e2e holds tests in which an unmodified kube-scheduler places pods on a real API server,
// with `outboard serve` as a separate process.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// patience bounds one test: much longer than a test takes on a slow machine.
const patience = 25 * time.Minute

// theater is a stage for one test.
type theater struct {
	*stage.Stage
	t         *testing.T
	ctx       context.Context
	anyNode   string
	scheduled *controlplane.Scheduler // that was started last; nil: none
}

func open(t *testing.T) *theater {
	t.Helper()
	return openFor(t, patience)
}

// openFor is open with another time limit.
func openFor(t *testing.T, patience time.Duration) *theater {
	t.Helper()
	return openWith(t, patience, stage.Options{Pool: &pool})
}

// openWith is openFor with options for the stage.
func openWith(t *testing.T, patience time.Duration, o stage.Options) *theater {
	t.Helper()
	t.Parallel()
	if o.Outboard == "" {
		outboard, err := binary()
		if err != nil {
			t.Fatal(err)
		}
		o.Outboard = outboard
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := stage.Set(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &theater{Stage: s, t: t, ctx: ctx}
}

// parallel makes t, a subtest of the test of th, parallel, and returns the stage for it. Its time limit begins when it runs: a subtest may
// wait for other tests longer than one test takes.
func (th *theater) parallel(t *testing.T) *theater {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	th = th.forTest(t)
	th.ctx = ctx
	return th
}

// forTest returns the stage for t, a subtest of the test of th.
func (th *theater) forTest(t *testing.T) *theater {
	return &theater{Stage: th.Stage, t: t, ctx: th.ctx, anyNode: th.anyNode, scheduled: th.scheduled}
}

func (th *theater) nodes(specs ...controlplane.NodeSpec) {
	th.t.Helper()
	var nodes []*corev1.Node
	for _, spec := range specs {
		nodes = append(nodes, spec.Node())
	}
	if err := controlplane.CreateNodes(th.ctx, th.Client, nodes...); err != nil {
		th.t.Fatal(err)
	}
	th.anyNode = nodes[0].Name
}

// outboard starts Outboard; if the test fails, it logs Outboard's log.
func (th *theater) outboard(config string) *stage.Outboard {
	th.t.Helper()
	o, err := th.StartOutboard(th.ctx, config)
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		if th.t.Failed() {
			th.t.Logf("outboard:\n%s", o.Log())
		}
	})
	return o
}

// scheduler starts kube-scheduler; if the test fails, it logs kube-scheduler's log.
func (th *theater) scheduler(config string, env ...string) *controlplane.Scheduler {
	th.t.Helper()
	s, err := th.StartScheduler(th.ctx, controlplane.SchedulerOptions{Config: config, Env: env, Verbosity: 3})
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		if th.t.Failed() {
			th.t.Logf("kube-scheduler:\n%s", tail(s.Log(), 8000))
		}
	})
	th.scheduled = s
	return s
}

func tail(text string, n int) string {
	return text[max(0, len(text)-n):]
}

// Place is that of the stage, for an extender that responds. On a busy machine a call may take longer than httpTimeout; kube-scheduler then
// tries again.
func (th *theater) Place(ctx context.Context, pod *corev1.Pod) (stage.Outcome, error) {
	placed, err := th.Stage.Place(ctx, pod)
	const timeout = "Client.Timeout exceeded"
	if err != nil || !strings.Contains(placed.Waiting, timeout) {
		return placed, err
	}
	decided, err := controlplane.WaitForPod(ctx, th.Client, placed.Pod, func(p *corev1.Pod) (bool, error) {
		return p.Spec.NodeName != "" || !strings.Contains(stage.Waiting(p), timeout), nil
	})
	if err != nil || decided.Spec.NodeName != "" {
		return stage.Outcome{Pod: decided}, err
	}
	return stage.Outcome{Pod: decided, Waiting: stage.Waiting(decided)}, nil
}

// place creates the pod and returns the result.
func (th *theater) place(spec controlplane.PodSpec) stage.Outcome {
	th.t.Helper()
	placed, err := th.Place(th.ctx, spec.Pod())
	if err != nil {
		th.t.Fatal(err)
	}
	return placed
}

// bound is place for a pod that must be bound.
func (th *theater) bound(spec controlplane.PodSpec) *corev1.Pod {
	th.t.Helper()
	placed := th.place(spec)
	if placed.Waiting == "" {
		return placed.Pod
	}
	return th.awaitBound(placed.Pod)
}

// boundAndSeen is bound, and waits until the pod counts on its node in the next call to Outboard.
func (th *theater) boundAndSeen(o *stage.Outboard, spec controlplane.PodSpec) *corev1.Pod {
	th.t.Helper()
	pod := th.bound(spec)
	th.eventually("Outboard has seen "+spec.Name+" bound", func() bool { return th.explain(o, spec.Name).Node != "" })
	th.nextView(o)
	return pod
}

// nextView waits until Outboard has published a view after it was called: explain shows the pods that the watch has shown, and Outboard
// publishes views of them at intervals. A budget for no pods makes sure that there is a next view; kube-scheduler retries no pod because
// of it.
func (th *theater) nextView(o *stage.Outboard) {
	th.t.Helper()
	const generation = "outboard_cluster_view_generation "
	former := th.metric(o, generation)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "next-view-"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/next-view": ""}}},
	}
	if _, err := th.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(th.ctx, budget, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
	th.eventually("Outboard has published a view", func() bool { return th.metric(o, generation) != former })
}

// awaitBound waits in a cluster with occasional events, as in any real one. kube-scheduler retries
// a pod after an event. If kube-scheduler receives the change that makes room before Outboard does,
// that attempt fails, and without other events the pod would wait for minutes.
func (th *theater) awaitBound(pod *corev1.Pod) *corev1.Pod {
	th.t.Helper()
	ctx, stop := context.WithCancel(th.ctx)
	defer stop()
	go func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"happened":"%d"}}}`, n)
			// If it fails, the wait fails with more details.
			_, _ = th.Client.CoreV1().Nodes().Patch(ctx, th.anyNode, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}()
	bound, err := controlplane.WaitForPodBound(th.ctx, th.Client, pod)
	if err != nil {
		th.t.Fatal(err)
	}
	return bound
}

// willBeBound waits in a cluster without other events: if kube-scheduler receives the change that
// makes room before Outboard does, Outboard makes it retry the pod.
func (th *theater) willBeBound(pod *corev1.Pod) *corev1.Pod {
	th.t.Helper()
	bound, err := controlplane.WaitForPodBound(th.ctx, th.Client, pod)
	if err != nil {
		th.t.Fatal(err)
	}
	return bound
}

func (th *theater) create(spec controlplane.PodSpec) *corev1.Pod {
	th.t.Helper()
	pod := spec.Pod()
	pod, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	return pod
}

// cordon makes the node unschedulable, or schedulable.
func (th *theater) cordon(node string, unschedulable bool) {
	th.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
	if _, err := th.Client.CoreV1().Nodes().Patch(th.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

// eventually polls until ok, for conditions without a watch.
func (th *theater) eventually(what string, ok func() bool) {
	th.t.Helper()
	for !ok() {
		select {
		case <-th.ctx.Done():
			th.t.Fatalf("waiting until %s: %v", what, context.Cause(th.ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// logs waits until the service's log contains the text, which may appear with a delay.
func (th *theater) logs(o *stage.Outboard, text string) {
	th.t.Helper()
	th.eventually(fmt.Sprintf("the log says %q", text), func() bool { return strings.Contains(o.Log(), text) })
}

// metric returns the line of the service's metrics that begins with the prefix,
// without it; "" if there is none.
func (th *theater) metric(o *stage.Outboard, prefix string) string {
	th.t.Helper()
	for line := range strings.Lines(th.get(o.Admin + "/metrics")) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (th *theater) get(url string) string {
	th.t.Helper()
	res, err := http.Get(url)
	if err != nil {
		th.t.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, res.Body); err != nil {
		th.t.Fatal(err)
	}
	return body.String()
}

func (th *theater) explain(o *stage.Outboard, pod string) *explain.Document {
	th.t.Helper()
	doc, err := explain.Fetch(th.ctx, http.DefaultClient, o.Admin, url.Values{"pod": {pod}, "decisions": {"1000"}})
	if err != nil {
		th.t.Fatal(err)
	}
	return doc
}

// explainPending is explain for a pending pod, about which it also has the part about now. It waits until Outboard's watch has shown the
// pod: kube-scheduler calls, and reports that the pod is pending, without regard to that.
func (th *theater) explainPending(o *stage.Outboard, pod string) (doc *explain.Document) {
	th.t.Helper()
	th.eventually("Outboard has seen "+pod, func() bool {
		doc = th.explain(o, pod)
		return len(doc.Now) > 0
	})
	return doc
}

// extender is an entry of a KubeSchedulerConfiguration.
type extender struct {
	o         *stage.Outboard
	path      string // below the service's URL
	verbs     string // the served verbs, such as "filter prioritize"
	nodes     bool   // nodes mode
	ignorable bool
	managed   []string
}

func schedulerConfig(extenders ...extender) string {
	var b strings.Builder
	b.WriteString("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 1\nextenders:\n")
	for _, e := range extenders {
		fmt.Fprintf(&b, "- urlPrefix: %s%s\n  weight: 10\n  httpTimeout: 30s\n  nodeCacheCapable: %t\n  ignorable: %t\n", e.o.URL, e.path, !e.nodes, e.ignorable)
		for _, verb := range strings.Fields(e.verbs) {
			name, at, ok := strings.Cut(verb, "=")
			if !ok {
				at = name
			}
			fmt.Fprintf(&b, "  %sVerb: %s\n", name, at)
		}
		if e.o.CAFile != "" {
			fmt.Fprintf(&b, "  enableHTTPS: true\n  tlsConfig: {caFile: %s, certFile: %s, keyFile: %s}\n", e.o.CAFile, e.o.CertFile, e.o.KeyFile)
		}
		for i, name := range e.managed {
			if i == 0 {
				b.WriteString("  managedResources:\n")
			}
			fmt.Fprintf(&b, "  - {name: %s, ignoredByScheduler: true}\n", name)
		}
	}
	return b.String()
}

// oneWeb permits one pod with app: web on a node.
const oneWeb = webLimit + plainHTTP

// webLimit is oneWeb without serving.
const webLimit = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- policies:
  - type: PodLimit
    config: {max: 1, selector: {matchLabels: {app: web}}}
`

const plainHTTP = `
serving: {insecure: true}
`

const mutualTLS = `
serving:
  tls: {certFile: x, keyFile: x, clientCAFile: x, allowedClients: [kube-scheduler]}
`

func web(name string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Labels: map[string]string{"app": "web"}}
}
