package nightly

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

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
