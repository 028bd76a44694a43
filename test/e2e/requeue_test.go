package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
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
)

const requeuesNothing = "requeue: {perSecond: 0}\n"

// calm is how long nothing must happen before the tests assume that nothing will, for kube-scheduler must see what has happened. In these
// tests it retries a pod after a second, or not at all.
const calm = 3 * time.Second

// idle reports whether kube-scheduler waits for events: all of its pods that are pending are in the queue of those that fit nowhere, so it
// tries none now, and will try none after a backoff.
func (th *theater) idle() bool {
	th.t.Helper()
	metrics, err := measure.Scrape(th.ctx, th.scheduled.Client(), th.scheduled.URL()+"/metrics")
	if err != nil {
		th.t.Fatal(err)
	}
	list, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,spec.schedulerName!=nobody"})
	if err != nil {
		th.t.Fatal(err)
	}
	const pods = "scheduler_pending_pods"
	sleeping := int(metrics.Sum(pods, "queue", "unschedulable"))
	return sleeping == len(list.Items) && sleeping == int(metrics.Sum(pods, "", ""))
}

// attempts returns how many filter calls Outboard received for the pod.
func (th *theater) attempts(o *stage.Outboard, pod string) int {
	th.t.Helper()
	n := 0
	for _, d := range th.explain(o, pod).Decisions {
		if d.Verb == "filter" {
			n++
		}
	}
	return n
}

// asleep waits until kube-scheduler has not retried the pod for a while, and returns the number of attempts.
func (th *theater) asleep(o *stage.Outboard, pod string) int {
	th.t.Helper()
	n, since := -1, time.Now()
	th.eventually(pod+" is left alone", func() bool {
		if now := th.attempts(o, pod); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > calm && th.idle()
	})
	return n
}

// unhealthy is the data that a device plugin writes about GPU 0 of the node.
func (th *theater) unhealthy(node string) *corev1.ConfigMap {
	th.t.Helper()
	health := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "unhealthy-gpu-" + node}, Data: map[string]string{"gpus": "0"}}
	if _, err := th.Client.CoreV1().ConfigMaps("kube-system").Create(th.ctx, health, metav1.CreateOptions{}); err != nil {
		th.t.Fatal(err)
	}
	return health
}

// heal marks the GPU as healthy, which is not an event for kube-scheduler.
func (th *theater) heal(health *corev1.ConfigMap) {
	th.t.Helper()
	if err := th.Client.CoreV1().ConfigMaps("kube-system").Delete(th.ctx, health.Name, metav1.DeleteOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

func (th *theater) pod(name string) *corev1.Pod {
	th.t.Helper()
	pod, err := th.Client.CoreV1().Pods("default").Get(th.ctx, name, metav1.GetOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	return pod
}

// gpushareIgnored is gpushareScheduler, but only Outboard counts the memory.
func gpushareIgnored(o *stage.Outboard) string {
	return strings.ReplaceAll(gpushareScheduler(o), "ignoredByScheduler: false", "ignoredByScheduler: true")
}

// A GPU becomes healthy. The pod that needs it is retried once, and bound; a pod that still fits on no node is not patched.
// Without requeuing, the first stays pending.
func TestRequeueWhenAGPUIsHealthy(t *testing.T) {
	t.Parallel()
	for name, requeue := range map[string]string{"requeued": "", "not requeued": requeuesNothing} {
		t.Run(name, func(t *testing.T) {
			th := open(t)
			th.nodes(gpus("gpu-node", 2, 16))
			health := th.unhealthy("gpu-node")
			o := th.outboard(gpushare + requeue)
			th.scheduler(gpushareIgnored(o))
			th.bound(gpuPod("first", 14))
			waits, large := th.place(gpuPod("waits", 5)), th.place(gpuPod("large", 17))
			if waits.Waiting == "" || large.Waiting == "" {
				t.Fatalf("bound to %q and %q", waits.Pod.Spec.NodeName, large.Pod.Spec.NodeName)
			}
			tried := th.asleep(o, "waits")
			th.asleep(o, "large")
			before := th.pod("large")
			th.heal(health)
			healed := time.Now()
			if requeue != "" {
				th.eventually("Outboard knows that the GPU is healthy", func() bool { return th.explainPending(o, "waits").Now[0].Fit == 1 })
				if now := th.asleep(o, "waits"); now != tried || th.pod("waits").Spec.NodeName != "" {
					t.Errorf("without requeuing it had %d more attempts, and is on node %q", now-tried, th.pod("waits").Spec.NodeName)
				}
				return
			}
			bound := th.willBeBound(waits.Pod)
			limit := patchesIn(time.Since(healed))
			if got := th.attempts(o, "waits"); got != tried+1 {
				t.Errorf("it took %d attempts", got-tried)
			}
			if _, err := time.Parse(time.RFC3339Nano, bound.Annotations[cluster.RetryAnnotation]); err != nil {
				t.Error(err)
			}
			th.asleep(o, "large") // binding a pod is an event: kube-scheduler retries the other
			if after := th.pod("large"); after.ResourceVersion != before.ResourceVersion {
				t.Errorf("a pod that fits on no node was changed: %v", after.Annotations)
			}
			if got, err := strconv.Atoi(th.metric(o, "outboard_requeue_patches_total ")); err != nil || got < 1 || got > limit {
				t.Errorf("%d patches, want at most %d (%v)", got, limit, err)
			}
		})
	}
}

// Outboard relies on this: any change of a pending pod, even a patch of its status that only sets
// an annotation, makes kube-scheduler retry that pod once, and no other pod.
func TestAPatchIsOneAttempt(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(oneWeb + requeuesNothing)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter"}))
	th.boundAndSeen(o, web("first"))
	th.place(web("one"))
	th.place(web("other"))
	one, other := th.asleep(o, "one"), th.asleep(o, "other")
	for i := range 3 {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, cluster.RetryAnnotation, i)
		if _, err := th.Client.CoreV1().Pods("default").Patch(th.ctx, "one", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		th.eventually("it is tried again", func() bool { return th.attempts(o, "one") > one+i })
		if got := th.asleep(o, "one"); got != one+i+1 {
			t.Errorf("after %d patches it had %d more attempts", i+1, got-one)
		}
	}
	if got := th.attempts(o, "other"); got != other {
		t.Errorf("the other had %d more attempts", got-other)
	}
}

// abandon creates a pod that no scheduler binds, and a claim of it for 16 of GPU 0 of the node.
func (th *theater) abandon(node string) {
	th.t.Helper()
	abandoned := gpuPod("abandoned", 16)
	abandoned.SchedulerName = "nobody"
	holder := th.create(abandoned)
	l := snapshot.Ledger{
		Resource: string(gpuMem), Node: node,
		Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 16, Claims: []snapshot.LedgerClaim{{Pod: holder.UID, Amount: 16}}}},
		Pods:  []snapshot.LedgerPod{{UID: holder.UID, Namespace: "default", Name: holder.Name, Node: node, At: time.Now(), Token: "abandoned"}},
	}
	spec, err := json.Marshal(l)
	if err != nil {
		th.t.Fatal(err)
	}
	if err := th.write(th.Client.Discovery().RESTClient(), ledger.Name(l.Key()), string(spec)); err != nil {
		th.t.Fatal(err)
	}
}

// The requeuer releases the claim of a pod that stays unbound, and requeues the pod that needs the
// GPU. It may not release the claim until the pod waits for it.
func TestRequeueWhenAClaimIsReleased(t *testing.T) {
	th := open(t)
	roles := th.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(th.ctx, "outboard-claims", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = []rbacv1.PolicyRule{*rules[0].DeepCopy()}
	role.Rules[0].Verbs = []string{"get", "list", "watch"}
	if role, err = roles.Update(th.ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.nodes(gpus("gpu-node", 1, 16))
	o := th.outboard(gpushare + "ledgers: {reclaimAfter: 1s}\n")
	th.scheduler(gpushareIgnored(o))
	th.abandon("gpu-node")
	th.eventually("Outboard knows of the claim", func() bool { return strings.Contains(th.get(o.Admin+"/inspect/gpus"), `"reserved":16`) })
	waits := th.place(gpuPod("waits", 5))
	if waits.Waiting == "" {
		t.Fatal("it does not wait for the claim")
	}
	tried := th.asleep(o, "waits")
	if tried > 2 {
		t.Fatalf("it had %d attempts while the claim existed", tried)
	}
	role.Rules = rules
	if _, err := roles.Update(th.ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.willBeBound(waits.Pod)
	if got := th.attempts(o, "waits"); got != tried+1 {
		t.Errorf("it took %d attempts", got-tried)
	}
	// The metric counts the claim shortly after the watch has shown that it is gone.
	th.eventually("the release is counted", func() bool {
		return th.metric(o, `outboard_ledger_released_claims_total{reason="reclaimed"} `) == "1"
	})
}

var pods = flag.Int("pods", 40, "how many pods TestRequeueOneOfMany and TestRetriedBindKeepsTheGPU create")

// Many pods need one unit that becomes free. One of them is requeued and bound; the requeuer does not
// patch the others.
func TestRequeueOneOfMany(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 1, 1))
	health := th.unhealthy("gpu-node")
	o := th.outboard(gpushare)
	th.scheduler(gpushareIgnored(o))
	group, ctx := errgroup.WithContext(th.ctx)
	group.SetLimit(16)
	for i := range *pods {
		group.Go(func() error {
			_, err := th.Client.CoreV1().Pods("default").Create(ctx, gpuPod(fmt.Sprintf("p%04d", i), 1).Pod(), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	th.eventually("all pods are pending", func() bool { return th.metric(o, "outboard_requeue_pending_pods ") == strconv.Itoa(*pods) })
	th.quiet(o)
	patched := th.patchedPods()
	th.heal(health)
	started := time.Now()
	th.eventually("one is bound", func() bool { return th.boundPods() == 1 })
	took := time.Since(started)
	th.quiet(o) // binding a pod is an event: kube-scheduler retries all others
	if got := th.boundPods(); got != 1 {
		t.Errorf("%d pods are bound", got)
	}
	patches, limit := th.patchedPods()-patched, patchesIn(took)
	if patches < 1 || patches > limit {
		t.Errorf("%d pods were patched, want at most %d", patches, limit)
	}
	if got := th.metric(o, "outboard_requeue_patches_total "); got != strconv.Itoa(patches) {
		t.Errorf("the metric has %s patches, and the API server got %d", got, patches)
	}
	t.Logf("bound after %v, with %d patches; evaluating took %s s", took, patches, th.metric(o, "outboard_requeue_evaluation_seconds_total "))
}

// patchesIn returns the maximum number of patches until a pod that fits is bound: one, and another for each second that
// kube-scheduler took to retry it.
func patchesIn(took time.Duration) int { return 1 + int(took/time.Second) }

// quiet waits until kube-scheduler has made no call for a while.
func (th *theater) quiet(o *stage.Outboard) {
	th.t.Helper()
	calls, since := "", time.Now()
	th.eventually("kube-scheduler stops asking", func() bool {
		if now := th.metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/gpushare-scheduler",verb="filter"} `); now != calls {
			calls, since = now, time.Now()
		}
		return time.Since(since) > calm && th.idle()
	})
}

// patchedPods returns the number of pods that Outboard patched to requeue them.
func (th *theater) patchedPods() int {
	th.t.Helper()
	list, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	patched := 0
	for _, pod := range list.Items {
		if pod.Annotations[cluster.RetryAnnotation] != "" {
			patched++
		}
	}
	return patched
}

func (th *theater) boundPods() int {
	th.t.Helper()
	list, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		th.t.Fatal(err)
	}
	return len(list.Items)
}

// The backoff grows for a pod that fits for Outboard and not for kube-scheduler.
func TestRequeueFails(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 1, 16))
	health := th.unhealthy("gpu-node")
	o := th.outboard(gpushare)
	s := th.scheduler(gpushareIgnored(o))
	th.place(gpuPod("waits", 5))
	th.asleep(o, "waits")
	th.cordon("gpu-node", true)
	tried := th.asleep(o, "waits")
	before := th.tries(s)
	th.heal(health)
	patches := func() int {
		n, err := strconv.Atoi(th.metric(o, "outboard_requeue_patches_total "))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	th.eventually("it was requeued three times", func() bool { return patches() >= 3 })
	why, err := exec.CommandContext(th.ctx, th.Binary(), "explain", "waits", "--admin", o.Admin).CombinedOutput()
	if told := regexp.MustCompile(`(?m)^  pending since \S+; requeues: [0-9]+, last at \S+$`); err != nil || !told.Match(why) {
		t.Errorf("%v\n%s", err, why)
	}
	if got := th.attempts(o, "waits"); got != tried {
		t.Errorf("Outboard got %d calls", got-tried)
	}
	if got := th.tries(s) - before; got > patches() {
		t.Errorf("%d attempts after %d patches", got, patches())
	}
	th.cordon("gpu-node", false) // an event: kube-scheduler retries the pod without a patch
	th.willBeBound(th.pod("waits"))
}

// tries returns how many scheduling attempts kube-scheduler has made for all pods.
func (th *theater) tries(s *controlplane.Scheduler) int {
	th.t.Helper()
	metrics, err := measure.Scrape(th.ctx, s.Client(), s.URL()+"/metrics")
	if err != nil {
		th.t.Fatal(err)
	}
	return int(metrics.Sum("scheduler_schedule_attempts_total", "", ""))
}

// A file reports that a machine has cooled down. The pod that needs it is bound without any event in the cluster.
func TestRequeueWhenASignalChanges(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	write := func(text string) {
		if err := th.WriteFile("temperatures.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("a: 95\n")
	o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- {name: temperature, file: {path: temperatures.yaml}}
profiles:
- policies:
  - type: HardwareHealth
    config:
      whenStale: Reject
      rules: [{name: hot, signal: {name: temperature, above: 85}, reject: true}]
`)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter"}))
	waits := th.place(controlplane.PodSpec{Name: "waits"})
	if waits.Waiting == "" {
		t.Fatal("it does not wait until the machine has cooled down")
	}
	tried := th.asleep(o, "waits")
	write("a: 60\n")
	th.willBeBound(waits.Pod)
	if got := th.attempts(o, "waits"); got != tried+1 {
		t.Errorf("it took %d attempts", got-tried)
	}
}

// Without the permission to patch the status of pods, all other functions work, and a log line
// shows the permission.
func TestRequeueWithoutPermission(t *testing.T) {
	th := open(t)
	roles := th.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(th.ctx, "outboard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "patch") })
	if _, err := roles.Update(th.ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.nodes(gpus("gpu-node", 2, 16))
	health := th.unhealthy("gpu-node")
	o := th.outboard(gpushare)
	th.scheduler(gpushareIgnored(o))
	th.bound(gpuPod("first", 14))
	waits := th.place(gpuPod("waits", 5))
	th.asleep(o, "waits")
	th.heal(health)
	th.eventually("the API server has refused", func() bool {
		return th.metric(o, `outboard_requeue_pods_total{outcome="error"} `) == "1"
	})
	th.logs(o, "grant the verb patch on pods/status")
	th.bound(gpuPod("second", 2)) // which is an event
	th.willBeBound(waits.Pod)
	if got := th.metric(o, "outboard_requeue_patches_total "); got != "0" {
		t.Errorf("%s patches", got)
	}
}
