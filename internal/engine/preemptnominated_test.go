package engine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

var crowdedCases = flag.Int("crowded-cases", 6000, "how many random preemptions beside nominated pods are compared with brute force")

// crowdedProfile allocates GPUs, devices and licenses, so that a nominated pod gets something else
// when other pods end.
const crowdedProfile = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: GPUMemory, config: {multiGPU: true}}
  - {type: Devices, config: {resource: example.com/fpga}}
  - {type: Licenses, config: {features: [{name: cad, seats: 4}]}}
`

func crowdedEngine(t *testing.T) *engine.Engine {
	t.Helper()
	c, err := config.Parse("outboard.yaml", []byte(crowdedProfile), config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		t.Fatal(err)
	}
	var members []engine.WeightedPolicy
	for _, p := range c.Profiles[0].Policies {
		members = append(members, engine.WeightedPolicy{Name: p.Name, Policy: p.Policy, Weight: p.Weight})
	}
	return newEngine(t, members...)
}

// crowded is a cluster as objects: some pods are on nodes, and others are nominated to the first
// node.
type crowded struct {
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	nominated []*corev1.Pod
}

func (w *crowded) view(gone ...types.UID) *snapshot.View { return w.builder(gone...).View() }

func (w *crowded) builder(gone ...types.UID) *snapshot.Builder {
	b := new(snapshot.Builder)
	for _, n := range w.nodes {
		b.SetNode(n)
	}
	for _, pod := range w.pods {
		if !slices.Contains(gone, pod.UID) {
			b.SetPod(pod)
		}
	}
	for _, pod := range w.nominated {
		b.SetPod(pod)
	}
	return b
}

// fits reports whether the pod fits on the first node when these pods have ended.
func (w *crowded) fits(t *testing.T, e *engine.Engine, pod *corev1.Pod, gone []types.UID) bool {
	t.Helper()
	var result engine.Result
	if err := e.Filter(t.Context(), asking(pod, w.view(gone...), w.nodes[0].Name), &result); err != nil {
		t.Fatal(err)
	}
	return len(result.Kept) == 1
}

func drawCrowded(t *testing.T, r *rand.Rand, e *engine.Engine) (w *crowded, pod *corev1.Pod, given []types.UID) {
	w = &crowded{}
	for i := range 1 + r.IntN(2) {
		gpus, each := 1+r.Int64N(3), 4+2*r.Int64N(4)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("n%d", i))}}
		n.Status.Allocatable = corev1.ResourceList{
			"aliyun.com/gpu-mem": *resource.NewQuantity(gpus*each, resource.DecimalSI), "aliyun.com/gpu-count": *resource.NewQuantity(gpus, resource.DecimalSI),
			"example.com/fpga": *resource.NewQuantity(r.Int64N(4), resource.DecimalSI),
		}
		n.Status.Capacity = n.Status.Allocatable
		w.nodes = append(w.nodes, n)
	}
	for i := range 2 + r.IntN(6) {
		pod := drawAllocatedPod(r, fmt.Sprintf("p%d", i), 4)
		node := w.nodes[r.IntN(len(w.nodes))].Name
		view := w.view()
		if fits, err := e.FitsAny(t.Context(), asking(pod, view, node)); !fits || err != nil {
			continue
		}
		planned, _ := e.Planned(view, pod, view.Node(node), time.Unix(int64(i), 0))
		pod = planned.DeepCopy()
		pod.Spec.NodeName, pod.Status.StartTime = node, &metav1.Time{Time: time.Unix(int64(i), 0)}
		if r.IntN(8) == 0 {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(99, 0)}
		}
		w.pods = append(w.pods, pod)
	}
	for i := range 1 + r.IntN(2) {
		pod := drawAllocatedPod(r, fmt.Sprintf("nominated%d", i), 5)
		pod.Status.NominatedNodeName = w.nodes[0].Name
		w.nominated = append(w.nominated, pod)
	}
	pod = drawAllocatedPod(r, "incoming", 8)
	return w, pod, w.below(r, pod)
}

// below returns some pods of lower priority on the first node.
func (w *crowded) below(r *rand.Rand, pod *corev1.Pod) (some []types.UID) {
	for _, p := range w.pods {
		if p.Spec.NodeName == w.nodes[0].Name && *p.Spec.Priority < *pod.Spec.Priority && r.IntN(3) == 0 {
			some = append(some, p.UID)
		}
	}
	return some
}

func drawAllocatedPod(r *rand.Rand, name string, most int64) *corev1.Pod {
	priority := int32(10 * r.IntN(4))
	pod := nominee(name, priority, "")
	pod.Labels = map[string]string{}
	list := corev1.ResourceList{}
	if r.IntN(4) > 0 {
		list["aliyun.com/gpu-mem"] = *resource.NewQuantity(1+r.Int64N(most), resource.DecimalSI)
		if r.IntN(5) == 0 {
			pod.Labels["aliyun.com/gpu-count"] = "2"
		}
	}
	if r.IntN(3) == 0 {
		list["example.com/fpga"] = *resource.NewQuantity(1+r.Int64N(2), resource.DecimalSI)
	}
	if r.IntN(3) == 0 {
		pod.Annotations = map[string]string{"outboard.dev/licenses": fmt.Sprintf("cad=%d", 1+r.IntN(2))}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	return pod
}

// Beside nominated pods, the victims suffice: when they have ended, Filter lets the node pass. None
// of those that the engine adds can be spared, and a candidate is dropped only if no set suffices.
// A nominated pod may get something else when other pods have ended than on the node as it is.
func TestPreemptBesideNominatedPodsEqualsBruteForce(t *testing.T) {
	e, others := crowdedEngine(t), crowdedEngine(t)
	r := rand.New(rand.NewPCG(1, 1))
	given, added, dropped := 0, 0, 0
	for n := range *crowdedCases {
		w, pod, victims := drawCrowded(t, r, others)
		leaving, eligible := w.split(pod, victims)
		c, kept := w.preempt(t, e, pod, victims)
		switch more := len(c.Victims) - len(victims); {
		case !kept:
			dropped++
			if w.someSetSuffices(t, others, pod, leaving, eligible) {
				t.Errorf("case %d: the candidate is dropped, although a set of victims suffices", n)
			}
		case !w.fits(t, others, pod, slices.Concat(leaving, c.Victims)):
			t.Errorf("case %d: the candidate is kept with the victims %v, which do not suffice", n, c.Victims)
		case more == 0:
			given++
		default:
			added++
			for i, uid := range c.Victims {
				rest := slices.Delete(slices.Clone(c.Victims), i, i+1)
				if slices.Contains(eligible, uid) && w.fits(t, others, pod, slices.Concat(leaving, rest)) {
					t.Errorf("case %d: %s, one of the victims %v, can be spared", n, uid, c.Victims)
				}
			}
		}
	}
	t.Logf("kept with the given victims: %d, with more: %d, dropped: %d", given, added, dropped)
	if least := *crowdedCases / 50; given < least || added < least || dropped < least {
		t.Error("too few cases of a kind")
	}
}

// split returns the pods on the first node that are gone without further victims, and those that
// may be added.
func (w *crowded) split(pod *corev1.Pod, victims []types.UID) (leaving, eligible []types.UID) {
	leaving = slices.Clone(victims)
	for _, p := range w.pods {
		switch {
		case p.Spec.NodeName != w.nodes[0].Name || slices.Contains(victims, p.UID):
		case p.DeletionTimestamp != nil:
			leaving = append(leaving, p.UID)
		case *p.Spec.Priority < *pod.Spec.Priority:
			eligible = append(eligible, p.UID)
		}
	}
	return leaving, eligible
}

func (w *crowded) someSetSuffices(t *testing.T, e *engine.Engine, pod *corev1.Pod, leaving, eligible []types.UID) bool {
	for set := range 1 << len(eligible) {
		gone := slices.Clone(leaving)
		for i, uid := range eligible {
			if set>>i&1 == 1 {
				gone = append(gone, uid)
			}
		}
		if w.fits(t, e, pod, gone) {
			return true
		}
	}
	return false
}

// preempt calls the engine for the first node.
func (w *crowded) preempt(t *testing.T, e *engine.Engine, pod *corev1.Pod, victims []types.UID) (c engine.Candidate, kept bool) {
	view := w.view()
	c = engine.Candidate{Node: view.Node(w.nodes[0].Name), Name: w.nodes[0].Name, Victims: victims}
	var result engine.Result
	all, err := e.Preempt(t.Context(), engine.PreemptRequest{Request: engine.Request{Pod: pod, View: view}, Candidates: []engine.Candidate{c}}, &result)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return engine.Candidate{}, false
	}
	return all[0], true
}
