package extender_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// lateWatch is a cluster whose watch shows an event while somebody waits for another view.
type lateWatch struct {
	fakeCluster
	event func(*lateWatch)
}

func (c *lateWatch) Superseded(*snapshot.View) <-chan struct{} {
	if c.event != nil {
		c.event(c)
	}
	return nil
}

// limited returns a pod of which a node takes one.
func limited(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := somePod()
	pod.Labels = map[string]string{"app": "db"}
	pod.Name, pod.UID, pod.ResourceVersion = name, types.UID(name), "1"
	if change != nil {
		change(pod)
	}
	return pod
}

// limitedNode returns a cluster with node a and the pod, and what calls filter for a pod.
func limitedNode(t *testing.T, pod *corev1.Pod) (*lateWatch, func(pod *corev1.Pod, nodes ...string) (fits bool)) {
	cluster := &lateWatch{}
	cluster.pods = []*corev1.Pod{pod}
	cluster.see(policytest.Nodes("[{metadata: {name: a}}]"), pod)
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{
		Name: "P", Policy: policytest.Build(t, podlimit.Type(), "{max: 1, selector: {matchLabels: {app: db}}}"), Weight: 1,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	handler := extender.New(extender.Options{
		Profile: "/", Cluster: cluster, Engine: e, Log: decision.NewLog(8),
		Metrics: callmetrics.New(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	return cluster, func(pod *corev1.Pod, nodes ...string) bool {
		body := encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})
		response := httptest.NewRecorder()
		handler.Verb(decision.Filter).ServeHTTP(response, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(body))))
		var result extenderv1.ExtenderFilterResult
		if err := json.Unmarshal(response.Body.Bytes(), &result); err != nil || result.Error != "" {
			t.Fatalf("response %s: %v", response.Body, err)
		}
		return len(*result.NodeNames) == 1
	}
}

// kube-scheduler calls filter for the next pod before Outboard sees where the former one is. With bind through
// another client, too, no node gets more pods than its limit.
func TestFilterCountsThePodBefore(t *testing.T) {
	const before = "before"
	shows := func(change func(*corev1.Pod)) func(*lateWatch) {
		return func(c *lateWatch) {
			pod := limited(before, change)
			pod.ResourceVersion = "2"
			c.pods = []*corev1.Pod{pod}
			c.builder.SetPod(pod)
			c.view = c.builder.View()
		}
	}
	failed := func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	}
	group := "ring"
	inGroup := func(pod *corev1.Pod) { pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
	for what, tc := range map[string]struct {
		event func(*lateWatch)
		first func(*corev1.Pod)
		next  func(*corev1.Pod)
		waits time.Duration
		fits  bool
	}{
		"bound":                   {event: shows(func(pod *corev1.Pod) { pod.Spec.NodeName = "a" }), fits: false},
		"nominated by the cycle":  {event: shows(func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "a" }), fits: false},
		"being bound by Outboard": {event: func(c *lateWatch) { c.Assume(limited(before, nil), "a") }, fits: false},
		"not placed":              {event: shows(failed), fits: true},
		"changed, and not placed earlier": {
			first: failed, event: shows(func(pod *corev1.Pod) { failed(pod); pod.Spec.NodeName = "a" }), fits: false,
		},
		"never":               {waits: 500 * time.Millisecond, fits: true},
		"of the same group":   {first: inGroup, next: inGroup, fits: true},
		"without a limit":     {next: func(pod *corev1.Pod) { pod.Labels = nil }, fits: true},
		"its own next call":   {next: func(pod *corev1.Pod) { pod.UID = before }, fits: true},
		"after one unlimited": {first: func(pod *corev1.Pod) { pod.Labels = nil }, fits: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, next := limited(before, tc.first), limited("next", tc.next)
				cluster, filter := limitedNode(t, first)
				if !filter(first, "a") {
					t.Fatal("the first pod does not fit")
				}
				cluster.event = tc.event
				began := time.Now()
				if fits := filter(next, "a"); fits != tc.fits {
					t.Errorf("the next pod fits: %v, want %v", fits, tc.fits)
				}
				if waited := time.Since(began).Truncate(100 * time.Millisecond); tc.event == nil && waited != tc.waits {
					t.Errorf("the call waited %v, want %v", waited, tc.waits)
				}
			})
		})
	}
}

// Another caller repeats the filter call for pods that nobody binds.
func TestRepeatedFilterCallsDelayOthersLittle(t *testing.T) {
	for what, tc := range map[string]struct {
		pod  func(call int) string
		node func(call int) string
		all  time.Duration // how long all calls of kube-scheduler together wait in 10 s
	}{
		"for one pod":                    {all: 3 * time.Second},
		"for one pod that fits at times": {node: func(call int) string { return []string{"a", "unknown"}[call%2] }, all: 3 * time.Second},
		"for many pods":                  {pod: func(call int) string { return fmt.Sprint("other-", call) }, all: 10 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, filter := limitedNode(t, limited("other", nil))
				for call := range 100 {
					pod, node := limited("other", nil), "a"
					if tc.pod != nil {
						pod = limited(tc.pod(call), nil)
					}
					if tc.node != nil {
						node = tc.node(call)
					}
					if call == 0 {
						filter(pod, node)
						continue
					}
					time.AfterFunc(time.Duration(call)*100*time.Millisecond, func() { filter(pod, node) })
				}
				time.Sleep(5 * time.Millisecond) // or else the order of calls that begin at the same time is random
				var all time.Duration
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
					call := time.Now()
					filter(limited("next", nil), "a")
					waited := time.Since(call)
					if all += waited; waited.Truncate(100*time.Millisecond) > 500*time.Millisecond {
						t.Fatalf("a call waited %v", waited)
					}
				}
				time.Sleep(time.Second) // until all calls have ended
				if all == 0 || all.Truncate(100*time.Millisecond) > tc.all {
					t.Errorf("all calls waited %v, want at most %v", all, tc.all)
				}
			})
		})
	}
}
