// Package chaos holds tests with many concurrent faults: replicas are killed at the worst moments,
// stop and continue, see the cluster late and lose responses, and the API server restarts, while
// several kube-schedulers bind pods that share GPUs. The findings of `outboard gpus --audit` must
// be correct at the end and at all times.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

var full = flag.Bool("full", false, "with thousands of pods; takes many minutes")

// scale is the size of a test.
type scale struct {
	nodes, cards, pods             int
	waiting                        int           // number of pods waiting at a time
	stay                           time.Duration // about how long a pod stays, at least
	calm                           time.Duration // maximum time without a fault after a replica has come back
	randomKills                    int
	killsPerPoint                  int
	killsPerRarePoint              int
	freezes                        int
	freeze, longestHold            time.Duration
	restartAPIServer               bool
	reclaimAfter, report, patience time.Duration
	kinds                          bool // pods of all kinds, as in TestKinds; else pods that share GPUs
}

var (
	small = scale{
		nodes: 6, cards: 4, pods: 150, waiting: 30, stay: time.Second, calm: time.Second,
		randomKills: 4, killsPerPoint: 1, freezes: 1, freeze: 5 * time.Second, longestHold: time.Second,
		reclaimAfter: 2 * time.Second, report: 5 * time.Second, patience: 8 * time.Minute,
	}
	large = scale{
		nodes: 40, cards: 8, pods: 3000, waiting: 120, stay: 4 * time.Second, calm: 6 * time.Second,
		randomKills: 50, killsPerPoint: 8, killsPerRarePoint: 3, freezes: 2, freeze: 20 * time.Second,
		longestHold: 3 * time.Second, restartAPIServer: true,
		reclaimAfter: 5 * time.Second, report: 10 * time.Second, patience: 55 * time.Minute,
	}
)

// schedulers is how many kube-schedulers there are, each with its own pods.
const schedulers = 2

func schedulerName(i int) string { return fmt.Sprintf("chaos-%d", i) }

func nodeName(i int) string { return fmt.Sprintf("node-%02d", i) }

// scene is a cluster with faults.
type scene struct {
	*stage.Stage
	t        *testing.T
	ctx      context.Context
	log      auditLog // of the API server
	observed []observation
	scale    scale
	replicas []*replica
	service  *forwarder // in front of them
}

const outboardConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {shutdownDelay: 0s, insecure: true}
clientConnection: {kubeconfig: %q, qps: 1000}
ledgers: {reclaimAfter: %s}
log: {level: Info}
profiles:
- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
  policies: [{type: GPUMemory}]
`

const schedulerConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 1000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles: [{schedulerName: %s}]
extenders:
- urlPrefix: http://%s
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true
  httpTimeout: 5s
  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
`

// open sets up nodes, two replicas, and the schedulers, which connect to the replicas as through a
// Service.
func open(t *testing.T, s scale) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.patience)
	t.Cleanup(cancel)
	log := newAuditLog(t)
	set, err := stage.Set(ctx, stage.Options{ControlPlane: log.options()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &scene{Stage: set, t: t, ctx: ctx, log: log, scale: s}
	var nodes []*corev1.Node
	for i := range s.nodes {
		nodes = append(nodes, controlplane.NodeSpec{Name: nodeName(i), Resources: map[string]string{
			countResource: fmt.Sprint(s.cards), memoryResource: fmt.Sprint(s.cards * cardSize), deviceResource: fmt.Sprint(s.cards),
		}}.Node())
	}
	if err := controlplane.CreateNodes(ctx, set.Client, nodes...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.replicas = append(c.replicas, c.replica())
	}
	c.service = forward(t, c.ready)
	for i := range schedulers {
		config := fmt.Sprintf(schedulerConfig, schedulerName(i), c.service.Address())
		if s.kinds {
			config = fmt.Sprintf(kindsScheduler, schedulerName(i), c.service.Address())
		}
		if _, err := set.StartScheduler(ctx, controlplane.SchedulerOptions{Config: config}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// replica starts a replica with its own network to the API server.
func (c *scene) replica() *replica {
	c.t.Helper()
	user, err := c.AddUser("outboard")
	if err != nil {
		c.t.Fatal(err)
	}
	r := &replica{api: newAPIServer(c.t, user.Config)}
	address := []string{r.api.Listener.Addr().String()}
	r.network = forward(c.t, func() []string { return address })
	kubeconfig, err := clientcmd.LoadFromFile(user.Kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = "https://"+r.network.Address(), r.api.CA()
	}
	if err := clientcmd.WriteToFile(*kubeconfig, user.Kubeconfig); err != nil {
		c.t.Fatal(err)
	}
	config := fmt.Sprintf(outboardConfig, user.Kubeconfig, c.scale.reclaimAfter)
	if c.scale.kinds {
		config = fmt.Sprintf(kindsConfig, user.Kubeconfig, c.scale.reclaimAfter, allSeats)
	}
	if r.Outboard, err = c.StartOutboard(c.ctx, config); err != nil {
		c.t.Fatal(err)
	}
	r.address = strings.TrimPrefix(r.URL, "http://")
	return r
}

// ready returns the addresses of the replicas to which a Service would send calls.
func (c *scene) ready() []string {
	var addresses []string
	for _, r := range c.replicas {
		if !r.away.Load() {
			addresses = append(addresses, r.address)
		}
	}
	return addresses
}

// audit runs `outboard gpus --audit`.
func (c *scene) audit(args ...string) ([]audit.Finding, error) {
	args = append([]string{"gpus", "--audit", "--kubeconfig", c.Kubeconfig(), "--recheck=0", "-o=json"}, args...)
	cmd := exec.CommandContext(c.ctx, c.Binary(), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var status *exec.ExitError
	if err != nil && (!errors.As(err, &status) || status.ExitCode() != 1) {
		return nil, fmt.Errorf("audit: %w: %s", err, stderr.Bytes())
	}
	report := new(audit.Report)
	if err := json.Unmarshal(out, report); err != nil {
		return nil, fmt.Errorf("audit: %w: %s", err, out)
	}
	if failed := err != nil; failed == report.OK() {
		return nil, fmt.Errorf("audit: %v, and it says: %s", err, out)
	}
	return report.Findings, nil
}

func overallocated(findings []audit.Finding) []audit.Finding {
	var found []audit.Finding
	for _, f := range findings {
		if f.Kind == audit.Overallocated {
			found = append(found, f)
		}
	}
	return found
}

// guard audits every second until ctx ends, and counts the audits. Overallocation is an error.
func (c *scene) guard(ctx context.Context, audits *atomic.Int64) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		findings, err := c.audit()
		if err != nil {
			continue // the API server is unreachable
		}
		audits.Add(1)
		if found := overallocated(findings); len(found) > 0 {
			return fmt.Errorf("overallocated, %d times: %v", len(found), found)
		}
	}
}

func TestChaos(t *testing.T) {
	s := small
	if *full {
		s = large
	}
	c := open(t, s)
	defer c.checkHistories() // also of a test that fails
	plan := newPlan(s)
	load := newLoad(c.Client, s, func() bool { return !plan.ended() })
	started := time.Now()
	var audits atomic.Int64

	group, ctx := errgroup.WithContext(c.ctx)
	beside, end := context.WithCancel(ctx)
	defer end()
	restarted := make(chan struct{})
	group.Go(func() error {
		defer close(restarted)
		return c.restartAPIServer(ctx, plan)
	})
	for _, r := range c.replicas {
		troubled, calm := context.WithCancel(ctx)
		group.Go(func() error {
			defer calm()
			return r.torment(ctx, plan, s)
		})
		group.Go(func() error {
			r.disturb(troubled, plan, s.longestHold)
			return nil
		})
	}
	group.Go(func() error { return c.guard(beside, &audits) })
	group.Go(func() error {
		load.abandon(beside, c.service.Address(), 3*s.reclaimAfter+10*time.Second)
		return nil
	})
	group.Go(func() error {
		c.tell(beside, started, load, plan)
		return nil
	})
	group.Go(func() error {
		defer end()
		err := load.run(ctx)
		<-restarted
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, load.status(), plan.report())
	}
	took := time.Since(started)
	if audits.Load() == 0 {
		t.Error("no audit on the way had a result")
	}
	final := c.awaitReleases()
	takenBack, err := load.takenBack(c.ctx)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s in %v, %.1f bindings/s\n%s%d audits on the way found nothing overallocated; at the end:\n"+
		"%d pods that nobody tried to bind again had lost an allocation\n%s",
		load.status(), took.Round(time.Second), float64(load.bound)/took.Seconds(), plan.report(), audits.Load(), takenBack, final)
	c.checkGuests(load)
}

// restartAPIServer restarts the API server during the test.
func (c *scene) restartAPIServer(ctx context.Context, p *plan) error {
	if !c.scale.restartAPIServer {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(45 * time.Second):
	}
	p.count("restart of the API server")
	if err := c.RestartAPIServer(ctx); err != nil {
		return err
	}
	for { // until ledgers are served: what writes without a response have left
		err := c.observe()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tell logs the progress.
func (c *scene) tell(ctx context.Context, started time.Time, l *load, p *plan) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.scale.report):
			c.t.Logf("%4.0fs  %s; %s", time.Since(started).Seconds(), l.status(), p.status())
		}
	}
}

// awaitReleases waits until replicas have released unneeded allocations: then the audit must find
// nothing. It returns the output of the audit.
func (c *scene) awaitReleases() string {
	c.t.Helper()
	// Replicas release allocations of deleted pods within two checks, 5 s apart, and allocations of
	// pods that stay unbound a while later.
	for until := time.Now().Add(c.scale.reclaimAfter + 3*time.Minute); ; { // much longer than it takes on a slow machine
		findings, err := c.audit()
		switch {
		case err == nil && len(findings) == 0:
			cmd := exec.CommandContext(c.ctx, c.Binary(), "gpus", "--audit", "--kubeconfig", c.Kubeconfig())
			out, err := cmd.CombinedOutput()
			if err != nil {
				c.t.Errorf("%v: %s", err, out)
			}
			return strings.TrimSpace(string(out))
		case len(overallocated(findings)) > 0, time.Now().After(until), c.ctx.Err() != nil:
			c.t.Fatalf("audit: %v: %v", findings, err)
		}
		time.Sleep(time.Second)
	}
}

// checkGuests checks the remaining pods: there must be some, bound unless no GPU is large enough.
func (c *scene) checkGuests(l *load) {
	c.t.Helper()
	bound := 0
	for name, g := range l.guests {
		if !g.fits() && g.bound {
			c.t.Errorf("%s is bound, and requests %d of GPUs with %d", name, g.memory, cardSize)
		}
		if g.bound && !g.gone {
			bound++
		}
	}
	if bound == 0 {
		c.t.Error("no pod is left to audit")
	}
}
