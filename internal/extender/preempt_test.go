package extender_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// Only the API server decides whether a pod is gone: without its response preempt evicts no pod, and the record has the reason.
func TestNominatedPodWaitsForTheAPIServer(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	low, lowM, important := on(sharing("low", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0"), nominatedTo("n", sharing("important", 1000, 16))
	g := serveGPUProfile(t, nil, important)
	g.see(nodes, terminating(low), lowM, important)
	g.fits(important, "n")
	g.cluster.liveErr = errors.New("timeout")
	victims := map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}
	answer := decode[struct{ Error string }](t, g.post(t, "preempt", encode(t, extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: victims})))
	if want := `asking whether pod default/low is gone, which leaves node "n": timeout`; answer.Error != want {
		t.Errorf("got error %q, want %q", answer.Error, want)
	}
	g.cluster.liveErr = nil
	g.fits(important, "n")
	if got := g.preempt(important, victims); got != "" {
		t.Errorf("preempt returns %q when low is gone", got)
	}
	record := g.log.Find(decision.Query{Namespace: "default", Name: "important", Limit: 1})[0]
	if want := `needs no eviction: the pod fits on node "n", to which it is nominated`; len(record.Preemptions) != 1 || record.Preemptions[0].Dropped != want {
		t.Errorf("got record %+v", record.Preemptions)
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

// A preempt call does not wait longer for the API server than it evaluates candidates. It evicts no pod that it may not have to: pods
// about which the API server has not responded count as gone, and the others as the API server has them.
func TestNominatedPodWaitsForTheAPIServerBriefly(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2), gpuNode("m", 2)}
	first, second := on(sharing("first", 0, 10), "n", "0"), on(sharing("second", 0, 10), "n", "1")
	lowM, important := on(sharing("low-m", 0, 10), "m", "0"), nominatedTo("n", sharing("important", 1000, 16))
	needsNone := `needs no eviction: the pod fits on node "n", to which it is nominated`
	mayNeedNone := `may need no eviction: the pod is nominated to node "n", and the API server has not responded in time whether all pods that leave it are gone`
	for _, tc := range []struct {
		name    string
		runs    []*corev1.Pod // on node n, as the view shows them
		live    []*corev1.Pod // as the API server has them
		hangs   string        // the pod for which the API server does not respond
		limited bool          // it is not asked, because the limit of requests permits it too late
		want    string        // the response
		dropped string        // the record's reason for dropping the candidate
	}{
		{"no response", []*corev1.Pod{terminating(first), on(sharing("high", 2000, 10), "n", "1")}, nil, "first", false, "", mayNeedNone},
		{"no request", []*corev1.Pod{terminating(first), on(sharing("high", 2000, 10), "n", "1")}, nil, "first", true, "", mayNeedNone},
		{"another evicted pod is gone", []*corev1.Pod{terminating(first), terminating(second)}, nil, "second", false, "", mayNeedNone},
		{"another evicted pod is not gone, and the pod fits beside it", []*corev1.Pod{terminating(first), terminating(second)},
			[]*corev1.Pod{first}, "second", false, "", mayNeedNone},
		{"another evicted pod is not gone, and the pod does not fit beside it", []*corev1.Pod{terminating(first),
			terminating(on(sharing("third", 0, 4), "n", "0")), on(sharing("high", 2000, 10), "n", "1")}, []*corev1.Pod{first}, "third", false, "m[low-m]", ""},
		{"the pod would not fit without it", []*corev1.Pod{terminating(first), on(sharing("high", 2000, 10), "n", "1"),
			on(sharing("higher", 2000, 6), "n", "0")}, nil, "first", false, "m[low-m]", ""},
		{"all respond", []*corev1.Pod{terminating(first), terminating(second)}, nil, "", false, "", needsNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := serveGPUProfile(t, nil, append(tc.live, important)...)
			g.cluster.onLive = func(ctx context.Context, name string) error {
				if name != tc.hangs {
					return nil
				}
				if tc.limited {
					return fmt.Errorf("limit of requests: %w", context.DeadlineExceeded)
				}
				<-ctx.Done()
				return ctx.Err()
			}
			g.see(nodes, append(tc.runs, lowM, on(sharing("high-m", 2000, 10), "m", "1"), important)...)
			if got := g.fits(important, "n"); got != "" {
				t.Fatalf("the pod fits on %q", got)
			}
			synctest.Test(t, func(t *testing.T) {
				body := encode(t, extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}})
				w := httptest.NewRecorder()
				g.Config.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/preempt", strings.NewReader(body)))
				if got := preempted(t, w.Body.String()); got != tc.want {
					t.Errorf("preempt returns %q, want %q", got, tc.want)
				}
			})
			record := g.log.Find(decision.Query{Namespace: "default", Name: "important", Limit: 1})[0]
			if record.Verb != decision.Preempt || record.Error != "" || len(record.Preemptions) != 1 || record.Preemptions[0].Dropped != tc.dropped {
				t.Errorf("got record %+v, want dropped %q", record, tc.dropped)
			}
		})
	}
}
