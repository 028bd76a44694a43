package requeue_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// places is a policy: a node's label is the number of pods that fit.
type places struct {
	asked *atomic.Int64
	slow  *atomic.Int64 // nanoseconds that the evaluation of one node takes
}

var full = &policy.Reason{Code: "Full", Text: "node(s) are full"}

func (p places) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return p, nil
}

func (p places) Filter(n *snapshot.Node) policy.Verdict {
	p.asked.Add(1)
	time.Sleep(time.Duration(p.slow.Load()))
	if room, _ := strconv.Atoi(n.Object.Labels["places"]); len(n.Pods) < room {
		return policy.Verdict{}
	}
	return policy.Verdict{Reason: full}
}

// fakeCluster is a cluster with a kube-scheduler that retries pods only when they change. It runs in a synctest bubble.
type fakeCluster struct {
	t        *testing.T
	engine   *engine.Engine
	observe  func(engine.Request, bool, []string, *decision.Rejection)
	requeuer *requeue.Requeuer
	log      bytes.Buffer
	metrics  *prometheus.Registry
	asked    atomic.Int64 // number of nodes that the policy evaluated
	slow     atomic.Int64

	mu                sync.Mutex
	builder           snapshot.Builder
	view              *snapshot.View
	superseded        chan struct{} // closed when view changes
	pods              map[types.UID]*corev1.Pod
	retried           []string // pods, and when, in seconds since the start
	start             time.Time
	rejectedElsewhere map[string]bool // pods that kube-scheduler itself rejects on every node
	busy              time.Duration   // how long kube-scheduler takes to retry a pod
	err               error           // the error of RetryPod
	unknown           string          // a pod that does not exist
	sample, next      int             // how many nodes kube-scheduler asks about, from which on; 0: all
	refused           map[string]bool // nodes that kube-scheduler itself rejects, for reasons that Outboard does not know
}

// never is the number of requeues per second of a Requeuer that requeues no pods, and 0 the default of the configuration.
const never = -1

// simulate runs the test in a bubble, with a running Requeuer.
func simulate(t *testing.T, perSecond int, test func(*fakeCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCluster{
			t: t, superseded: make(chan struct{}), pods: map[types.UID]*corev1.Pod{}, start: time.Now(),
			rejectedElsewhere: map[string]bool{}, busy: 5 * time.Millisecond, metrics: prometheus.NewRegistry(),
		}
		var err error
		if c.engine, err = engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Places", Policy: places{&c.asked, &c.slow}}}}); err != nil {
			t.Fatal(err)
		}
		c.requeuer = requeue.New(requeue.Options{
			Cluster: c, PerSecond: max(0, cmp.Or(perSecond, 20)), Logger: slog.New(slog.NewTextHandler(&c.log, nil)), Registerer: c.metrics,
			Ignored: func() []corev1.ResourceName { return nil },
		})
		c.observe = c.requeuer.Observer("/", c.engine)
		c.requeuer.Use(map[string]*engine.Engine{"/": c.engine})
		c.change(func(*snapshot.Builder) {})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.requeuer.Run(ctx) })
		test(c)
		cancel()
		running.Wait()
		time.Sleep(time.Hour) // attempts in progress end
	})
}

func (c *fakeCluster) View() *snapshot.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *fakeCluster) Superseded(view *snapshot.View) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if view != c.view {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.superseded
}

func (c *fakeCluster) PodByUID(uid types.UID) *corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[uid]
}

func (c *fakeCluster) RetryPod(_ context.Context, _, name string, uid types.UID) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retried = append(c.retried, fmt.Sprintf("%s@%v", name, time.Since(c.start).Seconds()))
	if c.err != nil {
		return false, c.err
	}
	if c.pods[uid] == nil || name == c.unknown {
		return false, nil
	}
	if !c.rejectedElsewhere[name] {
		time.AfterFunc(c.busy, func() { c.attempt(name) })
	}
	return true, nil
}

func (c *fakeCluster) NominatePod(ctx context.Context, pod *corev1.Pod, node string) (bool, error) {
	nominated := pod.DeepCopy()
	nominated.Status.NominatedNodeName = node
	c.set(nominated)
	c.change(func(b *snapshot.Builder) { b.SetPod(nominated) })
	found, err := c.RetryPod(ctx, pod.Namespace, pod.Name, pod.UID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retried[len(c.retried)-1] += ">" + node
	return found, err
}

// askedAbout returns the nodes that pass kube-scheduler's filters in an attempt, up to the size of the sample.
func (c *fakeCluster) askedAbout(view *snapshot.View) (nodes []*snapshot.Node) {
	all := slices.Collect(view.All())
	for range all {
		n := all[c.next%len(all)]
		c.next++
		if !c.refused[n.Name] && !n.Object.Spec.Unschedulable {
			nodes = append(nodes, n)
		}
		if len(nodes) == c.sample {
			break
		}
	}
	return nodes
}

// change changes the View.
func (c *fakeCluster) change(how func(*snapshot.Builder)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.builder)
	if view := c.builder.View(); view != c.view {
		c.view = view
		close(c.superseded)
		c.superseded = make(chan struct{})
	}
}

// node creates or updates the node with this number of places.
func (c *fakeCluster) node(name string, places int) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"places": fmt.Sprint(places)}}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	c.change(func(b *snapshot.Builder) { b.SetNode(node) })
}

// create creates pods, which kube-scheduler tries immediately.
func (c *fakeCluster) create(names ...string) {
	for i, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(c.start.Add(time.Duration(i) * time.Second)),
		}}
		c.set(pod)
		c.attempt(name)
	}
}

func (c *fakeCluster) set(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[pod.UID] = pod
}

// attempt filters nodes for the pod, first the one to which it is nominated, and binds it where it fits.
func (c *fakeCluster) attempt(name string, unknown ...string) {
	view, pod := c.View(), c.PodByUID(types.UID(name))
	if pod == nil || pod.Spec.NodeName != "" {
		return
	}
	if nominated := view.Node(pod.Status.NominatedNodeName); c.sample > 0 && nominated != nil && !c.refused[nominated.Name] && c.ask(pod, view, []*snapshot.Node{nominated}) {
		return
	}
	c.ask(pod, view, c.askedAbout(view), unknown...)
}

// ask makes a filter call about the nodes, and binds the pod where it fits.
func (c *fakeCluster) ask(pod *corev1.Pod, view *snapshot.View, nodes []*snapshot.Node, unknown ...string) (fits bool) {
	req := engine.Request{Pod: pod, View: view, Nodes: nodes}
	for range unknown {
		req.Nodes = append(req.Nodes, nil)
	}
	var result engine.Result
	if err := c.engine.Filter(context.Background(), req, &result); err != nil {
		c.t.Error(err)
	}
	var why *decision.Rejection
	if len(result.Record.Rejections) > 0 {
		why = &result.Record.Rejections[0]
	}
	c.observe(req, len(result.Kept) > 0, unknown, why)
	if len(result.Kept) > 0 {
		bound := pod.DeepCopy()
		bound.Spec.NodeName = req.Nodes[result.Kept[0]].Name
		c.set(bound)
		c.change(func(b *snapshot.Builder) { b.SetPod(bound) })
	}
	return len(result.Kept) > 0
}

// after waits, and returns which pods were requeued meanwhile, and when.
func (c *fakeCluster) after(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	requeued := strings.Join(c.retried, " ")
	c.retried = nil
	return requeued
}

// metric returns the value of a counter or gauge, with the outcome if that is not "".
func (c *fakeCluster) metric(name, outcome string) float64 {
	families, err := c.metrics.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (outcome == "" || m.Label[0].GetValue() == outcome) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	c.t.Fatalf("there is no metric %s %s", name, outcome)
	return 0
}
