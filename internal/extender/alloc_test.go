package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

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

// cheap is a policy that reads one fact of each node.
type cheap struct{ pods *snapshot.Fact[int64] }

var tooMany = &policy.Reason{Code: "TooManyPods", Text: "too many pods", Unit: "pods"}

func (c cheap) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return c, nil
}

func (c cheap) Filter(n *snapshot.Node) policy.Verdict {
	if have := *c.pods.Of(n); have >= 110 {
		return policy.Verdict{Reason: tooMany, Have: have, Want: 110}
	}
	return policy.Verdict{}
}

func (c cheap) Score(n *snapshot.Node) int64 { return 100 - min(*c.pods.Of(n), 100) }

func newCheap() policy.Policy {
	return cheap{snapshot.NewFact(func(n *snapshot.Node) int64 { return int64(len(n.Pods)) })}
}

func newHandler(cluster extender.Cluster, shortlist int) (http.Handler, error) {
	e, err := engine.New(engine.Options{
		Policies:  []engine.WeightedPolicy{{Name: "Cheap", Policy: newCheap(), Weight: 1}},
		Shortlist: shortlist,
	})
	if err != nil {
		return nil, err
	}
	return extender.New(extender.Options{
		Profile: "/", Engine: e, Cluster: cluster,
		Log: decision.NewLog(0), Metrics: callmetrics.New(prometheus.NewRegistry()),
	}).Verb(decision.Filter), nil
}

// manyNodes is a cluster of size nodes that knows the pods of the calls.
func manyNodes(size int) *fakeCluster {
	var builder snapshot.Builder
	for i := range size {
		node := labelled(fmt.Sprintf("node-%05d.eu-central-1.compute.internal", i))
		snapshot.TrimNode(node)
		builder.SetNode(node)
	}
	cluster := &fakeCluster{view: builder.View()}
	for i := range pods {
		pod := usualPod()
		pod.UID = types.UID(fmt.Sprintf(uidFormat, i))
		snapshot.TrimPod(pod)
		cluster.pods = append(cluster.pods, pod)
	}
	return cluster
}

// pods is how many pods the calls use in turn: so many that no cache holds a pod until its next turn.
const (
	pods      = 512
	uidPlace  = "00000000-0000-0000-0000-000000000000"
	uidFormat = "00000000-0000-0000-0000-%012d"
)

// fresh writes the UID of another pod into the body, in place.
func fresh(body []byte, n int) []byte {
	i := bytes.Index(body, []byte(`"uid":"`)) + len(`"uid":"`)
	copy(body[i:], fmt.Sprintf(uidFormat, n%pods))
	return body
}

// nowhere is a ResponseWriter that discards everything.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

// In names mode a call makes as many allocations for 5,000 nodes as for 100.
func TestAllocationsDoNotGrowWithNodes(t *testing.T) {
	allocations := func(size, shortlist int) float64 {
		handler, err := newHandler(manyNodes(size), shortlist)
		if err != nil {
			t.Fatal(err)
		}
		asked := make([]string, size)
		for i := range asked {
			asked[i] = fmt.Sprintf("node-%05d.eu-central-1.compute.internal", i)
		}
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: usualPod(), NodeNames: &asked})
		if err != nil {
			t.Fatal(err)
		}
		n, w := 0, nowhere{http.Header{}}
		call := func() {
			n++
			req, err := http.NewRequest(http.MethodPost, "/filter", io.NopCloser(bytes.NewReader(fresh(body, n))))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(len(body))
			handler.ServeHTTP(w, req)
		}
		for range 150 { // until buffers and caches have their final size
			call()
		}
		return testing.AllocsPerRun(150, call)
	}
	for _, shortlist := range []int{0, 1} {
		few, many := allocations(100, shortlist), allocations(5000, shortlist)
		// A few more allocations occur when a pool is empty: after a garbage collection, and at random under the race detector.
		// One for each hundred nodes would be growth.
		if many > few+49 {
			t.Errorf("shortlist %d: %.0f allocations for 100 nodes, %.0f for 5,000", shortlist, few, many)
		}
		t.Logf("shortlist %d: %.0f allocations for 100 nodes, %.0f for 5,000", shortlist, few, many)
	}
}
