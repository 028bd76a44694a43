package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

var requeueWait = flag.Duration("requeue.wait", 20*time.Second,
	"how long BenchmarkRequeue waits for a pod that is not requeued; kube-scheduler takes up to 5m30s")

// licenseServer allocates to pods the rest of one seat.
const licenseServer = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals: [{name: flexnet, file: {path: lmstat.txt, format: LMStat}}]
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
	config := schedulerConfig(extender{o: a.outboard, verbs: "filter bind"})
	if _, err = a.stage.StartScheduler(b.Context(), controlplane.SchedulerOptions{Config: config}); err != nil {
		b.Fatal(err)
	}
}

// used sets how many seats people use.
func (a *requeueArm) used(b *testing.B, seats int) {
	text := fmt.Sprintf("Users of solver:  (Total of 1 licenses issued;  Total of %d licenses in use)\n", seats)
	if err := a.stage.WriteFile("lmstat.txt", []byte(text)); err != nil {
		b.Fatal(err)
	}
}

func (a *requeueArm) measure(b *testing.B, name string) {
	ctx, client := b.Context(), a.stage.Client
	a.used(b, 1)
	time.Sleep(time.Second) // until Outboard has read it
	placed, err := a.stage.Place(ctx, licensed(name, "solver").Pod())
	if err != nil || placed.Waiting == "" {
		b.Fatalf("the pod does not wait: %v", err)
	}
	a.calm(b, name)
	start := time.Now()
	a.used(b, 0)
	limit := patience
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
