package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// unsigned is a policy without signatures, so that each node is evaluated anew.
type unsigned struct{ policy.Policy }

func (u unsigned) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	cycle, err := u.Policy.Prepare(ctx, pod, view)
	filter, filters := cycle.(policy.Filter)
	score, scores := cycle.(policy.Score)
	switch {
	case filters && scores:
		return struct {
			asFilter
			asScore
		}{filter.Filter, score.Score}, err
	case filters:
		return asFilter(filter.Filter), err
	case scores:
		return asScore(score.Score), err
	}
	return nil, err
}

type asFilter func(*snapshot.Node) policy.Verdict

func (f asFilter) Filter(n *snapshot.Node) policy.Verdict { return f(n) }

type asScore func(*snapshot.Node) int64

func (f asScore) Score(n *snapshot.Node) int64 { return f(n) }

// differential compares the responses of a handler that gets many calls with those of plain evaluations: by new engines, and by
// policies without signatures.
type differential struct {
	filter, prioritize http.Handler
	plain              []engine.WeightedPolicy
	shortlist          int
	cluster            *fakeCluster
}

// cheapPolicies are ImageLocality and PodLimit.
func cheapPolicies(t tester, most int32) []engine.WeightedPolicy {
	images, err := imagelocality.New(imagelocality.Defaults())
	if err != nil {
		t.Fatalf("%v", err)
	}
	pods, err := podlimit.New(podlimit.Config{Max: most, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "bench"}}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return []engine.WeightedPolicy{{Name: "ImageLocality", Policy: images, Weight: 2}, {Name: "PodLimit", Policy: pods, Weight: 1}}
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// settledCluster counts each pod on a node before the next filter call, so that none waits.
type settledCluster struct{ *fakeCluster }

func (settledCluster) Assumed(types.UID) string { return "a" }

func newDifferential(t tester, members []engine.WeightedPolicy, shortlist int, cluster *fakeCluster) *differential {
	e, err := engine.New(engine.Options{Policies: members, Shortlist: shortlist})
	if err != nil {
		t.Fatalf("%v", err)
	}
	h := extender.New(extender.Options{
		Profile: "/", Cluster: settledCluster{cluster}, Engine: e, Log: decision.NewLog(16),
		Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	d := &differential{filter: h.Verb(decision.Filter), prioritize: h.Verb(decision.Prioritize), shortlist: shortlist, cluster: cluster}
	for _, m := range members {
		m.Policy = unsigned{m.Policy}
		d.plain = append(d.plain, m)
	}
	return d
}

func (d *differential) post(h http.Handler, body []byte) []byte {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	return w.Body.Bytes()
}

// check makes the calls of kube-scheduler for the pod, filter and then prioritize, and compares each with a plain evaluation. It
// returns the node with the best total, or "".
func (d *differential) check(t tester, body []byte) (best string) {
	t.Helper()
	var args extenderv1.ExtenderArgs
	var fits extenderv1.ExtenderFilterResult
	if err := json.Unmarshal(body, &args); err != nil {
		t.Fatalf("%v", err)
	}
	answer := d.post(d.filter, body)
	if err := json.Unmarshal(answer, &fits); err != nil || fits.Error != "" || fits.NodeNames == nil {
		t.Fatalf("filter returns %.1000s", answer)
	}
	d.checkFilter(t, args, fits)
	if len(*fits.NodeNames) == 0 {
		return ""
	}
	args.NodeNames = fits.NodeNames
	again, err := json.Marshal(args)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var scores extenderv1.HostPriorityList
	if answer = d.post(d.prioritize, again); json.Unmarshal(answer, &scores) != nil {
		t.Fatalf("prioritize returns %.1000s", answer)
	}
	return d.checkScores(t, args, scores)
}

// evaluate evaluates the pod with a new engine.
func (d *differential) evaluate(t tester, args extenderv1.ExtenderArgs, shortlist int, ask func(*engine.Engine, engine.Request, *engine.Result) error) engine.Result {
	t.Helper()
	e, err := engine.New(engine.Options{Policies: d.plain, Shortlist: shortlist})
	if err != nil {
		t.Fatalf("%v", err)
	}
	pod := args.Pod.DeepCopy()
	snapshot.TrimPod(pod)
	req := engine.Request{Pod: pod, View: d.cluster.view}
	for _, name := range *args.NodeNames {
		req.Nodes = append(req.Nodes, d.cluster.view.Node(name))
	}
	var result engine.Result
	if err := ask(e, req, &result); err != nil {
		t.Fatalf("%v", err)
	}
	return result
}

func (d *differential) checkFilter(t tester, args extenderv1.ExtenderArgs, got extenderv1.ExtenderFilterResult) {
	t.Helper()
	want := d.evaluate(t, args, d.shortlist, func(e *engine.Engine, req engine.Request, result *engine.Result) error {
		return e.Filter(context.Background(), req, result)
	})
	kept := []string{}
	for _, i := range want.Kept {
		kept = append(kept, (*args.NodeNames)[i])
	}
	if !slices.Equal(kept, *got.NodeNames) {
		t.Fatalf("filter keeps %q, want %q", *got.NodeNames, kept)
	}
	if d.shortlist > 0 && len(kept) == d.shortlist {
		return // the response omits the others
	}
	for _, r := range want.Rejected {
		name := (*args.NodeNames)[r.Index]
		in := got.FailedNodes
		// Evicting pods does not help: all have the same priority.
		if r.Unresolvable || len(kept) == 0 && r.Reason != engine.NodeUnknown {
			in = got.FailedAndUnresolvableNodes
		}
		if in[name] != r.Reason.Text {
			t.Fatalf("%s is rejected for %q, want %q", name, in[name], r.Reason.Text)
		}
	}
	if n := len(got.FailedNodes) + len(got.FailedAndUnresolvableNodes); n != len(want.Rejected) {
		t.Fatalf("%d nodes are rejected, want %d", n, len(want.Rejected))
	}
}

// checkScores compares as kube-scheduler does: by sums, in which a host without a score has 0.
func (d *differential) checkScores(t tester, args extenderv1.ExtenderArgs, got extenderv1.HostPriorityList) (best string) {
	t.Helper()
	want := d.evaluate(t, args, 0, func(e *engine.Engine, req engine.Request, result *engine.Result) error {
		return e.Score(context.Background(), req, result)
	})
	engine.ScaleScores(want.Totals, want.Record.MaxTotal, engine.MaxExtenderScore)
	sums := map[string]int64{}
	for _, s := range got {
		sums[s.Host] += s.Score
	}
	least := slices.Min(want.Totals)
	for i, name := range *args.NodeNames {
		if sums[name] != want.Totals[i]-least {
			t.Fatalf("%s has the score %d, want level %d less %d", name, sums[name], want.Totals[i], least)
		}
		if best == "" || sums[name] > sums[best] {
			best = name
		}
	}
	return best
}

// TestDrawnCallsAgainstPlainEvaluation makes calls about any pods and nodes while the cluster changes.
func TestDrawnCallsAgainstPlainEvaluation(t *testing.T) {
	image := rapid.SampledFrom([]string{"a", "b", "c"})
	drawNode := func(t *rapid.T) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", rapid.IntRange(0, 29).Draw(t, "node"))}}
		for _, name := range rapid.SliceOfDistinct(image, rapid.ID[string]).Draw(t, "images") {
			size := rapid.Int64Range(0, 1000).Draw(t, "size")
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: size})
		}
		return node
	}
	pods := 0
	drawPod := func(t *rapid.T) *corev1.Pod {
		pods++
		uid := fmt.Sprint(pods) // a UID and version belong to one pod
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"), Name: uid, UID: types.UID(uid), ResourceVersion: "1",
			Labels: map[string]string{"app": rapid.SampledFrom([]string{"bench", "bench", "other"}).Draw(t, "app")},
		}}
		// There are more sets of images, and so more signatures, than nodes.
		podImage := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"})
		for _, name := range rapid.SliceOfNDistinct(podImage, 0, 2, rapid.ID[string]).Draw(t, "pod's images") {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: name})
		}
		return pod
	}
	rapid.Check(t, func(t *rapid.T) {
		var builder snapshot.Builder
		for range 25 {
			builder.SetNode(drawNode(t))
		}
		cluster := &fakeCluster{view: builder.View()}
		d := newDifferential(t, cheapPolicies(t, rapid.Int32Range(1, 3).Draw(t, "max")), rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "shortlist"), cluster)
		t.Repeat(map[string]func(*rapid.T){
			"place": func(t *rapid.T) {
				pod := drawPod(t)
				var asked []string
				for n := range cluster.view.All() {
					asked = append(asked, n.Name)
				}
				asked = append(asked, "unknown-1", "unknown-2")
				asked = rapid.Permutation(asked).Draw(t, "order")[:rapid.IntRange(1, len(asked)).Draw(t, "asked")]
				body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &asked})
				if err != nil {
					t.Fatal(err)
				}
				if pod.Spec.NodeName = d.check(t, body); pod.Spec.NodeName != "" {
					builder.SetPod(pod)
					cluster.view = builder.View()
				}
			},
			"a pod is in flight": func(t *rapid.T) {
				if n := cluster.view.Node(drawNode(t).Name); n != nil {
					cluster.view = cluster.view.WithNodes(n.With(drawPod(t)))
				}
			},
			"it is bound elsewhere": func(t *rapid.T) { cluster.view = builder.View() },
			"change a node": func(t *rapid.T) {
				builder.SetNode(drawNode(t))
				cluster.view = builder.View()
			},
			"delete a node": func(t *rapid.T) {
				builder.DeleteNode(drawNode(t).Name)
				cluster.view = builder.View()
			},
		})
	})
}
