package simulate

import (
	"fmt"
	"slices"
	"testing"

	"context"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/gpushare"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func names(nodes []*node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.object.Name)
	}
	return all
}

func TestFilters(t *testing.T) {
	tainted, cordoned, labelled, small := machine("tainted", 0), machine("cordoned", 0), machine("labelled", 0), machine("small", 0)
	tainted.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
	cordoned.Spec.Unschedulable = true
	labelled.Labels = map[string]string{"zone": "a"}
	small.Status.Allocatable = list("cpu", 1, "memory", "1Gi", "pods", 1)
	w := &World{Nodes: []*corev1.Node{tainted, cordoned, labelled, small}}
	full := podOf("full", 0)
	full.Spec.NodeName = "labelled"
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
		want   []string
	}{
		{"any", func(*corev1.Pod) {}, []string{"labelled", "small"}},
		{"too much CPU for one", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("cpu", "1100m") }, []string{"labelled"}},
		{"more memory than any has", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("memory", "65Gi") }, nil},
		{"a resource that nobody has", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("example.com/thing", 1) }, nil},
		{"an init container", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", 2)}}}
		}, []string{"labelled"}},
		{"a selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, []string{"labelled"}},
		{"tolerations", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, []string{"cordoned", "labelled", "small", "tainted"}},
	} {
		r := w.Begin(1)
		pod := podOf("p", 0)
		tt.change(pod)
		r.filter(pod, r.needs(pod))
		if got := names(r.found); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	resized := podOf("resized", 0)
	resized.Spec.NodeName = "labelled"
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: list("cpu", 31), Resources: &corev1.ResourceRequirements{Requests: list("cpu", 31)}}}
	pods := &World{Nodes: w.Nodes, Running: []*corev1.Pod{resized}}
	r, two := pods.Begin(1), podOf("two", 0)
	two.Spec.Containers[0].Resources.Requests = list("cpu", 2)
	if r.filter(two, r.needs(two)); len(r.found) > 0 {
		t.Errorf("with a pod on labelled that holds 31 of 32 cores, regardless of its requests: %v", names(r.found))
	}
	r = w.Begin(1) // the number of pods is limited, too
	first := instance(podOf("p", 0), "1", r.now)
	if err := r.bind(t.Context(), nil, first, r.byName["small"], r.needs(first)); err != nil {
		t.Fatal(err)
	}
	tiny := podOf("tiny", 0)
	tiny.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	if r.filter(tiny, r.needs(tiny)); !slices.Equal(names(r.found), []string{"labelled"}) {
		t.Errorf("with one pod on small, which has capacity for one: %v", names(r.found))
	}
}

func TestSampling(t *testing.T) {
	for _, tt := range []struct{ nodes, percentage, want int }{
		{50, 0, 50}, {50, 10, 50}, {1213, 0, 497}, {1213, 100, 1213}, {1213, 10, 121}, {1213, 1, 100}, {5000, 0, 500}, {10000, 0, 500},
	} {
		r := &Run{cluster: &cluster{nodes: make([]*node, tt.nodes)}, scheduler: Scheduler{PercentageOfNodesToScore: tt.percentage}}
		if got := kubescheduler.NodesToFind(len(r.nodes), r.scheduler.PercentageOfNodesToScore); got != tt.want {
			t.Errorf("%d nodes, %d %%: %d, want %d", tt.nodes, tt.percentage, got, tt.want)
		}
	}
	w := &World{Nodes: machines(250, 0), Scheduler: Scheduler{PercentageOfNodesToScore: 40}}
	r := w.Begin(1)
	pod := podOf("p", 0)
	for _, want := range []string{"n00", "n189", "n29"} { // in order of name; then from where the previous search ended
		if r.filter(pod, r.needs(pod)); len(r.found) != 100 {
			t.Fatalf("got %d nodes", len(r.found))
		}
		if got := r.found[0].object.Name; got != r.nodes[(r.next+150)%250].object.Name {
			t.Errorf("the search begins at %s (%s)", got, want)
		}
	}
}

func TestScores(t *testing.T) {
	// 32 cores and 64 GiB, of which the first pod requests a quarter, and a half.
	first := list("cpu", 8, "memory", "32Gi")
	for _, tt := range []struct {
		name      string
		kind      ResourceScore
		used      corev1.ResourceList
		requested corev1.ResourceList
		want      int64
	}{
		// (75 + 50) ÷ 2; balance falls from 100 by half of the difference of a quarter, to 87: 50 + (50 - 13) ÷ 2.
		{"the first", LeastAllocated, nil, first, 62 + 68},
		{"the first, full nodes preferred", MostAllocated, nil, first, 37 + 68},
		// (25 + 50) ÷ 2; balance falls from 87 to 87.
		{"all cores but two quarters", LeastAllocated, first, list("cpu", 16, "memory", 0), 37 + 75},
		// (50 + 49) ÷ 2, with 200 MiB for a pod without a memory request; balance rises from 87 to 100.
		{"what makes it even", LeastAllocated, first, list("cpu", 8), 49 + 81},
		// (99 + 99) ÷ 2, with 100m for a pod without a CPU request, and no balance.
		{"nothing", LeastAllocated, nil, nil, 99},
		// (74 + 74) ÷ 2: running pods without requests count with 100m and 200 MiB, too; they change no balance.
		{"beside a pod that says nothing", LeastAllocated, corev1.ResourceList{}, list("cpu", 8, "memory", "16Gi"), 74 + 75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &World{Nodes: machines(2, 0), Scheduler: Scheduler{ResourceScore: tt.kind}}
			if tt.used != nil {
				running := podOf("running", 0)
				running.Spec.NodeName = "n00"
				running.Spec.Containers[0].Resources.Requests = tt.used
				w.Running = append(w.Running, running)
			}
			r := w.Begin(1)
			pod := podOf("p", 0)
			pod.Spec.Containers[0].Resources.Requests = tt.requested
			r.filter(pod, r.needs(pod))
			if r.score(pod, r.needs(pod)); r.scores[0] != tt.want {
				t.Errorf("got score %d, want %d", r.scores[0], tt.want)
			}
		})
	}
}

// A resource that a node does not have is left out of its score, and each container without requests counts.
func TestScoresOfWhatIsMissing(t *testing.T) {
	node := machine("n00", 0)
	delete(node.Status.Allocatable, corev1.ResourceMemory)
	pod := podOf("p", 0)
	pod.Spec.Containers[0].Resources.Requests = nil
	for range 31 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{})
	}
	for kind, want := range map[ResourceScore]int64{LeastAllocated: 90, MostAllocated: 10} { // 32 × 100m of 32 cores
		r := (&World{Nodes: []*corev1.Node{node}, Scheduler: Scheduler{ResourceScore: kind}}).Begin(1)
		r.filter(pod, r.needs(pod))
		if r.score(pod, r.needs(pod)); !slices.Equal(r.scores, []int64{want}) {
			t.Errorf("%s: got scores %d, want %d", kind, r.scores, want)
		}
	}
}

func TestEqualNodes(t *testing.T) {
	got := map[string]int{}
	for _, first := range []bool{false, true} {
		w := &World{Nodes: machines(4, 0), Scheduler: Scheduler{FirstOfEqual: first}}
		for seed := range uint64(100) {
			r := w.Begin(seed)
			pod := podOf("p", 0)
			n, err := r.choose(t.Context(), pod, r.needs(pod))
			if err != nil {
				t.Fatal(err)
			}
			if got[n.object.Name]++; first && n.object.Name != "n00" {
				t.Errorf("%s is not the first", n.object.Name)
			}
		}
	}
	if len(got) != 4 || got["n03"] < 10 || got["n00"] < 110 {
		t.Errorf("%v", got)
	}
}

func TestPodsThatAreNotManaged(t *testing.T) {
	w := world(t, machines(2, 1), policy.BinPack)
	w.Extenders[0].Managed = []corev1.ResourceName{gpushare.Memory}
	r := w.Begin(1)
	if len(r.interested(podOf("none", 0))) > 0 || len(r.interested(podOf("some", 1))) == 0 {
		t.Error("the extender gets calls for the wrong pods")
	}
	inits := podOf("none", 0)
	inits.Spec.InitContainers = podOf("some", 1).Spec.Containers
	if len(r.interested(inits)) == 0 {
		t.Error("the extender gets no call for a pod whose init container requests the resource")
	}
}

// Resources that kube-scheduler is configured to ignore do not count, for running pods and for new pods.
func TestIgnoredResources(t *testing.T) {
	running := podOf("runs", 10)
	running.Spec.NodeName = "n00"
	w := &World{Nodes: machines(1, 1), Running: []*corev1.Pod{running}}
	pod := podOf("p", 7)
	r := w.Begin(1)
	if r.filter(pod, r.needs(pod)); len(r.found) > 0 {
		t.Error("a node with 6 of 16 units left has room for 7")
	}
	w.Scheduler.Ignored = []corev1.ResourceName{gpushare.Memory}
	r = w.Begin(1)
	if r.filter(pod, r.needs(pod)); len(r.found) != 1 {
		t.Error("an ignored resource counts")
	}
}

// unused lets the nodes without pods pass.
type unused struct{}

func (unused) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return unused{}, nil
}

func (unused) Filter(n *snapshot.Node) policy.Verdict {
	if len(n.Pods) > 0 {
		return policy.Verdict{Reason: &policy.Reason{Code: "Used", Text: "the node has pods"}}
	}
	return policy.Verdict{}
}

// An extender after one with a shortlist may reject all of the list, in each attempt: this is why a
// profile has none by default if another profile can reject nodes.
func TestShortlistBeforeAnotherFilter(t *testing.T) {
	for shortlist, want := range map[int]int{8: 0, 0: 1} {
		w := world(t, machines(9, 1), policy.BinPack)
		for i := range 8 { // so these nodes are the best ones
			running := podOf(fmt.Sprintf("r%d", i), 1)
			running.Spec.NodeName = fmt.Sprintf("n%02d", i)
			w.Running = append(w.Running, running)
		}
		second, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Unused", Policy: unused{}}}})
		if err != nil {
			t.Fatal(err)
		}
		w.Extenders = []Extender{{Engine: gpuEngine(t, policy.BinPack, shortlist), Weight: 1}, {Engine: second}}
		r, pod := w.Begin(1), podOf("p", 1)
		r.filter(pod, r.needs(pod))
		for i := range w.Extenders {
			if err := r.callFilter(t.Context(), &w.Extenders[i], pod); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.found) != want {
			t.Errorf("shortlist %d: the pod fits on %d nodes, want %d", shortlist, len(r.found), want)
		}
	}
}
