package extender_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

const gpuIndex = "ALIYUN_COM_GPU_MEM_IDX"

// gpuNode is a node with this many GPUs of 16 GiB.
func gpuNode(name string, gpus int64) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
		"aliyun.com/gpu-mem":   *resource.NewQuantity(16*gpus, resource.DecimalSI),
		"aliyun.com/gpu-count": *resource.NewQuantity(gpus, resource.DecimalSI),
	}}}
}

// sharing is a pod of this priority that requests this much of one GPU.
func sharing(name string, priority int32, gibibytes int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"aliyun.com/gpu-mem": *resource.NewQuantity(gibibytes, resource.DecimalSI)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// on is the pod as it runs on the node, with the GPU.
func on(pod *corev1.Pod, node, gpu string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.NominatedNodeName = node, corev1.PodRunning, ""
	pod.Annotations = map[string]string{gpuIndex: gpu, "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
	return pod
}

func nominatedTo(node string, pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.NominatedNodeName, pod.ResourceVersion = node, "2"
	return pod
}

// failed returns the pod as the kubelet reports it when its containers have ended.
func failed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	return pod
}

func terminating(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return pod
}

// gpuProfile serves GPUMemory with the contents of the cluster.
type gpuProfile struct {
	server
	t       *testing.T
	cluster *fakeCluster
}

func serveGPUProfile(t *testing.T, change func(*gpumemory.Config), pods ...*corev1.Pod) *gpuProfile {
	t.Helper()
	config := gpumemory.Defaults()
	if change != nil {
		change(&config)
	}
	p, err := gpumemory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &fakeCluster{pods: pods}
	return &gpuProfile{cluster: cluster, t: t, server: serve(t, cluster, func(e *engine.Options, o *extender.Options) {
		e.Policies = []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}
		o.Ledgers = newLedgerStore()
	})}
}

func (g *gpuProfile) see(nodes []*corev1.Node, pods ...*corev1.Pod) { g.cluster.see(nodes, pods...) }

// fits returns on which of the nodes the pod fits.
func (g *gpuProfile) fits(pod *corev1.Pod, nodes ...string) string {
	g.t.Helper()
	answer := decode[extenderv1.ExtenderFilterResult](g.t, g.post(g.t, "filter", encode(g.t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})))
	if answer.NodeNames == nil {
		g.t.Fatalf("filter: %+v", answer)
	}
	return strings.Join(*answer.NodeNames, " ")
}

// bind returns the GPU that the pod was bound to, or the error.
func (g *gpuProfile) bind(pod, node string) string {
	g.t.Helper()
	g.cluster.bindings = nil
	answer := decode[extenderv1.ExtenderBindingResult](g.t, g.post(g.t, "bind", encode(g.t, extenderv1.ExtenderBindingArgs{PodName: pod, PodNamespace: "default", PodUID: types.UID(pod), Node: node})))
	if answer.Error != "" {
		return answer.Error
	}
	return "GPU " + g.cluster.bindings[0].Annotations[gpuIndex]
}

// preempt returns the nodes of the response.
func (g *gpuProfile) preempt(pod *corev1.Pod, victims map[string]*extenderv1.MetaVictims) string {
	g.t.Helper()
	return preempted(g.t, g.post(g.t, "preempt", encode(g.t, extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: victims})))
}

// preempted returns the nodes of the response to a preempt call, with their victims.
func preempted(t *testing.T, response string) string {
	t.Helper()
	answer := decode[extenderv1.ExtenderPreemptionResult](t, response)
	var kept []string
	for node, v := range answer.NodeNameToMetaVictims {
		var uids []string
		for _, p := range v.Pods {
			uids = append(uids, p.UID)
		}
		kept = append(kept, fmt.Sprint(node, uids))
	}
	slices.Sort(kept)
	return strings.Join(kept, " ")
}

func metaVictims(uids ...string) *extenderv1.MetaVictims {
	v := new(extenderv1.MetaVictims)
	for _, uid := range uids {
		v.Pods = append(v.Pods, &extenderv1.MetaPod{UID: uid})
	}
	return v
}

// Pods were evicted for important, which is nominated to the node. kube-scheduler's sum over the GPUs (12 + 10 + 8 of 32) lets
// another pod pass; only Outboard knows how much each GPU has left.
func TestNominatedPodKeepsItsGPU(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2)}
	runs := on(sharing("runs", 0, 12), "n", "1")
	important, other, small := nominatedTo("n", sharing("important", 1000, 10)), sharing("other", 0, 8), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, important, other, small)
	g.see(nodes, runs, important)
	if got := g.fits(other, "n"); got != "" {
		t.Error("a pod of lower priority fits where others were evicted for important")
	}
	if got := g.bind("other", "n"); !strings.Contains(got, "does not fit any more: Insufficient GPU Memory in one device") {
		t.Errorf("bind of a pod that passed before: %s", got)
	}
	if got := g.fits(sharing("urgent", 2000, 8), "n"); got != "n" {
		t.Error("a pod of higher priority does not fit")
	}
	if got := g.fits(important, "n"); got != "n" {
		t.Error("important does not fit where it is nominated")
	}
	if got := g.bind("small", "n"); got != "GPU 1" {
		t.Errorf("a pod that fits beside both: %s, want GPU 1", got)
	}
	if got := g.bind("important", "n"); got != "GPU 0" {
		t.Errorf("important: %s, want GPU 0", got)
	}
}

// A pod that fits beside a nominated pod does not get the GPU of that pod, whatever the policy prefers.
func TestReserveLeavesNominatedPodsTheirGPU(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2)}
	runs := on(sharing("runs", 0, 6), "n", "0")
	important, other := nominatedTo("n", sharing("important", 1000, 16)), sharing("other", 0, 8)
	g := serveGPUProfile(t, func(c *gpumemory.Config) { c.GPUSelection = policy.Spread }, important, other)
	g.see(nodes, runs)
	if got := g.bind("other", "n"); got != "GPU 1" {
		t.Fatalf("without a nominated pod: %s, want GPU 1, which has the most memory free", got)
	}
	g = serveGPUProfile(t, func(c *gpumemory.Config) { c.GPUSelection = policy.Spread }, important, other)
	g.see(nodes, runs, important)
	if got := g.bind("other", "n"); got != "GPU 0" {
		t.Errorf("beside a nominated pod that needs GPU 1: %s, want GPU 0", got)
	}
}

// After the response to a preempt call, the pod counts on the node, even before the view shows the nomination, and until the
// pods evicted for it are gone.
func TestPreemptedNodeIsKept(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2), gpuNode("m", 1)}
	low, high := on(sharing("low", 0, 10), "n", "1"), on(sharing("high", 2000, 12), "n", "0")
	important, small := sharing("important", 1000, 16), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, important, small)
	g.see(nodes, low, high)
	if got := g.fits(small, "n"); got != "n" {
		t.Fatal("small does not fit before the preempt call")
	}
	if got := g.preempt(important, map[string]*extenderv1.MetaVictims{"n": metaVictims("low")}); got != "n[low]" {
		t.Fatalf("preempt returns %q", got)
	}
	smaller := sharing("smaller", 0, 5) // does not fit beside high
	step := func(what, want string, pods ...*corev1.Pod) {
		t.Helper()
		g.see(nodes, append(pods, high)...)
		if got := g.fits(smaller, "n"); got != want {
			t.Errorf("%s: a smaller pod fits on %q, want %q", what, got, want)
		}
		if got := g.fits(small, "n"); got != "n" {
			t.Errorf("%s: a pod that fits beside high does not", what)
		}
	}
	step("answered", "", low)
	step("nominated", "", low, nominatedTo("n", important))
	step("being evicted", "", terminating(low), nominatedTo("n", important))
	step("evicted", "", nominatedTo("n", important))
	step("bound", "", on(important, "n", "1"))
	step("gone", "n")
}

// The pod counts on the node that kube-scheduler will choose by the victims of the response, not by those of the request: on n, one more is
// evicted.
func TestPreemptingPodCountsByItsResponse(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, more, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("more-n", 5, 2), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	important, small := sharing("important", 1000, 16), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, important, small)
	g.see(nodes, onN, more, onM)
	if got := g.preempt(important, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[more-n low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	if got := g.fits(small, "n", "m"); got != "n" {
		t.Errorf("small fits on %q, with important on m", got)
	}
}

// A pod that is deleted before kube-scheduler nominates it does not count on any node.
func TestPreemptingPodIsDeleted(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	important, small := sharing("important", 1000, 16), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, important, small)
	g.see(nodes, onN, onM)
	if got := g.preempt(important, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	if got := g.fits(small, "n", "m"); got != "" {
		t.Errorf("small fits on %q before important is deleted", got)
	}
	g.cluster.pods = []*corev1.Pod{small}
	g.see(nodes, onN, onM)
	if got := g.fits(small, "n", "m"); got != "n m" {
		t.Errorf("small fits on %q after important was deleted", got)
	}
}

// kube-scheduler may see a new pod before the watch shows it. The pod counts on the node nevertheless, as the API server
// has it.
func TestPreemptingPodIsNotShownYet(t *testing.T) {
	important, small := sharing("important", 1000, 16), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, small)
	g.cluster.live = important
	g.see([]*corev1.Node{gpuNode("n", 1)}, on(sharing("low", 0, 10), "n", "0"))
	if got := g.preempt(important, map[string]*extenderv1.MetaVictims{"n": metaVictims("low")}); got != "n[low]" {
		t.Fatalf("preempt returns %q", got)
	}
	g.see([]*corev1.Node{gpuNode("n", 1)}) // low is gone, and the nomination is not shown
	if got := g.fits(small, "n"); got != "" {
		t.Errorf("small fits on %q", got)
	}
	g.cluster.pods = append(g.cluster.pods, important)
	g.see([]*corev1.Node{gpuNode("n", 1)})
	if got := g.fits(small, "n"); got != "" {
		t.Errorf("small fits on %q when the watch shows important", got)
	}
}

// If the API server does not respond about such a pod, no pod is evicted.
func TestPreemptingPodIsNotReadable(t *testing.T) {
	important := sharing("important", 1000, 16)
	g := serveGPUProfile(t, nil)
	g.cluster.liveErr = errors.New("no route to host")
	g.see([]*corev1.Node{gpuNode("n", 1)}, on(sharing("low", 0, 10), "n", "0"))
	got := g.post(t, "preempt", encode(t, extenderv1.ExtenderPreemptionArgs{Pod: important, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"n": metaVictims("low")}}))
	if preempted(t, got) != "" || !strings.Contains(got, "no route to host") {
		t.Errorf("preempt returns %s", got)
	}
}

// twoThatPreempt returns two pods that need the GPU of either node, after a preempt call for each.
func twoThatPreempt(t *testing.T) (g *gpuProfile, nodes []*corev1.Node, first, second *corev1.Pod) {
	t.Helper()
	nodes = []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	first, second = sharing("first", 1000, 16), sharing("second", 1000, 16)
	g = serveGPUProfile(t, nil, onM, first, second)
	g.see(nodes, onN, onM)
	victims := map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}
	for _, pod := range []*corev1.Pod{first, second} {
		if got := g.preempt(pod, victims); got != "m[low-m] n[low-n]" {
			t.Fatalf("preempt of %s returns %q", pod.Name, got)
		}
	}
	return g, nodes, first, second
}

// Two pods preempt at the same time, and the view does not show yet to which of two nodes each is nominated. The one that knows its node does
// not evict the pod of the other node, too.
func TestNominatedPodsEvictOnePodEach(t *testing.T) {
	g, _, _, second := twoThatPreempt(t)
	retried := nominatedTo("n", second) // low-n is gone, which the view does not show
	if got := g.fits(retried, "n"); got != "" {
		t.Fatalf("the pod fits on %q", got)
	}
	if got := g.preempt(retried, map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}); got != "" {
		t.Errorf("preempt returns %q", got)
	}
}

// A pod that may be nominated to one of several nodes gets none on which another pod needs the GPU, and of two that are nominated to the same
// node, one fits. "first" comes before "second", and this one before "third", because of their names.
func TestNominatedPodsTakeNoPlaceOfOthers(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2), gpuNode("m", 1)}
	onN, onM, stays := on(sharing("low-n", 0, 16), "n", "0"), on(sharing("low-m", 0, 16), "m", "0"), on(sharing("stays", 2000, 12), "n", "1")
	first, second, third := sharing("first", 1000, 10), sharing("second", 1000, 10), sharing("third", 1000, 10)
	g := serveGPUProfile(t, nil, onM, first, second, third)
	g.see(nodes, onN, onM, stays)
	if got := g.preempt(first, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	retried := nominatedTo("n", third)
	g.see(nodes, onM, stays, nominatedTo("n", second), retried) // low-n is gone
	if got := g.fits(first, "n"); got != "" {
		t.Errorf("first fits on %q, and second is nominated there", got)
	}
	if got := g.fits(retried, "n"); got != "" {
		t.Errorf("third fits on %q, and second is nominated there", got)
	}
	if got := g.fits(nominatedTo("n", second), "n"); got != "n" {
		t.Errorf("second fits on %q, and comes before third", got)
	}
	if got := g.preempt(retried, map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}); got != "m[low-m]" {
		t.Errorf("preempt for third returns %q", got)
	}
}

// The same, if it is not known yet where any of them is nominated.
func TestPodsThatMayBeNominatedTakeNoPlaceOfOthers(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2), gpuNode("m", 2)}
	onN, onM := on(sharing("low-n", 0, 16), "n", "0"), on(sharing("low-m", 0, 16), "m", "0")
	staysN, staysM := on(sharing("stays-n", 2000, 12), "n", "1"), on(sharing("stays-m", 2000, 12), "m", "1")
	first, second, third := sharing("first", 1000, 10), sharing("second", 1000, 10), sharing("third", 1000, 10)
	g := serveGPUProfile(t, nil, first, second, third)
	g.see(nodes, onN, onM, staysN, staysM)
	for _, pod := range []*corev1.Pod{first, second} {
		if got := g.preempt(pod, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[low-n]" {
			t.Fatalf("preempt of %s returns %q", pod.Name, got)
		}
	}
	if got := g.preempt(third, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n")}); got != "n[low-n]" {
		t.Fatalf("preempt of third returns %q", got)
	}
	g.see(nodes, first, second, third, staysN, staysM) // both are gone
	for pod, want := range map[*corev1.Pod]string{first: "", second: "", third: "n"} {
		if got := g.fits(pod, "n", "m"); got != want {
			t.Errorf("%s fits on %q, want %q", pod.Name, got, want)
		}
	}
}

// Of pods with the same priority, those come first that are nominated to this node alone: a pod that may get another node counts in what they
// leave.
func TestPodsNominatedToOneNodeAreFirst(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 3), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 16), "n", "0"), on(sharing("low-m", 0, 16), "m", "0")
	one, two := on(sharing("one", 2000, 10), "n", "1"), on(sharing("two", 2000, 10), "n", "2")
	first, second, small := sharing("first", 1000, 9), sharing("second", 1000, 10), sharing("small", 0, 7)
	g := serveGPUProfile(t, nil, first, second, small)
	g.see(nodes, onN, onM, one, two)
	if got := g.preempt(first, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	g.see(nodes, onM, one, two, nominatedTo("n", second)) // low-n is gone
	if got := g.fits(small, "n"); got != "" {
		t.Errorf("small fits on %q, and leaves second too little", got)
	}
}

// Two pods that may each be nominated to the same nodes do not wait for each other: each is bound to the node that kube-scheduler has chosen,
// also before the watch shows which one that is.
func TestNominatedPodIsBoundBesideOthers(t *testing.T) {
	g, nodes, first, second := twoThatPreempt(t)
	g.see(nodes, first, second) // both are gone
	for pod, node := range map[*corev1.Pod]string{first: "m", second: "n"} {
		if got := g.fits(nominatedTo(node, pod), node); got != node {
			t.Errorf("%s, which is nominated to %s, fits on %q", pod.Name, node, got)
		}
		if got := g.bind(pod.Name, node); got != "GPU 0" {
			t.Errorf("%s is bound to %q", pod.Name, got)
		}
	}
}

// kube-scheduler may have nominated a pod whose copy does not show that yet, and the view may show it.
func TestNominatedPodInAnOlderCopy(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	first, second := sharing("first", 1000, 16), sharing("second", 1000, 16)
	g := serveGPUProfile(t, nil, onM, nominatedTo("n", first), second)
	victims := map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}
	g.see(nodes, onN, onM, nominatedTo("n", first))
	for _, pod := range []*corev1.Pod{first, second} {
		if got := g.preempt(pod, victims); got != "m[low-m] n[low-n]" {
			t.Fatalf("preempt of %s returns %q", pod.Name, got)
		}
	}
	// low-n is gone, which the view does not show.
	if got := g.fits(first, "n"); got != "" {
		t.Fatalf("the pod fits on %q", got)
	}
	if got := g.preempt(first, map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}); got != "" {
		t.Errorf("preempt returns %q", got)
	}
	g.see(nodes, onM, nominatedTo("n", first))
	if got := g.fits(first, "n"); got != "n" {
		t.Errorf("once the view shows that the victim is gone, the pod fits on %q", got)
	}
}

// A pod that kube-scheduler nominates to another node than before counts there, before the watch shows the nomination.
func TestNominatedToAnotherNode(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	pod, small := nominatedTo("n", sharing("important", 1000, 16)), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, pod, small)
	g.see(nodes, onN, onM, pod)
	if got := g.preempt(pod, map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}); got != "m[low-m] n[low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	g.see(nodes, onN, pod) // kube-scheduler has chosen m, and low-m is gone
	if got := g.fits(small, "m"); got != "" {
		t.Errorf("small fits on %q, which is freed for another pod", got)
	}
}

// The effect of a response ends when kube-scheduler nominates the pod elsewhere, or nowhere.
func TestPreemptedNodeIsFreeAgain(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	onN, onM := on(sharing("low-n", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0")
	important, small := sharing("important", 1000, 16), sharing("small", 0, 4)
	g := serveGPUProfile(t, nil, important, small)
	g.see(nodes, onN, onM)
	victims := map[string]*extenderv1.MetaVictims{"n": metaVictims("low-n"), "m": metaVictims("low-m")}
	if got := g.preempt(important, victims); got != "m[low-m] n[low-n]" {
		t.Fatalf("preempt returns %q", got)
	}
	if got := g.fits(small, "n", "m"); got != "" {
		t.Errorf("small fits on %q before the view shows the nomination of important", got)
	}
	if got := g.preempt(sharing("another", 1000, 16), victims); got != "m[low-m] n[low-n]" {
		t.Errorf("a second preempt call returns %q", got)
	}
	g.see(nodes, onN, onM, nominatedTo("m", important), nominatedTo("m", sharing("another", 1000, 16)))
	if got := g.fits(small, "n", "m"); got != "n" {
		t.Errorf("small fits on %q, with both nominated to m", got)
	}
	g.see(nodes, onN, onM)
	if got := g.fits(small, "n", "m"); got != "n m" {
		t.Errorf("small fits on %q, without nominated pods", got)
	}
}

// kube-scheduler retries a nominated pod when it sees that the pods evicted for it are gone, which may be before the view shows
// it. A preempt call evicts no pod on another node for a pod that fits on the node to which it is nominated.
func TestNominatedPodEvictsNoPodElsewhere(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	low, lowM, important := on(sharing("low", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0"), sharing("important", 1000, 16)
	nominated := nominatedTo("n", important)
	onN, onM := map[string]*extenderv1.MetaVictims{"n": metaVictims("low")}, map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}
	for _, tc := range []struct {
		name     string
		answered bool        // whether this replica answered the preempt call that nominated the pod
		view     *corev1.Pod // low as the view shows it; nil: gone
		live     *corev1.Pod // low in the API server; nil: gone
		rejected bool        // whether the filter call before rejected the pod on its node
		want     string
	}{
		{"evicted, and being deleted as the view shows it", true, terminating(low), nil, true, ""},
		{"evicted, and running as the view shows it", true, low, nil, true, ""},
		{"evicted for another replica", false, terminating(low), nil, true, ""},
		{"evicted, and ended, but not gone yet", true, terminating(low), failed(terminating(low)), true, ""},
		{"deleted by others, and more important", false, terminating(on(sharing("high", 2000, 10), "n", "0")), nil, true, ""},
		{"the view shows it just in time", true, nil, nil, true, ""},
		{"not gone yet", true, terminating(low), low, true, "m[low-m]"},
		{"nobody was evicted", false, low, low, true, "m[low-m]"},
		{"kube-scheduler rules the node out", true, nil, nil, false, "m[low-m]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := serveGPUProfile(t, nil, important)
			g.see(nodes, low, lowM)
			if tc.answered {
				if got := g.preempt(important, onN); got != "n[low]" {
					t.Fatalf("the first preempt call returns %q", got)
				}
			}
			if tc.live != nil {
				g.cluster.pods = append(g.cluster.pods, tc.live)
			}
			g.see(nodes, low, lowM, nominated)
			if tc.rejected {
				if got := g.fits(nominated, "n"); got != "" {
					t.Fatalf("the pod fits on %q in a view that shows low", got)
				}
			}
			now := []*corev1.Pod{lowM, nominated}
			if tc.view != nil {
				now = append(now, tc.view)
			}
			g.see(nodes, now...)
			if got := g.preempt(nominated, onM); got != tc.want {
				t.Errorf("preempt returns %q, want %q", got, tc.want)
			}
			if got := g.preempt(nominated, onM); got != "m[low-m]" {
				t.Errorf("another preempt call, without a filter call about the node, returns %q", got)
			}
		})
	}
}

// A nomination that the view does not have, because no scheduler has made it, keeps no pods on other nodes.
func TestNominationOfOthersKeepsNoPods(t *testing.T) {
	low, lowM, important := on(sharing("low", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0"), sharing("important", 1000, 16)
	g := serveGPUProfile(t, nil, important)
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	for what, pods := range map[string][]*corev1.Pod{"nowhere": nil, "elsewhere": {nominatedTo("m", important)}} {
		g.see(nodes, append(pods, terminating(low), lowM)...)
		if got := g.fits(nominatedTo("n", important), "n"); got != "" {
			t.Fatalf("the pod fits on %q in a view that shows low", got)
		}
		if got := g.preempt(nominatedTo("n", important), map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}); got != "m[low-m]" {
			t.Errorf("the view has it nominated %s: preempt returns %q", what, got)
		}
	}
}

// What the engine caches about nominated pods from one view to the next changes no response: an engine that has had every view
// and a new one return the same.
func TestNominatedPodsFollowFromTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := gpumemory.New(gpumemory.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		newEngine := func() *engine.Engine {
			e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "GPUMemory", Policy: p, Weight: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		kept := newEngine()
		var b snapshot.Builder
		for _, name := range []string{"n", "m"} {
			b.SetNode(gpuNode(name, 2))
		}
		node, gpu := rapid.SampledFrom([]string{"n", "m"}), rapid.SampledFrom([]string{"0", "1"})
		draw := func() *corev1.Pod {
			return sharing(fmt.Sprint("p", rapid.IntRange(0, 6).Draw(t, "pod")), rapid.Int32Range(0, 3).Draw(t, "priority"), rapid.Int64Range(1, 16).Draw(t, "GiB"))
		}
		forget := func(bool) {}
		t.Repeat(map[string]func(*rapid.T){
			"runs":       func(t *rapid.T) { b.SetPod(on(draw(), node.Draw(t, "node"), gpu.Draw(t, "GPU"))) },
			"is deleted": func(t *rapid.T) { b.SetPod(terminating(on(draw(), node.Draw(t, "node"), gpu.Draw(t, "GPU")))) },
			"is gone":    func(t *rapid.T) { b.DeletePod(draw().UID) },
			"nominated":  func(t *rapid.T) { b.SetPod(nominatedTo(node.Draw(t, "node"), draw())) },
			"nominated2": func(t *rapid.T) { b.SetPod(nominatedTo(node.Draw(t, "node"), draw())) },
			"forgotten":  func(*rapid.T) { forget(true) },
			"expected": func(t *rapid.T) {
				var nodes []snapshot.NominatedNode
				for _, name := range rapid.SliceOfNDistinct(node, 1, 2, rapid.ID[string]).Draw(t, "nodes") {
					nodes = append(nodes, snapshot.NominatedNode{Name: name, Victims: []types.UID{draw().UID}})
				}
				forget = b.Nominate(draw(), "", nodes)
			},
			"": func(t *rapid.T) {
				view := b.View()
				req := engine.Request{Pod: draw(), View: view, Nodes: []*snapshot.Node{view.Node("n"), view.Node("m")}}
				var got, want engine.Result
				if err := kept.Filter(t.Context(), req, &got); err != nil {
					t.Fatal(err)
				}
				if err := newEngine().Filter(t.Context(), req, &want); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Kept, want.Kept) {
					t.Fatalf("kept %v, and a new engine %v", got.Kept, want.Kept)
				}
				without := req
				var b snapshot.Builder
				for n := range view.All() {
					b.SetNode(n.Object)
					for _, pod := range n.Pods {
						b.SetPod(pod)
					}
				}
				without.View = b.View()
				without.Nodes = []*snapshot.Node{without.View.Node("n"), without.View.Node("m")}
				if err := kept.Filter(t.Context(), without, &want); err != nil {
					t.Fatal(err)
				}
				for _, i := range got.Kept {
					if !slices.Contains(want.Kept, i) {
						t.Fatalf("kept %v, and without nominated pods %v", got.Kept, want.Kept)
					}
				}
			},
		})
	})
}
