package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

const requeuesNothing = "requeue: {perSecond: 0}\n"

// calm is how long nothing must happen before the tests assume that nothing will, for kube-scheduler must see what has happened. In these
// tests it retries a pod after a second, or not at all.
const calm = 3 * time.Second

// idle reports whether kube-scheduler waits for events: all of its pods that are pending are in the queue of those that fit nowhere, so it
// tries none now, and will try none after a backoff.
func idle(th *theater.Theater) bool {
	th.T.Helper()
	metrics, err := measure.Scrape(th.Ctx, th.Scheduled.Client(), th.Scheduled.URL()+"/metrics")
	if err != nil {
		th.T.Fatal(err)
	}
	list, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,spec.schedulerName!=nobody"})
	if err != nil {
		th.T.Fatal(err)
	}
	const pods = "scheduler_pending_pods"
	sleeping := int(metrics.Sum(pods, "queue", "unschedulable"))
	return sleeping == len(list.Items) && sleeping == int(metrics.Sum(pods, "", ""))
}

// attempts returns how many filter calls Outboard received for the pod.
func attempts(th *theater.Theater, o *stage.Outboard, pod string) int {
	th.T.Helper()
	n := 0
	for _, d := range th.Explain(o, pod).Decisions {
		if d.Verb == "filter" {
			n++
		}
	}
	return n
}

// asleep waits until kube-scheduler has not retried the pod for a while, and returns the number of attempts.
func asleep(th *theater.Theater, o *stage.Outboard, pod string) int {
	th.T.Helper()
	n, since := -1, time.Now()
	th.Eventually(pod+" is left alone", func() bool {
		if now := attempts(th, o, pod); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > calm && idle(th)
	})
	return n
}

// unhealthy is the data that a device plugin writes about GPU 0 of the node.
func unhealthy(th *theater.Theater, node string) *corev1.ConfigMap {
	th.T.Helper()
	health := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "unhealthy-gpu-" + node}, Data: map[string]string{"gpus": "0"}}
	if _, err := th.Client.CoreV1().ConfigMaps("kube-system").Create(th.Ctx, health, metav1.CreateOptions{}); err != nil {
		th.T.Fatal(err)
	}
	return health
}

// heal marks the GPU as healthy, which is not an event for kube-scheduler.
func heal(th *theater.Theater, health *corev1.ConfigMap) {
	th.T.Helper()
	if err := th.Client.CoreV1().ConfigMaps("kube-system").Delete(th.Ctx, health.Name, metav1.DeleteOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

func podNamed(th *theater.Theater, name string) *corev1.Pod {
	th.T.Helper()
	pod, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, name, metav1.GetOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	return pod
}

// gpushareIgnored is theater.GPUShareScheduler, but only Outboard counts the memory.
func gpushareIgnored(o *stage.Outboard) string {
	return strings.ReplaceAll(theater.GPUShareScheduler(o), "ignoredByScheduler: false", "ignoredByScheduler: true")
}

// A GPU becomes healthy. The pod that needs it is retried once, and bound; a pod that still fits on no node is not patched.
// Without requeuing, the first stays pending.
func TestRequeueWhenAGPUIsHealthy(t *testing.T) {
	t.Parallel()
	for name, requeue := range map[string]string{"requeued": "", "not requeued": requeuesNothing} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(theater.GPUs("gpu-node", 2, 16))
			health := unhealthy(th, "gpu-node")
			o := th.Outboard(theater.GPUShare + requeue)
			th.Scheduler(gpushareIgnored(o))
			th.Bound(theater.GPUPod("first", 14))
			waits, large := th.Placed(theater.GPUPod("waits", 5)), th.Placed(theater.GPUPod("large", 17))
			if waits.Waiting == "" || large.Waiting == "" {
				t.Fatalf("bound to %q and %q", waits.Pod.Spec.NodeName, large.Pod.Spec.NodeName)
			}
			tried := asleep(th, o, "waits")
			asleep(th, o, "large")
			before := podNamed(th, "large")
			heal(th, health)
			healed := time.Now()
			if requeue != "" {
				th.Eventually("Outboard knows that the GPU is healthy", func() bool { return th.ExplainPending(o, "waits").Now[0].Fit == 1 })
				if now := asleep(th, o, "waits"); now != tried || podNamed(th, "waits").Spec.NodeName != "" {
					t.Errorf("without requeuing it had %d more attempts, and is on node %q", now-tried, podNamed(th, "waits").Spec.NodeName)
				}
				return
			}
			bound := th.WillBeBound(waits.Pod)
			limit := patchesIn(time.Since(healed))
			if got := attempts(th, o, "waits"); got != tried+1 {
				t.Errorf("it took %d attempts", got-tried)
			}
			if _, err := time.Parse(time.RFC3339Nano, bound.Annotations[cluster.RetryAnnotation]); err != nil {
				t.Error(err)
			}
			asleep(th, o, "large") // binding a pod is an event: kube-scheduler retries the other
			if after := podNamed(th, "large"); after.ResourceVersion != before.ResourceVersion {
				t.Errorf("a pod that fits on no node was changed: %v", after.Annotations)
			}
			if got, err := strconv.Atoi(th.Metric(o, "outboard_requeue_patches_total ")); err != nil || got < 1 || got > limit {
				t.Errorf("%d patches, want at most %d (%v)", got, limit, err)
			}
		})
	}
}

// Outboard relies on this: any change of a pending pod, even a patch of its status that only sets
// an annotation, makes kube-scheduler retry that pod once, and no other pod.
func TestAPatchIsOneAttempt(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	o := th.Outboard(theater.OneWeb + requeuesNothing)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter"}))
	th.BoundAndSeen(o, web("first"))
	th.Placed(web("one"))
	th.Placed(web("other"))
	one, other := asleep(th, o, "one"), asleep(th, o, "other")
	for i := range 3 {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, cluster.RetryAnnotation, i)
		if _, err := th.Client.CoreV1().Pods("default").Patch(th.Ctx, "one", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		th.Eventually("it is tried again", func() bool { return attempts(th, o, "one") > one+i })
		if got := asleep(th, o, "one"); got != one+i+1 {
			t.Errorf("after %d patches it had %d more attempts", i+1, got-one)
		}
	}
	if got := attempts(th, o, "other"); got != other {
		t.Errorf("the other had %d more attempts", got-other)
	}
}

// abandon creates a pod that no scheduler binds, and an allocation of it for 16 of GPU 0 of the node.
func abandon(th *theater.Theater, node string) {
	th.T.Helper()
	abandoned := theater.GPUPod("abandoned", 16)
	abandoned.SchedulerName = "nobody"
	holder := th.Create(abandoned)
	l := snapshot.Ledger{
		Resource: string(theater.GPUMem), Node: node,
		Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 16, Allocations: []snapshot.LedgerAllocation{{Pod: holder.UID, Amount: 16}}}},
		Pods:  []snapshot.LedgerPod{{UID: holder.UID, Namespace: "default", Name: holder.Name, Node: node, At: time.Now(), Token: "abandoned"}},
	}
	spec, err := json.Marshal(l)
	if err != nil {
		th.T.Fatal(err)
	}
	if err := writeLedger(th, th.Client.Discovery().RESTClient(), ledger.Name(l.Key()), string(spec)); err != nil {
		th.T.Fatal(err)
	}
}

// The requeuer releases the allocation of a pod that stays unbound, and requeues the pod that needs the
// GPU. It may not release the allocation until the pod waits for it.
func TestRequeueWhenAnAllocationIsReleased(t *testing.T) {
	th := theater.Open(t)
	roles := th.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(th.Ctx, "outboard-allocations", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = []rbacv1.PolicyRule{*rules[0].DeepCopy()}
	role.Rules[0].Verbs = []string{"get", "list", "watch"}
	if role, err = roles.Update(th.Ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.Nodes(theater.GPUs("gpu-node", 1, 16))
	o := th.Outboard(theater.GPUShare + "ledgers: {reclaimAfter: 1s}\n")
	th.Scheduler(gpushareIgnored(o))
	abandon(th, "gpu-node")
	th.Eventually("Outboard knows of the allocation", func() bool { return strings.Contains(th.Get(o.Admin+"/inspect/gpus"), `"reserved":16`) })
	waits := th.Placed(theater.GPUPod("waits", 5))
	if waits.Waiting == "" {
		t.Fatal("it does not wait for the allocation")
	}
	tried := asleep(th, o, "waits")
	if tried > 2 {
		t.Fatalf("it had %d attempts while the allocation existed", tried)
	}
	role.Rules = rules
	if _, err := roles.Update(th.Ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.WillBeBound(waits.Pod)
	if got := attempts(th, o, "waits"); got != tried+1 {
		t.Errorf("it took %d attempts", got-tried)
	}
	// The metric counts the allocation shortly after the watch has shown that it is gone.
	th.Eventually("the release is counted", func() bool {
		return th.Metric(o, `outboard_ledger_released_allocations_total{reason="reclaimed"} `) == "1"
	})
}

var pods = flag.Int("pods", 40, "how many pods TestRequeueOneOfMany and TestRetriedBindKeepsTheGPU create")

// Many pods need one unit that becomes free. One of them is requeued and bound; the requeuer does not
// patch the others.
func TestRequeueOneOfMany(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("gpu-node", 1, 1))
	health := unhealthy(th, "gpu-node")
	o := th.Outboard(theater.GPUShare)
	th.Scheduler(gpushareIgnored(o))
	group, ctx := errgroup.WithContext(th.Ctx)
	group.SetLimit(16)
	for i := range *pods {
		group.Go(func() error {
			_, err := th.Client.CoreV1().Pods("default").Create(ctx, theater.GPUPod(fmt.Sprintf("p%04d", i), 1).Pod(), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	th.Eventually("all pods are pending", func() bool { return th.Metric(o, "outboard_requeue_pending_pods ") == strconv.Itoa(*pods) })
	quiet(th, o)
	patched := patchedPods(th)
	heal(th, health)
	started := time.Now()
	th.Eventually("one is bound", func() bool { return boundPods(th) == 1 })
	took := time.Since(started)
	quiet(th, o) // binding a pod is an event: kube-scheduler retries all others
	if got := boundPods(th); got != 1 {
		t.Errorf("%d pods are bound", got)
	}
	patches, limit := patchedPods(th)-patched, patchesIn(took)
	if patches < 1 || patches > limit {
		t.Errorf("%d pods were patched, want at most %d", patches, limit)
	}
	if got := th.Metric(o, "outboard_requeue_patches_total "); got != strconv.Itoa(patches) {
		t.Errorf("the metric has %s patches, and the API server got %d", got, patches)
	}
	t.Logf("bound after %v, with %d patches; evaluating took %s s", took, patches, th.Metric(o, "outboard_requeue_evaluation_seconds_total "))
}

// patchesIn returns the maximum number of patches until a pod that fits is bound: one, and another for each second that
// kube-scheduler took to retry it.
func patchesIn(took time.Duration) int { return 1 + int(took/time.Second) }

// quiet waits until kube-scheduler has made no call for a while.
func quiet(th *theater.Theater, o *stage.Outboard) {
	th.T.Helper()
	calls, since := "", time.Now()
	th.Eventually("kube-scheduler stops asking", func() bool {
		if now := th.Metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/gpushare-scheduler",verb="filter"} `); now != calls {
			calls, since = now, time.Now()
		}
		return time.Since(since) > calm && idle(th)
	})
}

// patchedPods returns the number of pods that Outboard patched to requeue them.
func patchedPods(th *theater.Theater) int {
	th.T.Helper()
	list, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	patched := 0
	for _, pod := range list.Items {
		if pod.Annotations[cluster.RetryAnnotation] != "" {
			patched++
		}
	}
	return patched
}

func boundPods(th *theater.Theater) int {
	th.T.Helper()
	list, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		th.T.Fatal(err)
	}
	return len(list.Items)
}
