// Package theater has what the tests of test/e2e and test/nightly share: in them, an unmodified
// kube-scheduler places pods on a real API server, with `outboard serve` as a separate process.
package theater

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

// Patience bounds one test: much longer than a test takes on a slow machine.
const Patience = 10 * time.Minute

// Theater is a stage for one test.
type Theater struct {
	*stage.Stage
	T         *testing.T
	Ctx       context.Context
	anyNode   string
	Scheduled *controlplane.Scheduler // that was started last; nil: none
}

// Open returns a stage for the test, which becomes parallel.
func Open(t *testing.T) *Theater {
	t.Helper()
	return OpenFor(t, Patience)
}

// OpenFor is Open with another time limit.
func OpenFor(t *testing.T, patience time.Duration) *Theater {
	t.Helper()
	return open(t, patience, stage.Options{Pool: &pool})
}

// OpenWith is Open with options of the control plane.
func OpenWith(t *testing.T, o controlplane.Options) *Theater {
	t.Helper()
	return open(t, Patience, stage.Options{ControlPlane: o})
}

func open(t *testing.T, patience time.Duration, o stage.Options) *Theater {
	t.Helper()
	t.Parallel()
	if o.Outboard == "" {
		outboard, err := Binary()
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
	return &Theater{Stage: s, T: t, Ctx: ctx}
}

// Parallel makes t, a subtest of the test of th, parallel, and returns the stage for it. Its time limit begins when it runs: a subtest may
// wait for other tests longer than one test takes.
func (th *Theater) Parallel(t *testing.T) *Theater {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	th = th.ForTest(t)
	th.Ctx = ctx
	return th
}

// ForTest returns the stage for t, a subtest of the test of th.
func (th *Theater) ForTest(t *testing.T) *Theater {
	return &Theater{Stage: th.Stage, T: t, Ctx: th.Ctx, anyNode: th.anyNode, Scheduled: th.Scheduled}
}

// Nodes creates nodes.
func (th *Theater) Nodes(specs ...controlplane.NodeSpec) {
	th.T.Helper()
	var nodes []*corev1.Node
	for _, spec := range specs {
		nodes = append(nodes, spec.Node())
	}
	if err := controlplane.CreateNodes(th.Ctx, th.Client, nodes...); err != nil {
		th.T.Fatal(err)
	}
	th.anyNode = nodes[0].Name
}

// Outboard starts Outboard; if the test fails, it logs Outboard's log.
func (th *Theater) Outboard(config string) *stage.Outboard {
	th.T.Helper()
	o, err := th.StartOutboard(th.Ctx, config)
	if err != nil {
		th.T.Fatal(err)
	}
	th.T.Cleanup(func() {
		if th.T.Failed() {
			th.T.Logf("outboard:\n%s", o.Log())
		}
	})
	return o
}

// Scheduler starts kube-scheduler; if the test fails, it logs kube-scheduler's log.
func (th *Theater) Scheduler(config string, env ...string) *controlplane.Scheduler {
	th.T.Helper()
	s, err := th.StartScheduler(th.Ctx, controlplane.SchedulerOptions{Config: config, Env: env, Verbosity: 3})
	if err != nil {
		th.T.Fatal(err)
	}
	th.T.Cleanup(func() {
		if th.T.Failed() {
			th.T.Logf("kube-scheduler:\n%s", Tail(s.Log(), 8000))
		}
	})
	th.Scheduled = s
	return s
}

// Tail returns the last n bytes of the text.
func Tail(text string, n int) string {
	return text[max(0, len(text)-n):]
}

// Place is that of the stage, for an extender that responds. On a busy machine a call may take longer than httpTimeout; kube-scheduler then
// tries again.
func (th *Theater) Place(ctx context.Context, pod *corev1.Pod) (stage.Outcome, error) {
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

// Placed creates the pod and returns the result.
func (th *Theater) Placed(spec controlplane.PodSpec) stage.Outcome {
	th.T.Helper()
	placed, err := th.Place(th.Ctx, spec.Pod())
	if err != nil {
		th.T.Fatal(err)
	}
	return placed
}

// Bound is Placed for a pod that must be bound.
func (th *Theater) Bound(spec controlplane.PodSpec) *corev1.Pod {
	th.T.Helper()
	placed := th.Placed(spec)
	if placed.Waiting == "" {
		return placed.Pod
	}
	return th.AwaitBound(placed.Pod)
}

// BoundAndSeen is Bound, and waits until the pod counts on its node in the next call to Outboard.
func (th *Theater) BoundAndSeen(o *stage.Outboard, spec controlplane.PodSpec) *corev1.Pod {
	th.T.Helper()
	pod := th.Bound(spec)
	th.Eventually("Outboard has seen "+spec.Name+" bound", func() bool { return th.Explain(o, spec.Name).Node != "" })
	th.NextView(o)
	return pod
}

// NextView waits until Outboard has published a view after it was called: explain shows the pods that the watch has shown, and Outboard
// publishes views of them at intervals. A budget for no pods makes sure that there is a next view; kube-scheduler retries no pod because
// of it.
func (th *Theater) NextView(o *stage.Outboard) {
	th.T.Helper()
	const generation = "outboard_cluster_view_generation "
	former := th.Metric(o, generation)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "next-view-"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/next-view": ""}}},
	}
	if _, err := th.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(th.Ctx, budget, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
	th.Eventually("Outboard has published a view", func() bool { return th.Metric(o, generation) != former })
}

// AwaitBound waits in a cluster with occasional events, as in any real one. kube-scheduler retries
// a pod after an event. If kube-scheduler receives the change that makes room before Outboard does,
// that attempt fails, and without other events the pod would wait for minutes.
func (th *Theater) AwaitBound(pod *corev1.Pod) *corev1.Pod {
	th.T.Helper()
	ctx, stop := context.WithCancel(th.Ctx)
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
	bound, err := controlplane.WaitForPodBound(th.Ctx, th.Client, pod)
	if err != nil {
		th.T.Fatal(err)
	}
	return bound
}

// WillBeBound waits in a cluster without other events: if kube-scheduler receives the change that
// makes room before Outboard does, Outboard makes it retry the pod.
func (th *Theater) WillBeBound(pod *corev1.Pod) *corev1.Pod {
	th.T.Helper()
	bound, err := controlplane.WaitForPodBound(th.Ctx, th.Client, pod)
	if err != nil {
		th.T.Fatal(err)
	}
	return bound
}

// Create creates the pod.
func (th *Theater) Create(spec controlplane.PodSpec) *corev1.Pod {
	th.T.Helper()
	pod := spec.Pod()
	pod, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.Ctx, pod, metav1.CreateOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	return pod
}

// Eventually polls until ok, for conditions without a watch.
func (th *Theater) Eventually(what string, ok func() bool) {
	th.T.Helper()
	for !ok() {
		select {
		case <-th.Ctx.Done():
			th.T.Fatalf("waiting until %s: %v", what, context.Cause(th.Ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Logs waits until the service's log contains the text, which may appear with a delay.
func (th *Theater) Logs(o *stage.Outboard, text string) {
	th.T.Helper()
	th.Eventually(fmt.Sprintf("the log says %q", text), func() bool { return strings.Contains(o.Log(), text) })
}

// Metric returns the line of the service's metrics that begins with the prefix,
// without it; "" if there is none.
func (th *Theater) Metric(o *stage.Outboard, prefix string) string {
	th.T.Helper()
	for line := range strings.Lines(th.Get(o.Admin + "/metrics")) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Get returns the body of the response.
func (th *Theater) Get(url string) string {
	th.T.Helper()
	res, err := http.Get(url)
	if err != nil {
		th.T.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, res.Body); err != nil {
		th.T.Fatal(err)
	}
	return body.String()
}

// Explain returns what Outboard explains about the pod.
func (th *Theater) Explain(o *stage.Outboard, pod string) *explain.Document {
	th.T.Helper()
	doc, err := explain.Fetch(th.Ctx, http.DefaultClient, o.Admin, url.Values{"pod": {pod}, "decisions": {"1000"}})
	if err != nil {
		th.T.Fatal(err)
	}
	return doc
}

// ExplainPending is Explain for a pending pod, about which it also has the part about now. It waits until Outboard's watch has shown the
// pod: kube-scheduler calls, and reports that the pod is pending, without regard to that.
func (th *Theater) ExplainPending(o *stage.Outboard, pod string) (doc *explain.Document) {
	th.T.Helper()
	th.Eventually("Outboard has seen "+pod, func() bool {
		doc = th.Explain(o, pod)
		return len(doc.Now) > 0
	})
	return doc
}

// Extender is an entry of a KubeSchedulerConfiguration.
type Extender struct {
	Outboard  *stage.Outboard
	Path      string // below the service's URL
	Verbs     string // the served verbs, such as "filter prioritize"
	Nodes     bool   // nodes mode
	Ignorable bool
	Managed   []string
}

// SchedulerConfig returns a KubeSchedulerConfiguration with the extenders.
func SchedulerConfig(extenders ...Extender) string {
	var b strings.Builder
	b.WriteString("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 1\nextenders:\n")
	for _, e := range extenders {
		fmt.Fprintf(&b, "- urlPrefix: %s%s\n  weight: 10\n  httpTimeout: 30s\n  nodeCacheCapable: %t\n  ignorable: %t\n", e.Outboard.URL, e.Path, !e.Nodes, e.Ignorable)
		for _, verb := range strings.Fields(e.Verbs) {
			name, at, ok := strings.Cut(verb, "=")
			if !ok {
				at = name
			}
			fmt.Fprintf(&b, "  %sVerb: %s\n", name, at)
		}
		if e.Outboard.CAFile != "" {
			fmt.Fprintf(&b, "  enableHTTPS: true\n  tlsConfig: {caFile: %s, certFile: %s, keyFile: %s}\n", e.Outboard.CAFile, e.Outboard.CertFile, e.Outboard.KeyFile)
		}
		for i, name := range e.Managed {
			if i == 0 {
				b.WriteString("  managedResources:\n")
			}
			fmt.Fprintf(&b, "  - {name: %s, ignoredByScheduler: true}\n", name)
		}
	}
	return b.String()
}

// OneWeb permits one pod with app: web on a node.
const OneWeb = WebLimit + PlainHTTP

// WebLimit is OneWeb without serving.
const WebLimit = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- policies:
  - type: PodLimit
    config: {max: 1, selector: {matchLabels: {app: web}}}
`

// PlainHTTP makes Outboard serve plain HTTP.
const PlainHTTP = `
serving: {insecure: true}
`

// MutualTLS makes Outboard serve kube-scheduler only.
const MutualTLS = `
serving:
  tls: {certFile: x, keyFile: x, clientCAFile: x, allowedClients: [kube-scheduler]}
`

// OutboardHeader begins a configuration of Outboard.
const OutboardHeader = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n"

// TLSOfOutboard is MutualTLS at the beginning of a configuration.
const TLSOfOutboard = "serving:\n  tls: {certFile: x, keyFile: x, clientCAFile: x, allowedClients: [kube-scheduler]}\n"
