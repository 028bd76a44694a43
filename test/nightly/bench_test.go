package nightly

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// BenchmarkBinds is the time from the first of 40 concurrent bind calls to the last response: for
// pods with shares of GPUs, all on one node and each on its own, and for pods without allocations, each
// on its own node. The arms take turns.
func BenchmarkBinds(b *testing.B) {
	const count = 40
	ctx := b.Context()
	s, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	var nodes []*corev1.Node
	for i := range count + 1 {
		nodes = append(nodes, theater.GPUs(fmt.Sprintf("n%d", i), 8, 160).Node())
	}
	if err := controlplane.CreateNodes(ctx, s.Client, nodes...); err != nil {
		b.Fatal(err)
	}
	o, err := s.StartOutboard(ctx, theater.GPUShare+"clientConnection: {qps: 1000}\n")
	if err != nil {
		b.Fatal(err)
	}
	bind := func(name string, units int, node func(i int) string) time.Duration {
		var bodies [][]byte
		for i := range count {
			spec := theater.GPUPod(fmt.Sprintf("%s-%d", name, i), units)
			if spec.SchedulerName = "nobody"; units == 0 {
				spec.Resources = nil
			}
			pod, err := s.Client.CoreV1().Pods("default").Create(ctx, spec.Pod(), metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			body, err := json.Marshal(extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node(i)})
			if err != nil {
				b.Fatal(err)
			}
			bodies = append(bodies, body)
		}
		time.Sleep(200 * time.Millisecond) // until the watch shows them
		var calls sync.WaitGroup
		started := time.Now()
		for _, body := range bodies {
			calls.Go(func() { post(ctx, b, o.URL+"/gpushare-scheduler/bind", body) })
		}
		calls.Wait()
		took := time.Since(started)
		if err := s.Client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
		return took
	}
	arms := []struct {
		name  string
		units int
		node  func(i int) string
		took  time.Duration
	}{
		{"one-node", 1, func(int) string { return fmt.Sprintf("n%d", count) }, 0},
		{"many-nodes", 1, func(i int) string { return fmt.Sprintf("n%d", i) }, 0},
		{"no-allocations", 0, func(i int) string { return fmt.Sprintf("n%d", i) }, 0},
	}
	round := 0
	for b.Loop() {
		round++
		for i := range arms {
			arms[i].took += bind(fmt.Sprintf("%s-%d", arms[i].name, round), arms[i].units, arms[i].node)
		}
	}
	for _, a := range arms {
		b.ReportMetric(a.took.Seconds()*1e3/float64(b.N), a.name+"-ms")
	}
	b.ReportMetric(float64(arms[0].took)/float64(arms[1].took), "one-node/many-nodes")
	b.ReportMetric(float64(arms[1].took)/float64(arms[2].took), "allocations/no-allocations")
	b.ReportMetric(0, "ns/op")
}

func post(ctx context.Context, b *testing.B, url string, body []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || string(answer) != `{"Error":""}` {
		b.Errorf("%s, %v", answer, err)
	}
}

var requeueWait = flag.Duration("requeue.wait", 20*time.Second,
	"how long BenchmarkRequeue waits for a pod that is not requeued; kube-scheduler takes up to 5m30s")

// licenseServer allocates to pods the rest of one seat.
const licenseServer = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals: [{name: flexnet, file: {path: seats.yaml, about: Keys}}]
profiles:
- policies: [{type: Licenses, config: {features: [{name: solver, server: {signal: flexnet}}]}}]
`

// BenchmarkRequeue measures the time from the return of a license outside the cluster until the pod
// that needs it is bound, in an otherwise idle cluster: with requeuing, and without. A measurement
// without requeuing ends after -requeue.wait at the latest; capped is the number of measurements
// that did.
func BenchmarkRequeue(b *testing.B) {
	arms := []*requeueArm{{name: "requeued"}, {name: "not-requeued", config: "requeue: {perSecond: 0}\n"}}
	for _, a := range arms {
		a.set(b)
	}
	round := 0
	for b.Loop() {
		round++
		for _, a := range arms {
			a.measure(b, fmt.Sprintf("p-%d", round))
		}
	}
	for _, a := range arms {
		b.ReportMetric(a.took.Seconds()*1e3/float64(b.N), a.name+"-ms")
	}
	b.ReportMetric(float64(arms[1].capped), "capped")
	b.ReportMetric(float64(arms[1].took)/float64(arms[0].took), "not-requeued/requeued")
	b.ReportMetric(0, "ns/op")
}

// requeueArm is a cluster with one node, beside a license server with one seat.
type requeueArm struct {
	name, config string
	took         time.Duration
	capped       int

	stage    *stage.Stage
	outboard *stage.Outboard
}

func (a *requeueArm) set(b *testing.B) {
	var err error
	if a.stage, err = stage.Set(b.Context(), stage.Options{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { a.stage.Stop() })
	if err := controlplane.CreateNodes(b.Context(), a.stage.Client, controlplane.NodeSpec{Name: "node"}.Node()); err != nil {
		b.Fatal(err)
	}
	a.used(b, 1)
	if a.outboard, err = a.stage.StartOutboard(b.Context(), licenseServer+a.config); err != nil {
		b.Fatal(err)
	}
	config := theater.SchedulerConfig(theater.Extender{Outboard: a.outboard, Verbs: "filter bind"})
	if _, err = a.stage.StartScheduler(b.Context(), controlplane.SchedulerOptions{Config: config}); err != nil {
		b.Fatal(err)
	}
}

// used sets how many seats people use.
func (a *requeueArm) used(b *testing.B, seats int) {
	text := fmt.Sprintf("solver/total: 1\nsolver/used: %d\n", seats)
	if err := a.stage.WriteFile("seats.yaml", []byte(text)); err != nil {
		b.Fatal(err)
	}
}

func (a *requeueArm) measure(b *testing.B, name string) {
	ctx, client := b.Context(), a.stage.Client
	a.used(b, 1)
	time.Sleep(time.Second) // until Outboard has read it
	placed, err := a.stage.Place(ctx, theater.Licensed(name, "solver").Pod())
	if err != nil || placed.Waiting == "" {
		b.Fatalf("the pod does not wait: %v", err)
	}
	a.calm(b, name)
	start := time.Now()
	a.used(b, 0)
	limit := theater.Patience
	if a.config != "" {
		limit = *requeueWait
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = controlplane.WaitForPodBound(waiting, client, placed.Pod)
	a.took += time.Since(start)
	if err != nil && (a.config == "" || ctx.Err() != nil) {
		b.Fatal(err)
	} else if err != nil {
		a.capped++
	}
	if err := controlplane.DeletePod(ctx, client, placed.Pod); err != nil {
		b.Fatal(err)
	}
}

// calm returns when kube-scheduler has made no attempt for the pod for a while.
func (a *requeueArm) calm(b *testing.B, name string) {
	for n, since := -1, time.Now(); time.Since(since) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
		doc, err := explain.Fetch(b.Context(), http.DefaultClient, a.outboard.Admin, url.Values{"pod": {name}, "decisions": {"100"}})
		if err != nil {
			b.Fatal(err)
		}
		if len(doc.Decisions) != n {
			n, since = len(doc.Decisions), time.Now()
		}
	}
}
