package chaos

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/stage"
)

// burst is a number of pods that are created much faster than Outboard may send requests.
type burst struct {
	nodes, cards, pods int
	limits             string // of requests, in Outboard's configuration
	patience           time.Duration
}

const burstConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
%s
profiles:
- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
  schedulerNames: [default-scheduler]
  policies: [{type: GPUMemory}]
`

// burstScheduler has the httpTimeout of the documentation.
const burstScheduler = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 2000}
extenders:
- urlPrefix: http://outboard
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true
  httpTimeout: 3s
  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
`

// perSecond is how many pods are created per second.
const perSecond = 250

// If pods are created faster than Outboard may send requests, all are bound in the end, and after the next sweep each
// has only its own allocation: if the API server does not respond to a Binding or its withdrawal, the pod may be bound to
// another node first. An API server on a busy machine may leave the outcome of a Binding unknown; that
// Outboard's own limit does not is tested in cluster, without real time.
func TestBurst(t *testing.T) {
	b := burst{nodes: 12, cards: 4, pods: 300, limits: "clientConnection: {qps: 30}", patience: 10 * time.Minute}
	if *full {
		b = burst{nodes: 50, cards: 8, pods: 2000, patience: 15 * time.Minute} // with the default limits
	}
	ctx, cancel := context.WithTimeout(t.Context(), b.patience)
	defer cancel()
	log := newAuditLog(t)
	set, err := stage.Set(ctx, stage.Options{ControlPlane: log.options()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c := &scene{Stage: set, t: t, ctx: ctx, log: log}
	defer c.checkHistories() // also of a test that fails
	var nodes []*corev1.Node
	for i := range b.nodes {
		nodes = append(nodes, controlplane.NodeSpec{Name: nodeName(i), Resources: map[string]string{
			"aliyun.com/gpu-count": fmt.Sprint(b.cards), "aliyun.com/gpu-mem": fmt.Sprint(b.cards * cardSize),
			"cpu": "1000", "pods": "1000",
		}}.Node())
	}
	if err := controlplane.CreateNodes(ctx, set.Client, nodes...); err != nil {
		t.Fatal(err)
	}
	outboard, err := set.StartOutboard(ctx, fmt.Sprintf(burstConfig, b.limits))
	if err != nil {
		t.Fatal(err)
	}
	config, err := outboard.SchedulerConfig(burstScheduler)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config}); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := b.create(ctx, set); err != nil {
		t.Fatal(err)
	}
	created := time.Since(started)
	if err := b.await(ctx, t, set); err != nil {
		t.Fatal(err)
	}
	took := time.Since(started)

	final := c.awaitReleases()
	metrics, err := measure.Scrape(ctx, http.DefaultClient, outboard.Admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	binds := func(outcome string) float64 { return metrics.Sum("outboard_cluster_binds_total", "outcome", outcome) }
	t.Logf("%d pods created in %v, all bound after %v; throttled %.0f times, %.0f Bindings not sent, %.0f of unknown outcome, %.0f allocations written\n%s",
		b.pods, created.Round(100*time.Millisecond), took.Round(100*time.Millisecond), binds("throttled"), binds("not_sent"), binds("unknown"),
		metrics.Sum("outboard_ledger_allocations_total", "outcome", "success"), final)
}

// create creates the pods at a steady rate, or as fast as the API server accepts them.
func (b burst) create(ctx context.Context, set *stage.Stage) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	ticker := time.NewTicker(time.Second / perSecond)
	defer ticker.Stop()
	for i := range b.pods {
		<-ticker.C
		pod := controlplane.PodSpec{Name: fmt.Sprintf("pod-%05d", i), Resources: gpuMemory(int64(1 + i%2))}.Pod()
		group.Go(func() error {
			_, err := set.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// await returns when all pods are bound, and logs how many are every 30 s.
func (b burst) await(ctx context.Context, t *testing.T, set *stage.Stage) error {
	bound, started, logged := 0, time.Now(), time.Now()
	for {
		list, err := set.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			return fmt.Errorf("%d of %d pods were bound: %w", bound, b.pods, err)
		}
		if bound = len(list.Items); bound == b.pods {
			return nil
		}
		if time.Since(logged) > 30*time.Second {
			logged = time.Now()
			t.Logf("%4.0fs  %d of %d pods are bound", time.Since(started).Seconds(), bound, b.pods)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods are bound: %w", bound, b.pods, context.Cause(ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}
