package gpumemory_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// model is the expected state of node n, which the test compares with the policy.
type model struct {
	world
	config gpumemory.Config
	policy policy.Policy
	sizes  []int64
	ill    map[int]bool
	has    map[types.UID]map[int]int64 // what each pod has of each GPU, whether it exists or not
	lost   map[types.UID]int64         // what each pod has of an unknown GPU
	next   int
	// waiting are the pods with allocations that are not on the node yet.
	waiting []*corev1.Pod
}

// used returns the used memory of the GPU.
func (m *model) used(gpu int) int64 {
	var sum int64
	for _, amounts := range m.has {
		sum += amounts[gpu]
	}
	for _, amount := range m.lost {
		sum += amount
	}
	return sum
}

// room returns how much of the GPU a new pod can allocate.
func (m *model) room(gpu int) int64 {
	if m.ill[gpu] || gpu >= len(m.sizes) {
		return 0
	}
	return max(0, m.sizes[gpu]-m.used(gpu))
}

// fits reports whether enough GPUs have room; memory 0 requests whole GPUs.
func (m *model) fits(memory, gpus int64) bool {
	with := int64(0)
	for gpu, size := range m.sizes {
		if room := m.room(gpu); room > 0 && (memory == 0 && room == size || memory > 0 && room >= memory/gpus) {
			with++
		}
	}
	return with >= gpus
}

func (m *model) setSizes(sizes []int64) {
	m.sizes = sizes
	m.node = gpuNode("n", int64(len(sizes)), 1) // the device plugin cannot report unequal sizes
	m.node.Annotations = map[string]string{"sizes": strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes), "[]"), " ", ",")}
}

// ask is one new pod: Filter, Reserve and the model agree, and the pod gets no more than there is.
func (m *model) ask(t *rapid.T, keep bool) {
	m.next++
	gpus := rapid.Int64Range(1, 3).Draw(t, "GPUs")
	memory := gpus * rapid.Int64Range(0, 12).Draw(t, "memory")
	pod := gpuPod(fmt.Sprint("p", m.next), memory, gpus)
	n := m.snapshot()
	cycle, err := m.policy.Prepare(t.Context(), pod, new(snapshot.View))
	if err != nil {
		t.Fatal(err)
	}
	filtered := cycle.(policy.Filter).Filter(n)
	if score := cycle.(policy.Score).Score(n); score < 0 || score > policy.MaxScore {
		t.Fatalf("the score is %d", score)
	}
	allocation, reserved := m.reserve(m.policy, pod)
	fits := m.fits(memory, gpus)
	if filtered.Fits() != fits || filtered != reserved {
		t.Fatalf("%d of %d GPUs: Filter returned %s, Reserve %s, the model %t", memory, gpus, policytest.Says(filtered), policytest.Says(reserved), fits)
	}
	if !fits {
		// Unresolvable: the pod does not fit even on an empty node.
		empty := *m
		empty.has, empty.lost = nil, nil
		if filtered.Unresolvable == (len(m.sizes) > 0 && empty.fits(memory, gpus)) {
			t.Fatalf("%d of %d GPUs: %s, but an empty node fits: %t", memory, gpus, policytest.Says(filtered), !filtered.Unresolvable)
		}
		return
	}
	got := map[int]int64{}
	for _, a := range allocation.Amounts {
		var gpu int
		if _, err := fmt.Sscan(a.Unit, &gpu); err != nil || gpu < 0 || gpu >= len(m.sizes) {
			t.Fatalf("there is no GPU %q", a.Unit)
		}
		want := memory / gpus
		if memory == 0 {
			want = m.sizes[gpu]
		}
		if a.Amount != want || a.Amount > m.room(gpu) || got[gpu] > 0 {
			t.Fatalf("got %d of GPU %d, want %d; there are %d", a.Amount, gpu, want, m.room(gpu))
		}
		got[gpu] = a.Amount
	}
	if int64(len(got)) != gpus {
		t.Fatalf("got %d GPUs, want %d", len(got), gpus)
	}
	if keep {
		m.write(pod, allocation)
		m.has[pod.UID] = got
		m.waiting = append(m.waiting, pod)
	}
}

// again evaluates a pod that has an allocation and is not bound: the pod fits if it can use the allocation, or
// can make another one without it.
func (m *model) again(t *rapid.T) {
	if len(m.waiting) == 0 {
		t.Skip()
	}
	pod := rapid.SampledFrom(m.waiting).Draw(t, "pod")
	usable := true
	for gpu, amount := range m.has[pod.UID] {
		usable = usable && gpu < len(m.sizes) && amount <= m.sizes[gpu] && !m.ill[gpu]
	}
	n := m.snapshot()
	ask := policy.ReserveRequest{Pod: pod, Node: n, Ledger: m.ledger, At: m.ledger.Pod(pod.UID).At}
	if _, v := m.policy.(policy.AllocationValidator).ValidateAllocation(ask); v.Fits() != usable {
		t.Fatalf("an allocation of %v can be used: %v, of GPUs %v, unhealthy: %v", m.has[pod.UID], v.Fits(), m.sizes, m.ill)
	}
	ask.Ledger = m.ledger.Without(func(uid types.UID) bool { return uid == pod.UID })
	_, anew := m.policy.(policy.Reserver).Reserve(ask)
	if got := filter(t, m.policy, pod, n); got.Fits() != (usable || anew.Fits()) {
		t.Fatalf("the allocation can be used: %v, a new allocation: %s, Filter returned %s", usable, policytest.Says(anew), policytest.Says(got))
	}
}

// check compares what the policy shows of the GPUs with the model.
func (m *model) check(t *rapid.T) {
	shown := map[int]int64{}
	for _, d := range gpumemory.GPUs(m.config, m.snapshot()) {
		shown[d.Index] = d.Used
		var sum int64
		for _, pod := range d.Pods {
			sum += pod.Amount
		}
		if sum != d.Used || d.Reserved > d.Used || d.Healthy == m.ill[d.Index] {
			t.Fatalf("GPU %+v; its pods use %d, unhealthy: %t", d, sum, m.ill[d.Index])
		}
		if d.Index < len(m.sizes) && d.Capacity != m.sizes[d.Index] || d.Index >= len(m.sizes) && d.Capacity != 0 {
			t.Fatalf("GPU %+v of GPUs %v", d, m.sizes)
		}
	}
	for gpu := range 6 {
		if _, ok := shown[gpu]; !ok && (gpu < len(m.sizes) || m.used(gpu) > m.lostSum()) {
			t.Fatalf("GPU %d is missing", gpu)
		} else if ok && shown[gpu] != m.used(gpu) {
			t.Fatalf("GPU %d: %d used, want %d", gpu, shown[gpu], m.used(gpu))
		}
	}
}

func (m *model) lostSum() int64 {
	var sum int64
	for _, amount := range m.lost {
		sum += amount
	}
	return sum
}

// TestAgainstModel: after any sequence of events, allocations of a GPU never exceed its free memory, and
// Filter passes a pod exactly if Reserve allocates a GPU.
func TestAgainstModel(t *testing.T) {
	config := gpumemory.Defaults()
	config.SizesFrom, config.MultiGPU = &fields.From{Annotation: "sizes"}, true
	rapid.Check(t, func(t *rapid.T) {
		config.GPUSelection = rapid.SampledFrom([]policy.ScoringStrategyType{policy.BinPack, policy.Spread}).Draw(t, "choose")
		config.ScoringStrategy.Type = rapid.SampledFrom([]policy.ScoringStrategyType{policy.BinPack, policy.Spread}).Draw(t, "score")
		p, err := gpumemory.New(config)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{config: config, policy: p, has: map[types.UID]map[int]int64{}, lost: map[types.UID]int64{}}
		m.setSizes([]int64{16, 8})
		t.Repeat(map[string]func(*rapid.T){
			"":           m.check,
			"ask":        func(t *rapid.T) { m.ask(t, false) },
			"allocation": func(t *rapid.T) { m.ask(t, true) },
			"bind": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip()
				}
				m.bind(m.waiting[0])
				m.waiting = m.waiting[1:]
			},
			"again":  m.again,
			"serve":  func(t *rapid.T) { m.change(t, served) },
			"delete": func(t *rapid.T) { m.change(t, deleted) },
			"go": func(t *rapid.T) {
				if len(m.has)+len(m.lost) > 0 {
					uids := append(slices.Collect(maps.Keys(m.has)), slices.Collect(maps.Keys(m.lost))...)
					slices.Sort(uids)
					m.forget(rapid.SampledFrom(uids).Draw(t, "pod"))
				}
			},
			"lose the allocation": func(t *rapid.T) { m.loseAllocation(t) },
			"foreign":             func(t *rapid.T) { m.foreign(t) },
			"hardware": func(t *rapid.T) {
				m.setSizes(rapid.SliceOfN(rapid.Int64Range(0, 20), 0, 4).Draw(t, "sizes"))
			},
			"health": func(t *rapid.T) {
				m.ill = map[int]bool{}
				m.gpus = "x,-1,"
				for _, gpu := range rapid.SliceOfDistinct(rapid.IntRange(0, 4), rapid.ID[int]).Draw(t, "ill") {
					m.ill[gpu] = true
					m.gpus += fmt.Sprint(gpu, ",")
				}
			},
		})
	})
}

func served(pod *corev1.Pod) {
	pod.Annotations = maps.Clone(pod.Annotations)
	pod.Annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] = "true"
	pod.Status.Phase = corev1.PodRunning
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// change replaces a pod on the node.
func (m *model) change(t *rapid.T, change func(*corev1.Pod)) {
	if len(m.pods) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.pods)-1).Draw(t, "pod")
	m.pods[i] = m.pods[i].DeepCopy()
	change(m.pods[i])
}

// forget removes a pod, and its allocation.
func (m *model) forget(uid types.UID) {
	of := func(pod *corev1.Pod) bool { return pod.UID == uid }
	m.pods = slices.DeleteFunc(m.pods, of)
	m.waiting = slices.DeleteFunc(m.waiting, of)
	m.ledger = m.ledger.Without(func(u types.UID) bool { return u == uid })
	delete(m.has, uid)
	delete(m.lost, uid)
}

// loseAllocation leaves a pod on the node with only its annotations. The memory of a pod with whole GPUs
// then follows from the current sizes of the GPUs, so loseAllocation excludes such pods.
func (m *model) loseAllocation(t *rapid.T) {
	for _, pod := range m.pods {
		limits := pod.Spec.Containers[0].Resources.Limits
		if memory := limits[gpuMem]; m.ledger.Pod(pod.UID) != nil && !memory.IsZero() {
			m.ledger = m.ledger.Without(func(u types.UID) bool { return u == pod.UID })
			return
		}
	}
	t.Skip()
}

// foreign is a pod that another tool has put on the node, with any overbooking.
func (m *model) foreign(t *rapid.T) {
	m.next++
	memory := rapid.Int64Range(1, 12).Draw(t, "memory")
	index := rapid.SampledFrom([]string{"0", "1", "2", "5", "x", "-1"}).Draw(t, "index")
	pod := placed(fmt.Sprint("f", m.next), memory, index)
	m.pods = append(m.pods, pod)
	if gpu := strings.Index("012..5", index); gpu >= 0 {
		m.has[pod.UID] = map[int]int64{gpu: memory}
	} else {
		m.lost[pod.UID] = memory
	}
}
