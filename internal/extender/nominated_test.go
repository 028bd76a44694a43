package extender_test

import (
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
	return serveGPUsWith(t, change, func(*extender.Options) {}, pods...)
}

// serveGPUsWith is serveGPUProfile with other options.
func serveGPUsWith(t *testing.T, change func(*gpumemory.Config), options func(*extender.Options), pods ...*corev1.Pod) *gpuProfile {
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
		options(o)
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

// A nominated pod counts on its node until it is bound there, whether the pods evicted for it are shown as terminating or gone.
func TestPreemptedNodeIsKept(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 2)}
	low, high := on(sharing("low", 0, 10), "n", "1"), on(sharing("high", 2000, 12), "n", "0")
	important := sharing("important", 1000, 16)
	g := serveGPUProfile(t, nil)
	for _, step := range []struct {
		what, want string
		pods       []*corev1.Pod
	}{
		{"nominated", "", []*corev1.Pod{low, nominatedTo("n", important)}},
		{"being evicted", "", []*corev1.Pod{terminating(low), nominatedTo("n", important)}},
		{"evicted", "", []*corev1.Pod{nominatedTo("n", important)}},
		{"bound", "", []*corev1.Pod{on(important, "n", "1")}},
		{"gone", "n", nil},
	} {
		g.see(nodes, append(step.pods, high)...)
		if got := g.fits(sharing("smaller", 0, 5), "n"); got != step.want { // does not fit beside high
			t.Errorf("%s: a smaller pod fits on %q, want %q", step.what, got, step.want)
		}
		if got := g.fits(sharing("small", 0, 4), "n"); got != "n" {
			t.Errorf("%s: a pod that fits beside high does not", step.what)
		}
	}
}

// kube-scheduler retries a nominated pod when it sees that the pods evicted for it are gone, which may be before the view shows
// it. A preempt call evicts no pod on another node for a pod that fits on the node to which it is nominated.
func TestNominatedPodEvictsNoPodElsewhere(t *testing.T) {
	nodes := []*corev1.Node{gpuNode("n", 1), gpuNode("m", 1)}
	low, lowM, important := on(sharing("low", 0, 10), "n", "0"), on(sharing("low-m", 0, 10), "m", "0"), sharing("important", 1000, 16)
	nominated := nominatedTo("n", important)
	for _, tc := range []struct {
		name string
		view *corev1.Pod // on n as the view shows it; nil: gone
		live *corev1.Pod // the same in the API server; nil: gone
		want string
	}{
		{"gone", terminating(low), nil, ""},
		{"ended, but not gone yet", terminating(low), failed(terminating(low)), ""},
		{"deleted by others, and more important", terminating(on(sharing("high", 2000, 10), "n", "0")), nil, ""},
		{"not gone yet", terminating(low), terminating(low), "m[low-m]"},
		{"nobody was evicted", low, low, "m[low-m]"},
		{"kube-scheduler rules the node out", nil, nil, "m[low-m]"},
		{"kube-scheduler rules the node out, and the pod fits beside one that terminates", terminating(on(sharing("small", 0, 0), "n", "0")), nil, "m[low-m]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := serveGPUProfile(t, nil, important)
			if tc.live != nil {
				g.cluster.pods = append(g.cluster.pods, tc.live)
			}
			now := []*corev1.Pod{lowM, nominated}
			if tc.view != nil {
				now = append(now, tc.view)
			}
			g.see(nodes, now...)
			if got := g.preempt(nominated, map[string]*extenderv1.MetaVictims{"m": metaVictims("low-m")}); got != tc.want {
				t.Errorf("preempt returns %q, want %q", got, tc.want)
			}
		})
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
		t.Repeat(map[string]func(*rapid.T){
			"runs":       func(t *rapid.T) { b.SetPod(on(draw(), node.Draw(t, "node"), gpu.Draw(t, "GPU"))) },
			"is deleted": func(t *rapid.T) { b.SetPod(terminating(on(draw(), node.Draw(t, "node"), gpu.Draw(t, "GPU")))) },
			"is gone":    func(t *rapid.T) { b.DeletePod(draw().UID) },
			"nominated":  func(t *rapid.T) { b.SetPod(nominatedTo(node.Draw(t, "node"), draw())) },
			"nominated2": func(t *rapid.T) { b.SetPod(nominatedTo(node.Draw(t, "node"), draw())) },
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
