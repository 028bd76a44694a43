package extender_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func onNode(name, node string, priority int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, Priority: &priority},
	}
}

// Since Kubernetes 1.38 a candidate may come without victims. The response names the pods that must be evicted for the policies;
// it omits a node on which no evictions help. It has a node without necessary evictions unchanged, for the next extender.
func TestPreemptCandidatesWithoutVictims(t *testing.T) {
	nodes := []*corev1.Node{
		labelled("full", "say", "full", "pods", ""), labelled("free"),
		labelled("important", "say", "full", "pods", ""), labelled("wrong", "say", "wrong"),
	}
	s := serve(t, &fakeCluster{view: view(nodes, onNode("a", "full", 1), onNode("b", "free", 1), onNode("c", "important", 10))})
	const pod = `{"metadata":{"namespace":"default","name":"p","uid":"uid-p"},"spec":{"priority":10,"containers":[]}}`
	// If no node fits, filter says on which nodes evictions help, so that kube-scheduler proposes no others.
	filtered := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", `{"Pod":`+pod+`,"NodeNames":["full","important","wrong","new"]}`))
	if diff := cmp.Diff(extenderv1.ExtenderFilterResult{
		NodeNames: names(), FailedNodes: extenderv1.FailedNodesMap{"full": noRoom.Text, "new": engine.NodeUnknown.Text},
		FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"important": noRoom.Text, "wrong": wrongOne.Text},
	}, filtered); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	full := map[string][]string{"full": {"uid-a"}}
	for _, tt := range []struct {
		candidates string
		want       map[string][]string
	}{
		{`"NodeNameToVictims":null,"NodeNameToMetaVictims":{"full":{"Pods":[],"NumPDBViolations":0}}`, full},
		{`"NodeNameToVictims":{"full":{"Pods":[],"NumPDBViolations":0}},"NodeNameToMetaVictims":null`, full},
		{`"NodeNameToMetaVictims":{"full":{"Pods":null,"NumPDBViolations":0}}`, full},
		{`"NodeNameToVictims":{"full":{"Pods":null,"NumPDBViolations":0}}`, full},
		{`"NodeNameToMetaVictims":{"full":{"NumPDBViolations":0}}`, full},
		{`"NodeNameToVictims":{"full":{}}`, full},
		{`"NodeNameToMetaVictims":{"full":null}`, full},
		{`"NodeNameToVictims":{"full":null}`, full},
		{`"NodeNameToMetaVictims":{"full":{"Pods":[null]}}`, full},
		{`"NodeNameToMetaVictims":{"free":{"Pods":[]}}`, map[string][]string{"free": {}}},
		{`"NodeNameToVictims":{"free":{"Pods":[]}}`, map[string][]string{"free": {}}},
		{`"NodeNameToMetaVictims":{"important":{"Pods":[]},"wrong":{"Pods":[]},"unknown":{"Pods":[]}}`, nil},
		{`"NodeNameToMetaVictims":{}`, nil},
		{`"NodeNameToVictims":{}`, nil},
		// Together with others, as in a cluster where some nodes lack resources that kube-scheduler counts.
		{`"NodeNameToMetaVictims":{"full":{"Pods":[]},"free":{"Pods":[{"UID":"uid-b"}]},"important":{"Pods":[]}}`, map[string][]string{"full": {"uid-a"}, "free": {"uid-b"}}},
		{`"NodeNameToVictims":{"free":{"Pods":[{"metadata":{"uid":"uid-b"}}]},"full":{"Pods":[]}}`, map[string][]string{"full": {"uid-a"}, "free": {"uid-b"}}},
	} {
		answer := decode[extenderv1.ExtenderPreemptionResult](t, s.post(t, "preempt", `{"Pod":`+pod+`,`+tt.candidates+`}`))
		got := map[string][]string{}
		for name, victims := range answer.NodeNameToMetaVictims {
			got[name] = []string{}
			for _, p := range victims.Pods {
				got[name] = append(got[name], p.UID)
			}
		}
		if tt.want == nil {
			tt.want = map[string][]string{}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || answer.NodeNameToMetaVictims == nil {
			t.Errorf("%s: the response (-want +got):\n%s", tt.candidates, diff)
		}
	}
}

// slow takes some time for each node; the pod fits there if all others are gone.
type slow struct{}

func (slow) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return slow{}, nil
}

func (slow) Filter(n *snapshot.Node) policy.Verdict {
	time.Sleep(5 * time.Millisecond)
	if len(n.Pods) > 0 {
		return policy.Verdict{Reason: noRoom}
	}
	return policy.Verdict{}
}

// For any number of candidates, and any time that each takes, a response with some of them comes before kube-scheduler's
// httpTimeout of 3 s ends.
func TestPreemptEndsInTime(t *testing.T) {
	const candidates = 2000
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	var body strings.Builder
	body.WriteString(`{"Pod":{"metadata":{"namespace":"default","name":"p","uid":"uid-p"},"spec":{"priority":10}},"NodeNameToMetaVictims":{`)
	for i := range candidates {
		name := fmt.Sprintf("n%04d", i)
		nodes = append(nodes, labelled(name))
		pods = append(pods, onNode(name+"-a", name, 1), onNode(name+"-b", name, 2))
		fmt.Fprintf(&body, `%q:{"Pods":[{"UID":"uid-%s-a"}],"NumPDBViolations":%d},`, name, name, candidates-i)
	}
	s := serve(t, &fakeCluster{view: view(nodes, pods...)}, func(o *engine.Options, _ *extender.Options) {
		o.Policies = []engine.WeightedPolicy{{Name: "Slow", Policy: slow{}}}
	})
	var answer extenderv1.ExtenderPreemptionResult
	synctest.Test(t, func(t *testing.T) { // with a simulated clock, which only slow moves
		began, w := time.Now(), httptest.NewRecorder()
		s.Config.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/preempt", strings.NewReader(strings.TrimSuffix(body.String(), ",")+"}}")))
		if took := time.Since(began); took >= 3*time.Second {
			t.Errorf("the response took %v", took)
		}
		answer = decode[extenderv1.ExtenderPreemptionResult](t, w.Body.String())
	})
	if n := len(answer.NodeNameToMetaVictims); n == 0 || n == candidates {
		t.Fatalf("got %d candidates, want some", n)
	}
	best := answer.NodeNameToMetaVictims[fmt.Sprintf("n%04d", candidates-1)]
	if best == nil || len(best.Pods) != 2 {
		t.Errorf("got %v as the best candidate, want both pods", best)
	}
}
