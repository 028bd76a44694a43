package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/test/controlplane"
)

const kindsConfig = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {shutdownDelay: 0s, insecure: true}
clientConnection: {kubeconfig: %q, qps: 1000}
ledgers: {reclaimAfter: %s}
log: {level: Info}
profiles:
- managedResources:
  - {name: aliyun.com/gpu-mem}
  - {name: aliyun.com/gpu-count}
  - {name: example.com/fpga}
  - {name: example.com/tool, ignoredByScheduler: true}
  policies:
  - type: GPUMemory
  - {type: Devices, config: {resource: example.com/fpga, units: Numbered}}
  - {type: Licenses, config: {features: [{name: tool, resource: example.com/tool, seats: %d}]}}
`

const kindsScheduler = `
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
  preemptVerb: preempt
  bindVerb: bind
  weight: 1
  nodeCacheCapable: true
  httpTimeout: 5s
  managedResources:
  - {name: aliyun.com/gpu-mem}
  - {name: aliyun.com/gpu-count}
  - {name: example.com/fpga}
  - {name: example.com/tool, ignoredByScheduler: true}
`

// kinds are the kinds of pods: those that share a GPU, that have one or two whole GPUs or devices, seats of a license, or several of these,
// and important ones, for which kube-scheduler evicts others. CPU makes it do so: it counts GPUs and devices for each node only.
var kinds = []struct {
	name      string
	resources map[string]string
	cpu       string
	important bool
}{
	{"shared", map[string]string{memoryResource: "6"}, "1", false},
	{"whole", map[string]string{countResource: "1"}, "1", false},
	{"seat", map[string]string{seatResource: "2"}, "1", false},
	{"shared-and-seat", map[string]string{memoryResource: "9", seatResource: "1"}, "1", false},
	{"device", map[string]string{deviceResource: "1"}, "1", false},
	{"two-devices", map[string]string{deviceResource: "2"}, "1", false},
	{"shared-and-device", map[string]string{memoryResource: "6", deviceResource: "1"}, "1", false},
	{"two-whole", map[string]string{countResource: "2"}, "1", false},
	{"important", map[string]string{memoryResource: "12"}, "4", true},
	{"important-seat", map[string]string{countResource: "1", seatResource: "1"}, "4", true},
	{"important-device", map[string]string{deviceResource: "2"}, "4", true},
}

var kindsScale = scale{
	nodes: 3, cards: 4, pods: 110, waiting: 33, stay: time.Second, calm: time.Second,
	randomKills: 2, killsPerPoint: 1, longestHold: time.Second,
	reclaimAfter: 2 * time.Second, report: 5 * time.Second, patience: 10 * time.Minute, kinds: true,
}

// crowd creates pods of all kinds, and resizes and deletes those that are bound.
type crowd struct {
	*scene
	goOn    func() bool
	created int
	leave   map[string]time.Time // when to delete each pod that is bound
	resized map[string]bool
	bound   map[string]int // by kind
}

func (c *scene) crowd(goOn func() bool) (*crowd, error) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "important"}, Value: 1000}
	if _, err := c.Client.SchedulingV1().PriorityClasses().Create(c.ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return &crowd{scene: c, goOn: goOn, leave: map[string]time.Time{}, resized: map[string]bool{}, bound: map[string]int{}}, nil
}

// run returns when it has created enough pods, and each has been bound or evicted.
func (c *crowd) run(ctx context.Context) error {
	for {
		done, err := c.step(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %v", c, context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *crowd) step(ctx context.Context) (done bool, err error) {
	list, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	now, waiting := time.Now(), 0
	var todo []func() error
	for i := range list.Items {
		pod := &list.Items[i]
		leave, seen := c.leave[pod.Name]
		switch {
		case pod.Spec.NodeName == "":
			waiting++
		case !seen:
			c.bound[pod.Labels["kind"]]++
			c.leave[pod.Name] = now.Add(c.scale.stay/2 + rand.N(c.scale.stay))
		case now.After(leave):
			todo = append(todo, func() error { return controlplane.DeletePod(ctx, c.Client, pod) })
		case !c.resized[pod.Name] && pod.DeletionTimestamp == nil && rand.IntN(4) == 0:
			c.resized[pod.Name] = true
			todo = append(todo, func() error { return c.resize(ctx, pod) })
		}
	}
	wanted := c.created < c.scale.pods || c.goOn()
	for ; wanted && waiting < c.scale.waiting && c.created < 10*c.scale.pods; waiting++ {
		kind := kinds[c.created%len(kinds)]
		pod := controlplane.PodSpec{
			Name: fmt.Sprintf("%s-%04d", kind.name, c.created), CPU: kind.cpu, Resources: kind.resources, Labels: map[string]string{"kind": kind.name},
			SchedulerName: schedulerName(rand.IntN(schedulers)),
		}
		if kind.important {
			pod.PriorityClass = "important"
		}
		c.created++
		todo = append(todo, func() error {
			for { // each pod exists, unless ctx has ended
				_, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod.Pod(), metav1.CreateOptions{})
				if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	var group errgroup.Group
	group.SetLimit(16)
	for _, do := range todo {
		group.Go(do)
	}
	err = group.Wait() // of a pod that is gone, or is not known to be bound
	return !wanted && waiting == 0, err
}

// resize doubles or halves the CPU of the pod. Its allocations stay as they are: they are of extended resources, and Kubernetes resizes CPU and
// memory only.
func (c *crowd) resize(ctx context.Context, pod *corev1.Pod) error {
	cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"%dm"}}}]}}`, []int64{cpu / 2, cpu * 2}[rand.IntN(2)])
	_, err := c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	return err
}

func (c *crowd) String() string { return fmt.Sprintf("%d pods created, bound: %v", c.created, c.bound) }

// Whole GPUs, shares of GPUs, devices and seats of a license are never allocated above what there is, while kube-schedulers evict pods for
// important ones, pods are resized, and replicas are killed.
func TestKinds(t *testing.T) {
	s := kindsScale
	if *full {
		s.nodes, s.pods, s.waiting, s.randomKills, s.killsPerPoint, s.patience = 12, 990, 88, 20, 4, 30*time.Minute
	}
	c := open(t, s)
	defer c.checkHistories() // also of a test that fails
	plan := newPlan(c.scale)
	load, err := c.crowd(func() bool { return !plan.ended() })
	if err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(c.ctx)
	beside, end := context.WithCancel(ctx)
	defer end()
	for _, r := range c.replicas {
		troubled, calm := context.WithCancel(ctx)
		group.Go(func() error {
			defer calm()
			return r.torment(ctx, plan, c.scale)
		})
		group.Go(func() error {
			r.disturb(troubled, plan, c.scale.longestHold)
			return nil
		})
	}
	var audits atomic.Int64
	group.Go(func() error { return c.guard(beside, &audits) })
	group.Go(func() error {
		controlplane.FinishDeletions(beside, c.Client)
		return nil
	})
	group.Go(func() error {
		defer end()
		return load.run(ctx)
	})
	if err := group.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, load, plan.report())
	}
	go controlplane.FinishDeletions(c.ctx, c.Client)
	final := c.awaitReleases()
	evictions, resizes := 0, 0
	_, records := c.recorded()
	for _, r := range records {
		if r.evicts() {
			evictions++
		}
		if r.ObjectRef.Subresource == "resize" && !r.unknown() && !r.rejected() {
			resizes++
		}
	}
	t.Logf("%s; %d evictions, %d resizes, %d audits\n%s%s", load, evictions, resizes, audits.Load(), plan.report(), final)
	if len(load.bound) != len(kinds) || evictions == 0 || resizes == 0 {
		t.Error("want pods of all kinds, evictions and resizes")
	}
}
