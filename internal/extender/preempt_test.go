package extender_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// Only the API server decides whether a pod is gone: without its response preempt evicts no pod, and the record has the reason.
func TestNominatedPodWaitsForTheAPIServer(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	low, lowM, important := on(sharing("low", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0"), nominatedTo("n", sharing("important", 1000, 16))
	body := encode(t, extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}})
	const mayNeedNone = `may need no eviction: the pod is nominated to node "n", and asking whether pod default/low, which terminates there, is gone: `
	for name, tc := range map[string]struct {
		live func(context.Context, string) error
		want string // the record's reason for dropping the candidate
	}{
		"gone":      {nil, `needs no eviction: the pod fits on node "n", to which it is nominated`},
		"an error":  {func(context.Context, string) error { return errors.New("no route to host") }, mayNeedNone + "no route to host"},
		"no answer": {func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, mayNeedNone + "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			g := serveGPUProfile(t, nil, important)
			g.cluster.onLive = tc.live
			g.see(nodes, terminating(low), lowM, important)
			synctest.Test(t, func(t *testing.T) {
				w := httptest.NewRecorder()
				g.Config.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/preempt", strings.NewReader(body)))
				if got := preempted(t, w.Body.String()); got != "" {
					t.Errorf("preempt returns %q", got)
				}
			})
			record := g.log.Find(decision.Query{Namespace: "default", Name: "important", Limit: 1})[0]
			if record.Error != "" || len(record.Preemptions) != 1 || record.Preemptions[0].Dropped != tc.want {
				t.Errorf("got record %+v", record)
			}
		})
	}
}

// kube-scheduler reads a response in which a victim runs on another node as an error, so that it would evict no pod on any node. It sends
// such victims for the pods of a PodGroup that are evicted together.
func TestPreemptKeepsNoNodeWithVictimsOfOthers(t *testing.T) {
	lowN, lowM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	important := sharing("important", 1000, 16)
	g := serveGPUProfile(t, nil, lowN, lowM, important)
	g.see([]*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}, lowN, lowM, important)
	for _, pod := range []*corev1.Pod{important, somePod()} { // of the other one, no policy counts anything
		if got := g.preempt(pod, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n", "low-m"), "m": metaVictims("low-m", "unseen")}); got != "m[low-m unseen]" {
			t.Errorf("%s: preempt returns %q", pod.Name, got)
		}
	}
	record := g.log.Find(decision.Query{Namespace: "default", Name: "important", Limit: 1})[0]
	want := `n: dropped: kube-scheduler would also evict pod default/low-m on node "m", and accepts no pods of other nodes from an extender`
	var text strings.Builder
	if err := record.Text(&text); err != nil || !strings.Contains(text.String(), want) {
		t.Errorf("got record\n%s%v", text.String(), err)
	}
}

// A pod that fits on a node outside of kube-scheduler's sample needs no eviction.
func TestPreemptKeepsNoNodeIfThePodFitsElsewhere(t *testing.T) {
	low, important := on(sharing("low", 0, 10), "n", "0"), sharing("important", 1000, 16)
	for elsewhere, want := range map[string]string{"": "n[low]", "m": ""} {
		g := serveGPUsWith(t, nil, func(o *extender.Options) {
			o.Elsewhere = func(context.Context, engine.Request) string { return elsewhere }
		}, low, important)
		g.see([]*corev1.Node{gpuNode("n", 1)}, low, important)
		if got := g.preempt(important, map[string]*extenderv1.MetaVictims{"n": metaVictims("low")}); got != want {
			t.Errorf("elsewhere %q: preempt returns %q", elsewhere, got)
		}
		const why = `needs no eviction: the pod fits on node "m", about which kube-scheduler did not ask`
		if got := g.log.Find(decision.Query{Namespace: "default", Name: "important", Limit: 1})[0].Preemptions[0].Dropped; want == "" && got != why {
			t.Errorf("dropped: %s", got)
		}
	}
}
