package strategy

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/placement"
	"outboard.dev/outboard/snapshot"
)

// always is the shape of every pod.
var always = &one{placement.Shape{GPUs: 1, Share: 600}}

type one struct{ shape placement.Shape }

func (o *one) Of(snapshot.PodEvent) (placement.Shape, bool) { return o.shape, true }

// newRanker ranks nodes with four GPUs each for pods that request 600 of a GPU.
func newRanker() *Ranker {
	return New(Options{
		Strategy: LeastWaste(),
		Node: func(*snapshot.Node) placement.Node {
			n := placement.Node{Model: "T4"}
			for range 4 {
				n.GPUs = append(n.GPUs, placement.GPU{Free: placement.Whole, Size: placement.Whole})
			}
			return n
		},
		Shapes: func(Shapes, *snapshot.View, []*snapshot.Node) Shapes { return always },
	})
}

// The values that the next pods need are precomputed.
func TestPrecompute(t *testing.T) {
	r := newRanker()
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	come := func(from, to int) *snapshot.View {
		for i := from; i < to; i++ {
			b.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("past-", i), UID: types.UID(fmt.Sprint("past-", i))}})
		}
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"from": fmt.Sprint(from)}}}) // for a new view
		return b.View()
	}
	view := come(0, 100)
	now, next := placement.ModelPods(100, 2), placement.NextModelPods(100, 2)
	if now == next {
		t.Fatal("after 100 pods there is nothing to precompute")
	}
	r.Precompute(view)
	r.Precompute(view)
	known := map[int]*workloadModel{}
	for _, l := range r.models {
		known[l.after] = l
	}
	if len(r.models) != 2 || known[now] == nil || known[next] == nil || known[next].Waste == nil {
		t.Fatalf("the models are from %v", known)
	}
	if s := r.state(come(100, 112)); s.model != known[next] {
		t.Errorf("then the model is from %d, and differs from that of %d", s.model.after, next)
	}
}
