package explain_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// always returns the Pod of a Source that has one pod.
func always(pod *corev1.Pod) func(context.Context, string, string) (*corev1.Pod, error) {
	return func(context.Context, string, string) (*corev1.Pod, error) { return pod, nil }
}

// known is what a replica with this configuration knows of waiting pods.
func known(profiles string) *pending.Source {
	c := new(config.Config)
	if profiles != "" {
		c, _ = config.Parse("test", []byte("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\n"+profiles), config.Types{Policies: standard.Types()})
	}
	return &pending.Source{Config: func() *config.Config { return c }, Places: (*config.Profile).Places, Rejected: func(string, types.UID) (requeue.Status, bool) { return requeue.Status{}, false }}
}

// The pod itself says how long it has waited, or what kube-scheduler has last said of it; a pod of another scheduler would not be bound.
func TestWhatThePodSays(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	condition := func(status corev1.ConditionStatus, message string) []corev1.PodCondition {
		return []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "containers with unready status"},
			{Type: corev1.PodScheduled, Status: status, Message: message, LastTransitionTime: metav1.Time{Time: noon.Add(192 * time.Second)}},
		}
	}
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t), View: func(types.UID) *snapshot.View { return cluster() },
		Refuses: func(profile string, pod *corev1.Pod) error {
			return binder.OfScheduler(pod, profile, []string{"gpu-scheduler"})
		},
		Reason: known("").Of,
	}
	const message = "0/4 nodes are available: 4 no tape drive."
	for name, tc := range map[string]struct {
		scheduler, node string
		gates           []corev1.PodSchedulingGate
		conditions      []corev1.PodCondition
		want, never     string
	}{
		"bound":             {"gpu-scheduler", "node-03", nil, condition(corev1.ConditionTrue, ""), "It was bound at 2026-03-01T12:03:12Z, 3m12s after it was created.\n", "last said"},
		"pending":           {"gpu-scheduler", "", nil, condition(corev1.ConditionFalse, message), "Pod team/p waits, and fits on 20 of 21 nodes now, by Outboard's policies.\nkube-scheduler last said: " + message + "\n", "refused"},
		"hostile":           {"gpu-scheduler", "", nil, condition(corev1.ConditionFalse, "\x1b[2J"), `kube-scheduler last said: "\x1b[2J"`, "\x1b"},
		"gated":             {"gpu-scheduler", "", []corev1.PodSchedulingGate{{Name: "g"}}, condition(corev1.ConditionFalse, "gated"), "its scheduling gates are removed (g)", "last said"},
		"another scheduler": {"", "", nil, nil, `A bind call would be refused: pod team/p has schedulerName "default-scheduler", which is not among the schedulerNames of profile /: gpu-scheduler.`, "last said"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", CreationTimestamp: metav1.Time{Time: noon}}}
		pod.Spec = corev1.PodSpec{SchedulerName: tc.scheduler, NodeName: tc.node, SchedulingGates: tc.gates}
		pod.Status.Conditions = tc.conditions
		source.Pod = always(pod)
		if _, text := show(t, source, url.Values{"namespace": {"team"}, "pod": {"p"}}); !strings.Contains(text, tc.want) || strings.Contains(text, tc.never) {
			t.Errorf("%s:\n%s\nmust contain %q, and not %q", name, text, tc.want, tc.never)
		}
	}
}

func TestUnknownNodeOfTheQuery(t *testing.T) {
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t),
		View: func(types.UID) *snapshot.View { return cluster() },
		Pod:  always(new(corev1.Pod)),
	}
	for node, want := range map[string]string{"": "", "node-03": "", "typo": `node "typo" not found`} {
		doc, text := show(t, source, url.Values{"pod": {"p"}, "node": {node}})
		if doc.Error != want || strings.Contains(text, "not found") != (want != "") {
			t.Errorf("node %q: got %q, want %q\n%s", node, doc.Error, want, text)
		}
	}
}

// sized is a policy that passes the nodes whose label is large enough, scores them by the label,
// and rejects the others with a long reason.
type sized struct{ label string }

var tooSmall = &policy.Reason{Code: "TooSmall", Text: "node(s) do not have as much as a pod like this one needs to run as it should", Unit: "MiB"}

func (p sized) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return p, nil
}

func (p sized) Score(n *snapshot.Node) int64 { return p.size(n) }

func (p sized) Filter(n *snapshot.Node) policy.Verdict {
	if size := p.size(n); size < 10 {
		return policy.Verdict{Reason: tooSmall, Have: size, Want: 10}
	}
	return policy.Verdict{}
}

func (p sized) size(n *snapshot.Node) int64 {
	quantity := resource.MustParse("0" + n.Object.Labels[p.label])
	return quantity.Value()
}

// show returns the explanation of the source's pod.
func show(t *testing.T, source explain.Source, query url.Values) (*explain.Document, string) {
	t.Helper()
	server := httptest.NewServer(explain.Handler(source))
	defer server.Close()
	doc, err := explain.Fetch(t.Context(), server.Client(), server.URL, query)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := doc.Text(&text); err != nil {
		t.Fatal(err)
	}
	return doc, text.String()
}

func engines(t *testing.T, names ...string) func() map[string]*engine.Engine {
	var o engine.Options
	for _, name := range names {
		o.Policies = append(o.Policies, engine.WeightedPolicy{Name: name, Policy: sized{name}, Weight: 2})
	}
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return func() map[string]*engine.Engine { return map[string]*engine.Engine{"/": e} }
}

// cluster returns 20 nodes in a pool each, and a cordoned node.
func cluster(labels ...string) *snapshot.View {
	var b snapshot.Builder
	for i := range 21 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%02d", i), Labels: map[string]string{"pool": "web"}}}
		if n.Spec.Unschedulable = i == 20; i >= 18 {
			n.Labels["pool"] = "agents"
		}
		for _, label := range labels {
			n.Labels[label] = fmt.Sprint(i)
		}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceCPU: resource.MustParse("2")}
		if i == 18 {
			n.Status.Capacity = n.Status.Allocatable.DeepCopy() // as of a device plugin that does not run
			delete(n.Status.Allocatable, corev1.ResourceCPU)
		}
		b.SetNode(n)
	}
	return b.View()
}

func unbound(spec corev1.PodSpec) func(context.Context, string, string) (*corev1.Pod, error) {
	return func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}, nil
	}
}

// explain does not evaluate policies on nodes that kube-scheduler excludes, and shows them with
// kube-scheduler's reasons.
func TestNowRespectsKubeScheduler(t *testing.T) {
	view := cluster("Size")
	cpu := []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t, "Size"), View: func(types.UID) *snapshot.View { return view },
		Pod: unbound(corev1.PodSpec{NodeSelector: map[string]string{"pool": "agents"}, Containers: cpu}),
	}
	_, text := show(t, source, url.Values{"pod": {"agent"}})
	want := `Pod default/agent waits, and fits on 1 of 21 nodes now, by Outboard's policies.

No decision about the pod is recorded: no call has been about it, or too long ago, before a restart, or to another
replica. Each replica records its own decisions.

Now, by profile /: 1 of 1 nodes fit; kube-scheduler excludes 20 others.
  18 node(s) didn't match Pod's node affinity/selector (node-00, node-01, node-02, …)
  1 Insufficient cpu: allocatable 0 of 2 (node-18)
  1 node(s) were unschedulable (node-20)
  node     fits  total of 200  Size ×2
  node-19  yes   38            19
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	doc, text := show(t, source, url.Values{"pod": {"agent"}, "node": {"node-15"}})
	if got := doc.Now[0]; got.Excluded[0].Examples[0] != "node-15" || len(got.Explanations) != 0 {
		t.Errorf("one excluded node: %s", text)
	}
	source.Ignored = func() []corev1.ResourceName { return []corev1.ResourceName{corev1.ResourceCPU} }
	for message, want := range map[string]int{"": 2, "0/1 nodes are available: 1 Insufficient cpu.": 1, "1 Insufficient cpus": 2} {
		pod, _ := source.Pod(t.Context(), "default", "agent")
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Message: message}}
		said := source
		said.Pod = always(pod)
		if doc, text := show(t, said, url.Values{"pod": {"agent"}}); doc.Now[0].Nodes != want || strings.Contains(text, "counts cpu") != (want == 1) {
			t.Errorf("if kube-scheduler ignores the resource, and said %q: %s", message, text)
		}
	}
}

// kube-scheduler does not call a profile for a pod that requests none of its managedResources, so explain does not evaluate its policies.
func TestNowOfUnmanagedPods(t *testing.T) {
	view := cluster("Size")
	asked := ""
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t, "Size"), View: func(types.UID) *snapshot.View { return view }, Pod: unbound(corev1.PodSpec{}),
		Manages: func(profile string, pod *corev1.Pod) bool { asked = profile + " " + pod.Name; return false },
	}
	doc, text := show(t, source, url.Values{"pod": {"agent"}})
	want := `
kube-scheduler does not call profile / for the pod, which requests none of the profile's managedResources.
`
	if !strings.HasSuffix(text, want) || strings.Contains(text, "nodes fit") {
		t.Errorf("got\n%s\nwant at its end\n%s", text, want)
	}
	if asked != "/ agent" || !reflect.DeepEqual(doc.Now, []explain.Profile{{Profile: "/", Unmanaged: true}}) {
		t.Errorf("after the question about %q, got %+v", asked, doc.Now)
	}
}

// Lines fit a terminal, for any number of policies and any length of their reasons.
func TestNowFitsATerminal(t *testing.T) {
	labels := []string{"GPUMemory", "Utilization", "Licenses", "RemoteClusters", "HardwareHealth"}
	view := cluster(labels...)
	for count := 1; count <= len(labels); count++ {
		source := explain.Source{
			Log: decision.NewLog(1), Engines: engines(t, labels[:count]...), View: func(types.UID) *snapshot.View { return view }, Pod: unbound(corev1.PodSpec{}),
		}
		_, text := show(t, source, url.Values{"pod": {"web"}})
		for line := range strings.Lines(text) {
			if width := utf8.RuneCountInString(line) - 1; width > 120 {
				t.Errorf("%d policies: a line of %d columns: %s", count, width, line)
			}
		}
		for _, say := range []string{"10 of 20 nodes fit", "TooSmall: has 9, needs 10 MiB", "TooSmall: " + tooSmall.Text + ", says GPUMemory"} {
			if !strings.Contains(text, say) {
				t.Errorf("%d policies: %q is missing:\n%s", count, say, text)
			}
		}
	}
}

// The node of a pod is in the table, even if many nodes have a higher score, and after a restart
// the pod's annotation explains the choice.
func TestWhereItIsAndWhy(t *testing.T) {
	view := cluster("Size")
	e := engines(t, "Size")
	var nodes []*snapshot.Node
	for n := range view.All() {
		nodes = append(nodes, n)
	}
	var result engine.Result
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node-03"}}
	if err := e()["/"].Score(t.Context(), engine.Request{Pod: pod, View: view, Nodes: nodes}, &result); err != nil {
		t.Fatal(err)
	}
	log := decision.NewLog(0)
	result.Record.Verb = "prioritize"
	log.Add(result.Record, result.Scores)
	pod.Annotations = map[string]string{decision.Annotation: "scored 6 of 200"}
	source := explain.Source{Log: log, Engines: e, View: func(types.UID) *snapshot.View { return view }, Pod: always(pod)}
	_, text := show(t, source, url.Values{"pod": {"web"}})
	for _, want := range []string{
		"Pod default/web is on node node-03.\nIts annotation outboard.dev/decision says: scored 6 of 200\n",
		"    node-03 (chosen)  6             3\n    the chosen node scored less than 17 other nodes\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	former := *pod
	former.UID, pod.UID = "former", "web" // the record is of a former pod of that name
	result.Record.Pod = decision.PodOf(&former)
	if doc, text := show(t, source, url.Values{"pod": {"web"}}); len(doc.Decisions) > 0 {
		t.Errorf("decisions about a former pod: %s", text)
	}
	source.Log = decision.NewLog(0) // as after a restart
	source.Uncalled = func(*corev1.Pod) string { return "bound by s" }
	for bound, end := range map[time.Duration]string{0: "node-03.\n", 2 * time.Minute: "node-03, bound by s.\n"} {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(bound))}}
		if _, text := show(t, source, url.Values{"pod": {"web"}}); !strings.Contains(text, "says: scored 6 of 200\n\nNo decision") || !strings.Contains(text, end) {
			t.Errorf("bound %s after a restart: %s", bound, text)
		}
	}
}
