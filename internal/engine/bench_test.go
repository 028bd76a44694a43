package engine_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// stripes is the trivial policy of the benchmarks: it rejects the nodes of every eighth row and
// scores the others by their row.
type stripes struct{ eighths int }

var inStripe = &policy.Reason{Code: "InStripe", Text: "the node is in the stripe", Unit: "rows"}

func (s *stripes) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return s, nil
}

func (s *stripes) Filter(n *snapshot.Node) policy.Verdict {
	if row := n.Row(); row%8 < s.eighths {
		return policy.Verdict{Reason: inStripe, Have: int64(row * 7919 % 5003), Want: 10_000}
	}
	return policy.Verdict{}
}

func (s *stripes) Score(n *snapshot.Node) int64 { return int64(n.Row() % 101) }

// signedStripes are stripes with one signature for all pods.
type signedStripes struct{ stripes }

func (s *signedStripes) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return s, nil
}

func (s *signedStripes) Signature() string { return "stripes" }

func plainView(nodes int) *snapshot.View {
	var b snapshot.Builder
	for i := range nodes {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", i)}})
	}
	return b.View()
}

func allNodes(view *snapshot.View) []*snapshot.Node {
	nodes := make([]*snapshot.Node, 0, view.Len())
	for n := range view.All() {
		nodes = append(nodes, n)
	}
	return nodes
}

func plainPod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid), ResourceVersion: "1"}}
}

// BenchmarkFilter and BenchmarkScore compare the engine with a plain loop that calls the policy:
// ns/node and loop-ns/node are their costs for one node, over-ns/node is the difference, and ratio
// is the quotient. All are those of the fastest turn, because other work on the machine only adds
// time. ns/op is the time of both.
func BenchmarkFilter(b *testing.B) {
	const nodes = 5000
	for _, eighths := range []int{0, 1, 8} {
		for name, p := range map[string]policy.Policy{"asked": &stripes{eighths}, "cached": &signedStripes{stripes{eighths}}} {
			b.Run(fmt.Sprintf("rejected=%d÷8/%s", eighths, name), func(b *testing.B) {
				beside(b, nodes, p, func(e *engine.Engine, req engine.Request, result *engine.Result, turn int) error {
					req.Pod = versions[turn%len(versions)] // another version of the pod in each turn, so that each turn prepares the policy
					return e.Filter(b.Context(), req, result)
				}, func(cycle policy.Cycle, asked []*snapshot.Node, kept []int32, rejected []engine.Rejected) {
					f := cycle.(policy.Filter)
					for i, n := range asked {
						if v := f.Filter(n); v.Reason == nil {
							kept = append(kept, int32(i))
						} else {
							rejected = append(rejected, engine.Rejected{Index: int32(i), Reason: v.Reason, Unresolvable: v.Unresolvable})
						}
					}
				})
			})
		}
	}
}

func BenchmarkScore(b *testing.B) {
	const nodes = 5000
	p := &stripes{}
	totals := make([]int64, nodes)
	beside(b, nodes, p, func(e *engine.Engine, req engine.Request, result *engine.Result, _ int) error {
		return e.Score(b.Context(), req, result)
	}, func(cycle policy.Cycle, asked []*snapshot.Node, _ []int32, _ []engine.Rejected) {
		s := cycle.(policy.Score)
		for i, n := range asked {
			totals[i] = s.Score(n)
		}
	})
}

var versions = func() []*corev1.Pod {
	pods := make([]*corev1.Pod, 2)
	for i := range pods {
		pods[i] = plainPod("pod")
		pods[i].ResourceVersion = fmt.Sprint(i)
	}
	return pods
}()

// beside measures ask and the plain loop in turns.
func beside(b *testing.B, nodes int, p policy.Policy,
	ask func(e *engine.Engine, req engine.Request, result *engine.Result, turn int) error,
	loop func(cycle policy.Cycle, asked []*snapshot.Node, kept []int32, rejected []engine.Rejected)) {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Stripes", Policy: p, Weight: 1}}})
	if err != nil {
		b.Fatal(err)
	}
	view := plainView(nodes)
	asked := allNodes(view)
	req := engine.Request{Pod: versions[0], View: view, Nodes: asked}
	var result engine.Result
	kept, rejected := make([]int32, 0, nodes), make([]engine.Rejected, 0, nodes)
	cycle, err := p.Prepare(b.Context(), req.Pod, view)
	if err != nil {
		b.Fatal(err)
	}
	asking, looping := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		start := time.Now()
		if err := ask(e, req, &result, turn); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		loop(cycle, asked, kept, rejected)
		asking, looping = min(asking, between.Sub(start)), min(looping, time.Since(between))
	}
	perNode := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(nodes) }
	b.ReportMetric(perNode(asking), "ns/node")
	b.ReportMetric(perNode(looping), "loop-ns/node")
	b.ReportMetric(perNode(asking-looping), "over-ns/node")
	b.ReportMetric(float64(asking)/float64(looping), "ratio")
}
