package engine_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// sizedPod returns a pod of exactly this size.
func sizedPod(size int64) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new", ResourceVersion: "1", Annotations: map[string]string{"a": ""}}}
	pod.Annotations["a"] = strings.Repeat("x", int(size-snapshot.PodSize(pod)))
	return pod
}

// A pod over the limit is rejected in every way in which a pod is evaluated, and no policy reads
// it. One at the limit is not.
func TestPodTooLarge(t *testing.T) {
	builder := snapshot.Builder{}
	builder.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	builder.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "victim", UID: "victim"}, Spec: corev1.PodSpec{NodeName: "n", Priority: new(int32(-1))}})
	view := builder.View()
	fits := func(*snapshot.Node) policy.Verdict { return policy.Verdict{} }
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		fits bool
	}{{"at the limit", sizedPod(snapshot.MaxPod), true}, {"over the limit", sizedPod(snapshot.MaxPod + 1), false}} {
		t.Run(tc.name, func(t *testing.T) {
			p := &fake{filter: fits, signature: "the same for every pod"}
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "p", Policy: p, Weight: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			node := view.Node("n")
			req := engine.Request{Pod: tc.pod, View: view, Nodes: []*snapshot.Node{node, nil}}
			var r engine.Result
			for range 2 { // the second time, the policies are prepared
				if err := e.Filter(t.Context(), req, &r); err != nil || (len(r.Kept) == 1) != tc.fits {
					t.Fatalf("Filter keeps %v, error %v", r.Kept, err)
				}
			}
			if !tc.fits {
				got := r.Record.Rejections[slices.IndexFunc(r.Record.Rejections, func(r decision.Rejection) bool { return r.Nearest != nil })]
				if r.Rejected[0].Reason != engine.PodTooLarge || !r.Rejected[0].Unresolvable || got.Code != "PodTooLarge" || got.Policy != "" ||
					got.Nearest[0].Have != snapshot.MaxPod || got.Nearest[0].Want != snapshot.MaxPod+1 {
					t.Errorf("rejected as %+v, recorded as %+v", r.Rejected, r.Record.Rejections)
				}
			}
			if any, err := e.FitsAny(t.Context(), req); err != nil || any != tc.fits {
				t.Errorf("FitsAny: %v, %v", any, err)
			}
			a, err := e.Begin(t.Context(), tc.pod, view)
			if err != nil || !a.Filters() || !a.Applies() {
				t.Fatalf("the attempt does not filter: %v", err)
			}
			if v, err := a.FilterNode(node); err != nil || v.Fits() != tc.fits {
				t.Errorf("the attempt: %+v, %v", v, err)
			}
			if _, ok := a.Signature(); ok != tc.fits {
				t.Errorf("it has a signature: %v", ok)
			}
			x, err := e.Explain(t.Context(), engine.Request{Pod: tc.pod, View: view, Nodes: []*snapshot.Node{node}})
			if err != nil || x.Nodes[0].Fits != tc.fits {
				t.Fatalf("explained as %+v, %v", x, err)
			}
			if own := x.Nodes[0].Policies[len(x.Nodes[0].Policies)-1]; !tc.fits && (own.Policy != "Outboard" || own.Code != "PodTooLarge") {
				t.Errorf("explained as %+v", own)
			}
			kept, err := e.Preempt(t.Context(), engine.PreemptRequest{Request: req, Candidates: []engine.Candidate{{Node: node, Name: "n", Victims: []types.UID{"victim"}}}}, &r)
			if err != nil || (len(kept) == 1) != tc.fits {
				t.Errorf("Preempt keeps %v, error %v", kept, err)
			}
			if n := p.calls().Prepare; (n > 0) != tc.fits {
				t.Errorf("the policy was called %d times", n)
			}
			bound := tc.pod.DeepCopy()
			bound.Spec.NodeName = "n"
			if any, err := e.FitsAny(t.Context(), engine.Request{Pod: bound, View: view, Nodes: []*snapshot.Node{node}}); err != nil || !any {
				t.Errorf("the limit applies to a pod on a node: %v, %v", any, err)
			}
		})
	}
}

// The size of a pod is read without allocations: each attempt reads it.
func TestPodSizeAllocatesNothing(t *testing.T) {
	pod := sizedPod(4 << 10)
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": {}}}}}
	if n := testing.AllocsPerRun(100, func() { snapshot.PodSize(pod) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
