package extender_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// counting scores nodes by a label, and counts its calls.
type counting struct{ asked *atomic.Int64 }

func (c counting) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return c, nil
}

func (c counting) Score(n *snapshot.Node) int64 {
	c.asked.Add(1)
	score, _ := strconv.ParseInt(n.Object.Labels["score"], 10, 64)
	return score
}

// scoring is a handler with the policy counting.
type scoring struct {
	t       *testing.T
	handler *extender.Handler
	cluster *fakeCluster
	log     *decision.Log
	asked   atomic.Int64
}

func newScoring(t *testing.T, nodes []*corev1.Node, pods ...*corev1.Pod) *scoring {
	s := &scoring{t: t, cluster: &fakeCluster{view: view(nodes), pods: pods}, log: decision.NewLog(64)}
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Counting", Policy: counting{&s.asked}, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	s.handler = extender.New(extender.Options{
		Profile: "/", Cluster: s.cluster, Engine: e, Log: s.log,
		Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	return s
}

// call returns the response, and how often it called the policy.
func (s *scoring) call(verb decision.Verb, args any) (answer string, asked int64) {
	s.t.Helper()
	w := httptest.NewRecorder()
	before := s.asked.Load()
	s.handler.Verb(verb).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+string(verb), bytes.NewReader([]byte(encode(s.t, args)))))
	return w.Body.String(), s.asked.Load() - before
}

// prioritize returns the scores, and whether the call called the policy.
func (s *scoring) prioritize(args extenderv1.ExtenderArgs) (scores extenderv1.HostPriorityList, asked bool) {
	s.t.Helper()
	answer, n := s.call(decision.Prioritize, args)
	return decode[extenderv1.HostPriorityList](s.t, answer), n > 0
}

// A filter call computes the scores once, and the following prioritize call uses them, unless something has changed since.
func TestPrioritizeUsesTheViewOfFilter(t *testing.T) {
	before := []*corev1.Node{labelled("a", "score", "90"), labelled("b", "score", "50"), labelled("c", "score", "10"), labelled("d", "score", "70")}
	after := []*corev1.Node{labelled("a", "score", "10"), labelled("b", "score", "90"), labelled("c", "score", "50"), labelled("d", "score", "70")}
	old := extenderv1.HostPriorityList{{Host: "a", Score: 8}, {Host: "b", Score: 4}} // levels 9, 5, 1
	anew := extenderv1.HostPriorityList{{Host: "b", Score: 8}, {Host: "c", Score: 4}}

	waiting, victim := somePod(), somePod()
	waiting.Name, waiting.UID = "waiting", "u2"
	victim.Name, victim.UID, victim.Spec.NodeName = "victim", "u3", "d"
	all := extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("a", "b", "c")}
	newer := somePod()
	newer.ResourceVersion = "8"

	for _, tt := range []struct {
		name    string
		between func(s *scoring)
		args    extenderv1.ExtenderArgs
		want    extenderv1.HostPriorityList
		asked   bool
	}{
		{"nothing else happens", func(*scoring) {}, all, old, false},
		{"almost a second passes", func(*scoring) { time.Sleep(time.Second) }, all, old, false},
		{"more than a second passes", func(*scoring) { time.Sleep(time.Second + 1) }, all, anew, true},
		{"another version of the pod", func(*scoring) {}, extenderv1.ExtenderArgs{Pod: newer, NodeNames: all.NodeNames}, anew, true},
		{"fewer nodes", func(*scoring) {}, extenderv1.ExtenderArgs{Pod: all.Pod, NodeNames: names("b", "c")}, extenderv1.HostPriorityList{{Host: "b", Score: 4}}, true},
		{"other nodes", func(*scoring) {}, extenderv1.ExtenderArgs{Pod: all.Pod, NodeNames: names("b", "c", "d")}, extenderv1.HostPriorityList{{Host: "b", Score: 4}, {Host: "d", Score: 2}}, true},
		{"another order", func(*scoring) {}, extenderv1.ExtenderArgs{Pod: all.Pod, NodeNames: names("b", "a", "c")}, anew, true},
		{"the same call before", func(s *scoring) { s.prioritize(all) }, all, anew, true},
		{"a call about others before", func(s *scoring) {
			s.prioritize(extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("a", "b")})
		}, all, old, false},
		{"a pod is being bound to one of the nodes", func(s *scoring) { s.bind("b") }, all, anew, true},
		{"a pod is being bound to another node", func(s *scoring) { s.bind("d") }, all, old, false},
		{"pods are evicted for another", func(s *scoring) {
			answer, _ := s.call(decision.Preempt, extenderv1.ExtenderPreemptionArgs{Pod: waiting, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
				"d": {Pods: []*extenderv1.MetaPod{{UID: string(victim.UID)}}},
			}})
			if got := decode[extenderv1.ExtenderPreemptionResult](t, answer); len(got.NodeNameToMetaVictims) != 1 {
				t.Errorf("preempt returns %s", answer)
			}
		}, all, anew, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScoring(t, before, somePod(), waiting)
				var b snapshot.Builder
				b.SetPod(victim)
				show := func(nodes []*corev1.Node) {
					for _, n := range nodes {
						b.SetNode(n)
					}
					s.cluster.view = b.View()
				}
				show(before)
				if _, asked := s.call(decision.Filter, all); asked != 3 {
					t.Fatalf("a filter call called the policy %d times, want once for each node", asked)
				}
				show(after)
				tt.between(s)
				got, asked := s.prioritize(tt.args)
				if diff := cmp.Diff(tt.want, got); diff != "" || asked != tt.asked {
					t.Errorf("prioritize calls the policy: %v, want %v; scores (-want +got):\n%s", asked, tt.asked, diff)
				}
			})
		})
	}
}

// bind begins a bind call, which does not end before the test does.
func (s *scoring) bind(node string) {
	ended := make(chan struct{})
	s.t.Cleanup(func() { <-ended })
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	s.cluster.onBind = func() error { <-ctx.Done(); return ctx.Err() }
	args := extenderv1.ExtenderBindingArgs{PodName: "waiting", PodNamespace: "default", PodUID: "u2", Node: node}
	go func() {
		defer close(ended)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/bind", bytes.NewReader([]byte(encode(s.t, args))))
		s.handler.Verb(decision.Bind).ServeHTTP(w, r.WithContext(ctx))
	}()
	synctest.Wait()
}

// The record of a prioritize call with scores from the filter call is the same as that of any other, also if a filter call of another pod comes
// in between.
func TestRecordOfPrescoredCall(t *testing.T) {
	nodes := []*corev1.Node{
		labelled("a", "score", "90"), labelled("b", "score", "50"), labelled("c", "score", "10"), labelled("d", "score", "30"), labelled("e", "score", "20"),
	}
	other := somePod()
	other.Name, other.UID = "q", "u2"
	args := extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("a", "b", "c")}
	record := func(filter bool) *decision.Record {
		s := newScoring(t, nodes, somePod(), other)
		if filter {
			s.call(decision.Filter, args)
			s.call(decision.Filter, extenderv1.ExtenderArgs{Pod: other, NodeNames: names("e", "d", "c")})
		}
		if _, asked := s.prioritize(args); asked == filter {
			t.Fatalf("filter calls the policy: %v, prioritize calls the policy: %v", filter, asked)
		}
		latest := *s.log.Find(decision.Query{Namespace: "default", Name: "p", Node: "b", Limit: 1})[0]
		latest.Time, latest.Duration = time.Time{}, 0
		return &latest
	}
	want, got := record(false), record(true)
	if diff := cmp.Diff(want, got); diff != "" || got.Chosen == nil || got.Verb != decision.Prioritize {
		t.Errorf("the record differs (-want +got):\n%s", diff)
	}
}

// Without prioritize calls, scores are soon no longer computed; after a prioritize call they are computed again.
func TestScoresWithoutPrioritizeCalls(t *testing.T) {
	s := newScoring(t, []*corev1.Node{labelled("a"), labelled("b")})
	args := extenderv1.ExtenderArgs{NodeNames: names("a", "b")}
	filter := func(n int) (scored int) {
		for i := range n {
			pod := somePod()
			pod.UID = types.UID(strconv.Itoa(i))
			args.Pod = pod
			if _, asked := s.call(decision.Filter, args); asked > 0 {
				scored++
			}
		}
		return scored
	}
	if scored := filter(100); scored == 0 || scored > 10 {
		t.Errorf("%d of 100 filter calls without prioritize calls computed scores", scored)
	}
	s.prioritize(args)
	if scored := filter(3); scored != 3 {
		t.Errorf("%d of 3 filter calls after a prioritize call computed scores", scored)
	}
	if _, asked := s.call(decision.Filter, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("a", "unknown")}); asked > 0 {
		t.Error("a single node was scored, although kube-scheduler makes no prioritize call about it")
	}
}
