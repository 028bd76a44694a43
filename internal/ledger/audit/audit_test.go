package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// node has GPUs of equal size.
func node(name string, cards, size int64) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			"aliyun.com/gpu-count": *resource.NewQuantity(cards, resource.DecimalSI),
			"aliyun.com/gpu-mem":   *resource.NewQuantity(cards*size, resource.DecimalSI),
		}},
	}
}

// given are the annotations of a pod that holds this much of a GPU of this size.
func given(card string, amount, size int) map[string]string {
	return map[string]string{
		"ALIYUN_COM_GPU_MEM_IDX": card, "ALIYUN_COM_GPU_MEM_POD": fmt.Sprint(amount), "ALIYUN_COM_GPU_MEM_DEV": fmt.Sprint(size),
		"ALIYUN_COM_GPU_MEM_ASSIGNED": "false", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
	}
}

// pod requests this much memory, and is bound unless node is "".
func pod(name, node string, memory int64, annotations map[string]string) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
	}
	if memory > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aliyun.com/gpu-mem": *resource.NewQuantity(memory, resource.DecimalSI)}
	}
	return p
}

func with(p corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&p)
	return p
}

// allocation is what a pod holds of a unit.
type allocation struct {
	pod, unit   string
	amount      int64
	age         time.Duration
	annotations map[string]string
}

// book is a ledger in which the last allocation is the latest.
func book(resource, node string, capacity map[string]int64, allocations ...allocation) ledger.Object {
	l := snapshot.Ledger{Resource: resource, Node: node}
	for _, name := range []string{"0", "1", "pool"} {
		if c, ok := capacity[name]; ok {
			l.Units = append(l.Units, snapshot.LedgerUnit{Name: name, Capacity: c})
		}
	}
	for _, c := range allocations {
		unit := l.Unit(c.unit)
		unit.Allocations = append(unit.Allocations, snapshot.LedgerAllocation{Pod: types.UID(c.pod), Amount: c.amount})
		if l.Pod(types.UID(c.pod)) == nil {
			l.LastAt = now.Add(-c.age)
			l.Pods = append(l.Pods, snapshot.LedgerPod{
				UID: types.UID(c.pod), Namespace: "ns", Name: c.pod, Node: node, At: l.LastAt, Annotations: c.annotations,
			})
		}
	}
	return ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: node + resource}, Spec: l}
}

const memory = "aliyun.com/gpu-mem"

// counted are the GPUs of node n as a policy counts them.
func counted(resource string, sizes ...int64) policy.UnitList {
	units := make([]policy.Unit, len(sizes))
	for i, size := range sizes {
		units[i] = policy.Unit{Name: fmt.Sprint(i), Capacity: size}
	}
	return policy.UnitList{Resource: corev1.ResourceName(resource), Nodes: []policy.NodeUnits{{Node: "n", Units: units}}}
}

func TestAudit(t *testing.T) {
	two := map[string]int64{"0": 16, "1": 16}
	const nvidia = "nvidia.com/gpu-memory"
	labeled := node("n", 2, 16)
	labeled.Labels = map[string]string{"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "16384"}
	declared := node("n", 2, 16)
	declared.Labels = map[string]string{"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "16384"}
	for _, tt := range []struct {
		name    string
		ledgers []ledger.Object
		pods    []corev1.Pod
		nodes   []corev1.Node
		units   []policy.UnitList
		want    []string
	}{
		{name: "nothing"},
		{
			name:    "full, and right",
			nodes:   []corev1.Node{node("n", 2, 16)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"a", "0", 10, time.Hour, given("0", 10, 16)}, allocation{"b", "0", 6, time.Second, given("0", 6, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 10, given("0", 10, 16)), pod("b", "", 6, nil)},
		},
		{
			name:    "allocations exceed the capacity that the latest of them was written with",
			ledgers: []ledger.Object{book("licenses/x", "", map[string]int64{"pool": 10}, allocation{"a", "pool", 6, 2 * time.Second, nil}, allocation{"b", "pool", 5, time.Second, nil})},
			pods:    []corev1.Pod{pod("a", "n", 0, nil), pod("b", "m", 0, nil)},
			want:    []string{"overallocated  licenses/x pool: 11 of 10 by allocations: ns/a has 6, ns/b has 5"},
		},
		{
			name:    "allocations exceed a capacity that shrank before the latest of another unit",
			ledgers: []ledger.Object{book("x", "n", map[string]int64{"0": 8, "1": 8}, allocation{"a", "0", 6, time.Minute, nil}, allocation{"b", "0", 6, time.Minute, nil}, allocation{"c", "1", 1, 0, nil})},
			pods:    []corev1.Pod{pod("a", "n", 0, nil), pod("b", "n", 0, nil), pod("c", "n", 0, nil)},
			want:    []string{"overcommitted  x 0 on node n: 12 of 8 by allocations: ns/a has 6, ns/b has 6"},
		},
		{
			name:    "allocations exceed what the node has had at any time",
			nodes:   []corev1.Node{node("n", 2, 16)},
			units:   []policy.UnitList{counted(memory, 16, 16)},
			ledgers: []ledger.Object{book(memory, "n", map[string]int64{"0": 32, "1": 16}, allocation{"a", "0", 12, time.Hour, given("0", 12, 16)}, allocation{"b", "0", 8, time.Second, given("0", 8, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 12, given("0", 12, 16)), pod("b", "", 8, nil)},
			want:    []string{memory + " 0 on node n: 20 of 16 by allocations: ns/a has 12, ns/b has 8"},
		},
		{
			name:    "annotations exceed what the node has, whatever ledgers say",
			nodes:   []corev1.Node{node("n", 2, 16)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"a", "0", 12, time.Hour, given("0", 12, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 12, given("0", 12, 16)), pod("b", "n", 8, given("0", 8, 16))},
			want: []string{
				"overallocated  " + memory + " 0 on node n: 20 of 16 by annotations: ns/a has 12, ns/b has 8",
				"unallocated    " + memory + " on node n: ns/b has 8: no ledger holds an allocation of the pod: another tool bound it, or its ledger was deleted",
			},
		},
		{
			name:    "annotations of NVIDIA's agents",
			nodes:   []corev1.Node{labeled},
			ledgers: []ledger.Object{book(nvidia, "n", map[string]int64{"0": 16384, "1": 16384}, allocation{"right", "0", 8192, time.Hour, nil})},
			pods: []corev1.Pod{
				pod("right", "n", 0, map[string]string{"nvidia.com/container.c.gpu-memory.limit": "8Gi", "nvidia.com/container.c.gpus.devices": "0"}),
				pod("other", "n", 0, map[string]string{"nvidia.com/container.c.gpu-memory.request": "9Gi", "nvidia.com/container.c.gpu-memory.limit": "10Gi", "nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=0"}),
				pod("whole", "n", 0, map[string]string{"outboard.dev/whole-gpus": "1", "nvidia.cdi.k8s.io/container.c": "nvidia.com/gpu=1"}),
				pod("names", "n", 0, map[string]string{"nvidia.cdi.k8s.io/container.c": "nvidia.com/gpu=1"}),
				pod("unnamed", "n", 0, map[string]string{"nvidia.com/container.c.gpu-memory.limit": "18446744075857035264"}), // 2 GiB in 64 bits
				with(pod("init", "n", 0, map[string]string{"nvidia.com/container.c.gpu-memory.limit": "1Mi", "nvidia.com/container.i.gpu-memory.limit": "2Mi"}), func(p *corev1.Pod) {
					p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
				}),
			},
			want: []string{
				"overallocated  " + nvidia + " 0 on node n: 17408 of 16384 by annotations: ns/other has 9216, ns/right has 8192",
				"overallocated  " + nvidia + " 1 on node n: 32768 of 16384 by annotations: ns/names has 16384, ns/whole has 16384",
				"unannotated    " + nvidia + " on node n: ns/init has 2: no annotation names its GPU",
				"unannotated    " + nvidia + " on node n: ns/unnamed has 274877906944: no annotation names its GPU",
				"unallocated    " + nvidia + " on node n: ns/names: no ledger", "unallocated    " + nvidia + " on node n: ns/other has 9216", "unallocated    " + nvidia + " on node n: ns/whole: no ledger",
			},
		},
		{
			name:  "what the pod asks for counts when its annotation says less, and not what ended pods had",
			nodes: []corev1.Node{node("n", 1, 16)},
			ledgers: []ledger.Object{book(memory, "n", map[string]int64{"0": 16},
				allocation{"a", "0", 9, time.Hour, given("0", 1, 16)}, allocation{"b", "0", 7, time.Hour, given("0", 7, 16)})},
			pods: []corev1.Pod{
				pod("a", "n", 9, given("0", 1, 16)), pod("b", "n", 8, given("0", 7, 16)),
				with(pod("c", "n", 16, given("0", 16, 16)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			},
			want: []string{"overallocated  " + memory + " 0 on node n: 17 of 16 by annotations: ns/a has 9, ns/b has 8"},
		},
		{
			name:  "a lie about much more than there can be does not make the sum overflow",
			nodes: []corev1.Node{node("n", 1, 16)},
			pods:  []corev1.Pod{pod("a", "n", 8, given("0", 9223372036854775807, 16)), pod("b", "n", 8, given("0", 9223372036854775807, 16))},
			want:  []string{"overallocated  ", "unallocated", "unallocated"},
		},
		{
			name:    "hardware shrank",
			nodes:   []corev1.Node{node("n", 2, 8)},
			units:   []policy.UnitList{counted(memory, 8, 8)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"a", "1", 10, time.Hour, given("1", 10, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 10, given("1", 10, 16))},
			want: []string{
				"overcommitted  " + memory + " 1 on node n: 10 of 8 by allocations: ns/a has 10",
				"overcommitted  " + memory + " 1 on node n: 10 of 8 by annotations: ns/a has 10",
			},
		},
		{
			name:    "hardware shrank, and then more was allocated",
			nodes:   []corev1.Node{node("n", 2, 8)},
			units:   []policy.UnitList{counted(memory, 8, 8)},
			ledgers: []ledger.Object{book(memory, "n", map[string]int64{"0": 8, "1": 8}, allocation{"a", "1", 10, time.Hour, given("1", 10, 16)}, allocation{"b", "1", 2, time.Minute, given("1", 2, 8)})},
			pods:    []corev1.Pod{pod("a", "n", 10, given("1", 10, 16)), pod("b", "", 2, nil)},
			want: []string{
				"overallocated  " + memory + " 1 on node n: 12 of 8 by allocations: ns/a has 10, ns/b has 2",
				"overcommitted  " + memory + " 1 on node n: 10 of 8 by annotations",
			},
		},
		{
			name:    "the card, or the node, is gone",
			nodes:   []corev1.Node{node("n", 1, 16)},
			units:   []policy.UnitList{counted(memory, 16)},
			ledgers: []ledger.Object{book(memory, "gone", two, allocation{"b", "0", 4, time.Hour, given("0", 4, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 10, given("1", 10, 16)), pod("b", "gone", 4, given("0", 4, 16))},
			want: []string{
				"overcommitted  " + memory + " 0 on node gone: 4 of 0 by allocations: ns/b has 4",
				"overcommitted  " + memory + " 0 on node gone: 4 of 0 by annotations: ns/b has 4",
				"overcommitted  " + memory + " 1 on node n: 10 of 0 by annotations: ns/a has 10",
				"unallocated    ",
			},
		},
		{
			name:  "cards of different sizes, as the largest of two policies counts them",
			nodes: []corev1.Node{node("n", 2, 24)},
			units: []policy.UnitList{counted(memory, 16, 32), counted(memory, 8)},
			pods:  []corev1.Pod{pod("a", "n", 32, given("1", 32, 32)), pod("b", "n", 17, given("0", 17, 16))},
			want:  []string{"overallocated  " + memory + " 0 on node n: 17 of 16", "unallocated", "unallocated"},
		},
		{
			name:    "simulated cards",
			nodes:   []corev1.Node{node("n", 0, 0)},
			units:   []policy.UnitList{counted(memory, 16, 16)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"a", "0", 12, time.Hour, given("0", 12, 16)})},
			pods:    []corev1.Pod{pod("a", "n", 12, given("0", 12, 16))},
		},
		{
			name:  "cards of which only a configuration says what they have",
			nodes: []corev1.Node{declared},
			ledgers: []ledger.Object{
				book(memory, "n", map[string]int64{"0": 8, "1": 24}, allocation{"a", "1", 20, time.Hour, given("1", 20, 24)}, allocation{"b", "0", 12, time.Hour, given("0", 12, 8)}),
				book(nvidia, "n", map[string]int64{"0": 16384, "1": 24576}, allocation{"c", "1", 24576, time.Hour, nil}),
			},
			pods: []corev1.Pod{
				pod("a", "n", 20, given("1", 20, 24)), pod("b", "n", 12, given("0", 12, 8)),
				pod("c", "n", 0, map[string]string{"nvidia.com/container.c.gpu-memory.limit": "24Gi", "nvidia.com/container.c.gpus.devices": "1"}),
			},
			want: []string{
				"overallocated  " + memory + " 0 on node n: 12 of 8 by allocations",
				"unaudited      " + memory + " 1 on node n: ns/a has 20: not audited: needs --config FILE",
				"unaudited      " + nvidia + " 1 on node n: ns/c has 24576: not audited: needs --config FILE",
			},
		},
		{
			name:  "several cards: equal shares, told shares, and whole cards",
			nodes: []corev1.Node{node("n", 4, 16)},
			pods: []corev1.Pod{
				pod("a", "n", 12, given("0,1", 12, 16)),
				pod("b", "n", 22, with(pod("", "", 0, given("0,1", 22, 16)), func(p *corev1.Pod) {
					p.Annotations["scheduler.framework.gpushare.allocation"] = `{"0":{"0":12,"1":8},"1":{"1":2}}`
				}).Annotations),
				with(pod("c", "n", 0, map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "2,3", "ALIYUN_COM_GPU_MEM_DEV": "16,16", "ALIYUN_COM_GPU_MEM_POD": "32"}), func(p *corev1.Pod) {
					p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aliyun.com/gpu-count": resource.MustParse("2")}
				}),
				pod("d", "n", 1, given("3", 1, 16)),
			},
			want: []string{
				"overallocated  " + memory + " 0 on node n: 18 of 16 by annotations: ns/a has 6, ns/b has 12",
				"overallocated  " + memory + " 3 on node n: 17 of 16 by annotations: ns/c has 16, ns/d has 1",
				"unallocated", "unallocated", "unallocated", "unallocated",
			},
		},
		{
			name:  "equal shares are rounded up, and a card that is full of what it had once",
			nodes: []corev1.Node{node("n", 3, 16)},
			units: []policy.UnitList{counted(memory, 16, 16, 16)},
			pods: []corev1.Pod{
				pod("a", "n", 13, given("0,1", 13, 16)), pod("b", "n", 10, given("0", 10, 16)), pod("c", "n", 9, given("1", 9, 16)),
				pod("d", "n", 12, map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_DEV": "24"}),
				pod("e", "n", 12, map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_DEV": "24"}),
			},
			want: []string{
				"overallocated  " + memory + " 0 on node n: 17 of 16 by annotations: ns/a has 7, ns/b has 10",
				"overcommitted  " + memory + " 2 on node n: 24 of 16 by annotations: ns/d has 12, ns/e has 12",
				"unallocated", "unallocated", "unallocated", "unallocated", "unallocated",
			},
		},
		{
			name:  "allocations that are not in the order of their times, on a unit that was full once",
			nodes: []corev1.Node{node("n", 1, 16)},
			units: []policy.UnitList{counted(memory, 16)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"late", "0", 10, time.Minute, given("0", 10, 20)},
				allocation{"early", "0", 10, time.Hour, given("0", 10, 16)})},
			pods: []corev1.Pod{pod("late", "n", 10, given("0", 10, 20)), pod("early", "n", 10, given("0", 10, 16))},
			want: []string{
				"overcommitted  " + memory + " 0 on node n: 20 of 16 by allocations: ns/early has 10, ns/late has 10",
				"overcommitted  " + memory + " 0 on node n: 20 of 16 by annotations: ns/early has 10, ns/late has 10",
			},
		},
		{
			name:  "a GPU whose index is no number, and one beyond the limit of a node",
			nodes: []corev1.Node{node("n", 65, 16)},
			pods: []corev1.Pod{
				pod("a", "n", 4, map[string]string{"scheduler.framework.gpushare.allocation": `{"0":{"x":4}}`}),
				pod("b", "n", 5, given("64", 5, 16)),
			},
			want: []string{
				"unallocated", "unallocated",
				"unaudited      " + memory + " 64 on node n: ns/b has 5", "unaudited      " + memory + " x on node n: ns/a has 4",
			},
		},
		{
			name: "allocations that nobody needs",
			ledgers: []ledger.Object{
				book("x", "n", map[string]int64{"0": 99, "1": 99}, allocation{"gone", "0", 1, time.Second, nil}, allocation{"ended", "0", 2, time.Second, nil}, allocation{"ended", "1", 2, time.Second, nil},
					allocation{"failed", "0", 3, time.Second, nil}, allocation{"elsewhere", "0", 4, time.Second, nil}, allocation{"waiting", "0", 5, 61 * time.Second, nil}, allocation{"young", "0", 6, 59 * time.Second, nil}),
				book("y", "", map[string]int64{"pool": 99}, allocation{"elsewhere", "pool", 1, time.Hour, nil}), // a pool is on every node
			},
			pods: []corev1.Pod{
				with(pod("ended", "n", 0, nil), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
				with(pod("failed", "n", 0, nil), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
				with(pod("gone", "n", 0, nil), func(p *corev1.Pod) { p.UID = "another" }),
				pod("elsewhere", "m", 0, nil), pod("waiting", "", 0, nil), pod("young", "", 0, nil),
			},
			want: []string{
				"leaked         x on node n: ns/elsewhere has 4: the pod is bound to node m",
				"leaked         x on node n: ns/ended has 4: the pod has ended",
				"leaked         x on node n: ns/failed has 3: the pod has ended",
				"leaked         x on node n: ns/gone has 1: the pod is deleted",
				"leaked         x on node n: ns/waiting has 5: the pod is not bound and has held the allocation for 1m1s",
			},
		},
		{
			name: "an allocation of which the ledger does not say whose it is",
			ledgers: []ledger.Object{func() ledger.Object {
				o := book("x", "n", two, allocation{"a", "0", 1, 0, nil}, allocation{"a", "1", 2, 0, nil})
				o.Spec.Pods = nil
				return o
			}()},
			want: []string{"leaked         x on node n: pod with UID a has 3: the ledger does not name the pod"},
		},
		{
			name:  "annotations that differ from those demanded",
			nodes: []corev1.Node{node("n", 2, 16)},
			ledgers: []ledger.Object{book(memory, "n", two, allocation{"a", "0", 4, time.Hour, given("0", 4, 16)},
				allocation{"b", "0", 4, time.Hour, given("0", 4, 16)}, allocation{"c", "1", 4, time.Hour, given("1", 4, 16)},
				allocation{"served", "0", 4, time.Hour, given("0", 4, 16)})},
			pods: []corev1.Pod{
				pod("a", "n", 4, given("1", 4, 16)), pod("b", "n", 4, nil), pod("c", "n", 4, given(strings.Repeat("7", 200), 4, 16)),
				pod("served", "n", 4, with(pod("", "", 0, given("0", 4, 16)), func(p *corev1.Pod) {
					maps.Copy(p.Annotations, map[string]string{"ALIYUN_COM_GPU_MEM_ASSIGNED": "true", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "2"})
				}).Annotations),
			},
			want: []string{
				`unannotated    ` + memory + ` on node n: ns/a has 4: the pod's annotation ALIYUN_COM_GPU_MEM_IDX is "1" and should be "0"`,
				`unannotated    ` + memory + ` on node n: ns/b has 4: the pod lacks annotation ALIYUN_COM_GPU_MEM_ASSIGNED: "false", the pod lacks`,
				`unannotated    ` + memory + ` on node n: ns/c has 4: the pod's annotation ALIYUN_COM_GPU_MEM_IDX is "` + strings.Repeat("7", 200) + `" and should be "1"`,
			},
		},
		{
			name:  "bound by nobody who knows of GPUs",
			nodes: []corev1.Node{node("n", 2, 16)},
			pods:  []corev1.Pod{pod("a", "n", 4, nil), pod("b", "n", 4, map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "-1"}), pod("c", "n", 0, nil), pod("d", "", 4, nil)},
			want: []string{
				"unannotated    " + memory + " on node n: ns/a has 4: no annotation names its GPU",
				"unannotated    " + memory + " on node n: ns/b has 4: no annotation names its GPU",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := audit.Audit(audit.Input{
				Ledgers: pointers(tt.ledgers), Pods: pointers(tt.pods), Nodes: pointers(tt.nodes), Now: now, Grace: time.Minute, Units: tt.units,
			})
			for i := range max(len(findings), len(tt.want)) {
				switch {
				case i >= len(findings):
					t.Errorf("missing: %s", tt.want[i])
				case i >= len(tt.want):
					t.Errorf("unexpected: %s", findings[i])
				case !strings.Contains(findings[i].String(), tt.want[i]):
					t.Errorf("%s\nwant:\n%s", findings[i], tt.want[i])
				}
			}
		})
	}
}

// What the annotation of a pod with 20 units says that its containers hold of each GPU counts if it
// can be right. Otherwise, the pod holds equal shares of the GPUs that it names.
func TestToldShares(t *testing.T) {
	const equal = "0: 10, 1: 10"
	for _, tc := range []struct{ told, want string }{
		{`{"0":{"0":20}}`, "0: 20"},
		{`{"0":{"0":20,"1":0}}`, "0: 20, 1: 0"},
		{`{"0":{"0":3,"1":8},"1":{"1":9}}`, "0: 3, 1: 17"},
		{``, equal},
		{`{"0":{"0":12,"1":7}}`, equal},
		{`{"0":{"0":12,"1":9}}`, equal},
		{`{"0":{"0":-1,"1":20},"1":{"0":1}}`, equal},
		{`{"0":{"0":21},"1":{"1":0}}`, equal},
		{`{"0":"20"}`, equal},
		{`{`, equal},
	} {
		annotations := map[string]string{
			"ALIYUN_COM_GPU_MEM_IDX": "0,1", "ALIYUN_COM_GPU_MEM_DEV": "16,16", "scheduler.framework.gpushare.allocation": tc.told,
		}
		told := pod("told", "n", 20, annotations)
		// Each GPU has one unit, of which another pod holds two, so that there is a finding for
		// each.
		others := []corev1.Pod{pod("x", "n", 2, given("0", 2, 16)), pod("y", "n", 2, given("1", 2, 16))}
		small := node("n", 2, 1)
		var got []string
		for _, f := range audit.Audit(audit.Input{Pods: pointers(append(others, told)), Nodes: pointers([]corev1.Node{small}), Now: now}) {
			for _, h := range f.Holders {
				if f.Unit != "" && h.Name == "told" {
					got = append(got, fmt.Sprintf("%s: %d", f.Unit, h.Amount))
				}
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != tc.want {
			t.Errorf("told %s: got %s, want %s", tc.told, got, tc.want)
		}
	}
}

// What the annotation says counts for up to 64 GPUs.
func TestToldSharesOfManyGPUs(t *testing.T) {
	for count, want := range map[int]int{64: 64, 65: 1} {
		told := map[string]int{}
		for i := range count {
			told[fmt.Sprint(i)] = 1
		}
		text, err := json.Marshal(map[string]any{"0": told})
		if err != nil {
			t.Fatal(err)
		}
		p := pod("a", "n", int64(count), map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0", "scheduler.framework.gpushare.allocation": string(text)})
		units := 0
		for _, f := range audit.Audit(audit.Input{Pods: []*corev1.Pod{&p}, Now: now}) {
			if f.Unit != "" {
				units++
			}
		}
		if units != want {
			t.Errorf("a pod that was told of %d GPUs holds %d, want %d", count, units, want)
		}
	}
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// A finding in only one of two passes may be due to a change between them; an overallocation is in
// one list.
func TestConfirm(t *testing.T) {
	holder := func(name string, amount int64) []audit.Holder {
		return []audit.Holder{{Namespace: "ns", Name: name, UID: types.UID(name), Amount: amount}}
	}
	overallocated := audit.Finding{Kind: audit.Overallocated, Resource: "x", Node: "n", Unit: "0", Used: 9, Capacity: 8, Holders: holder("a", 9)}
	more := overallocated
	more.Used, more.Holders = 10, holder("b", 10)
	other := overallocated
	other.Unit = "1"
	leak := audit.Finding{Kind: audit.Leaked, Resource: "x", Node: "n", Holders: holder("a", 1)}
	older := leak
	older.Detail = "older"
	another := leak
	another.Holders = holder("b", 1)

	for _, tt := range []struct {
		name                string
		first, second, want []audit.Finding
	}{
		{"clean", nil, nil, nil},
		{"a leak that goes away", []audit.Finding{leak}, nil, nil},
		{"a leak that is new", nil, []audit.Finding{leak}, nil},
		{"one goes, one comes", []audit.Finding{leak}, []audit.Finding{another}, nil},
		{"a leak that stays", []audit.Finding{leak, another}, []audit.Finding{older}, []audit.Finding{older}},
		{"overallocated before", []audit.Finding{overallocated}, nil, []audit.Finding{overallocated}},
		{"overallocated since", nil, []audit.Finding{overallocated}, []audit.Finding{overallocated}},
		{"overallocated ever more", []audit.Finding{overallocated}, []audit.Finding{more}, []audit.Finding{more}},
		{"overallocated here, and before that there", []audit.Finding{overallocated}, []audit.Finding{other}, []audit.Finding{overallocated, other}},
		{"overallocated here and there", []audit.Finding{other}, []audit.Finding{overallocated}, []audit.Finding{overallocated, other}},
	} {
		if got := audit.Confirm(tt.first, tt.second); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	in := audit.Input{
		Now: now, Nodes: []*corev1.Node{new(node("n", 1, 16))},
		Ledgers: []*ledger.Object{new(book(memory, "n", map[string]int64{"0": 16}, allocation{"gone", "0", 4, time.Hour, given("0", 4, 16)}))},
		Pods:    []*corev1.Pod{new(pod("a", "n", 4, given("0", 4, 16)))},
	}
	findings := audit.Audit(in)
	for _, tt := range []struct {
		name     string
		findings []audit.Finding
		ok       bool
		want     string
	}{
		{"clean", nil, true, "ledgers: 1, allocations: 1, nodes: 1, pods: 1; no findings\n"},
		{"a note", findings[1:], true, "findings: 0, notes: 1\n"},
		{"a finding and a note", findings, false, "findings: 1, notes: 1\n"},
	} {
		report := audit.NewReport(in, tt.findings)
		var text, data bytes.Buffer
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(text.String(), tt.want) || strings.Count(text.String(), "\n") != len(tt.findings)+1 {
			t.Errorf("%s: %s\nwant at its end: %s", tt.name, text.String(), tt.want)
		}
		if err := report.WriteJSON(&data); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(data.String(), "{\n  \"") {
			t.Errorf("%s: the JSON is not indented: %s", tt.name, data.String())
		}
		var read struct {
			OK       bool            `json:"ok"`
			Findings []audit.Finding `json:"findings"`
		}
		if err := json.Unmarshal(data.Bytes(), &read); err != nil {
			t.Fatal(err)
		}
		if read.OK != tt.ok || report.OK() != tt.ok || read.Findings == nil || fmt.Sprint(read.Findings) != fmt.Sprint(append([]audit.Finding{}, tt.findings...)) {
			t.Errorf("%s: %s", tt.name, data.String())
		}
	}
}

// What an audit takes is bounded, whatever GPUs the pods name: it counts the first 64 of each pod,
// and reports the same 10,000 units each time.
func TestAuditIsBounded(t *testing.T) {
	var indexes strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&indexes, "%d,", i)
	}
	in := audit.Input{Now: now}
	for i := range 400 {
		name := fmt.Sprintf("n-%03d", i)
		in.Nodes = append(in.Nodes, new(node(name, 2, 16)))
		in.Pods = append(in.Pods, new(pod("p-"+name, name, 0, given(indexes.String(), 1<<40, 16))))
	}
	perNode := map[string]int{}
	findings := audit.Audit(in)
	for _, f := range findings {
		perNode[f.Node]++
	}
	if len(findings) != 10_000 || perNode["n-000"] != 64 || perNode["n-399"] != 0 {
		t.Errorf("%d findings, %d of the first node, %d of the last", len(findings), perNode["n-000"], perNode["n-399"])
	}
	for _, f := range audit.Audit(audit.Input{
		Ledgers: []*ledger.Object{new(book("licenses/x", "", map[string]int64{"pool": 10}, allocation{"a", "pool", 1, time.Second, map[string]string{"k": strings.Repeat("x", 4<<10), "l": "1"}}))},
		Pods:    []*corev1.Pod{new(pod("a", "n", 0, map[string]string{"k": strings.Repeat("\x00", 4<<10)}))},
	}) {
		if len(f.Detail) > 2<<10 || !strings.HasPrefix(f.Detail, `the pod lacks annotation l: "1", the pod's`) || !strings.HasSuffix(f.Detail, `xxx" and 3896 more bytes`) {
			t.Errorf("a finding of %d bytes: %s", len(f.Detail), f.Detail)
		}
	}
	if confirmed := audit.Confirm(findings, audit.Audit(in)); len(confirmed) != len(findings) {
		t.Errorf("%d of %d findings are in the second audit as well", len(confirmed), len(findings))
	}
}
