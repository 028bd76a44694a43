package gpumemory_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// labeledNode has GPUs of 16 GiB, as GPU Feature Discovery and the agents describe it.
func labeledNode(count int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"nvidia.com/gpu.count": fmt.Sprint(count), "nvidia.com/gpu.memory": "16384"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "gpu-fractioning.nvidia.com/Ready", Status: corev1.ConditionTrue}}},
	}
}

// annotatedPod has the annotations, separated by spaces, and containers.
func annotatedPod(name, annotations string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	for a := range strings.FieldsSeq(annotations) {
		key, value, _ := strings.Cut(a, "=")
		pod.Annotations[key] = value
	}
	for _, container := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container})
	}
	return pod
}

// TestQuantities: the amounts and errors are those of fractiond's parser (kai-gpu-fractioning, its
// package annotations, TestParseToMemoryMiB).
func TestQuantities(t *testing.T) {
	p := build(t, `{nodeAgent: GPUFractioning}`)
	for value, want := range map[string]string{
		"4Gi": "4096", "2048Mi": "2048", "7680Mi": "7680", "100M": "96", "1024Ki": "1", "4096M": "3907", "1G": "954", "5G": "4769", "4294967296": "4096",
		"1M": "refused", "4096": "refused", "0": "refused", "500Ki": "refused", "1048575": "refused", "": "refused", "notanumber": "refused", "-1Gi": "refused",
	} {
		for _, suffix := range []string{"request", "limit"} {
			pod := annotatedPod("p", "", "c")
			pod.Annotations["nvidia.com/container.c.gpu-memory."+suffix] = value
			w := &world{node: labeledNode(1)}
			got := "refused"
			_, err := p.Prepare(t.Context(), pod, new(snapshot.View))
			_, errOfLedgers := p.(policy.Reserver).Ledgers(pod, w.snapshot())
			expect(t, value, fmt.Sprint(errOfLedgers), fmt.Sprint(err))
			if err == nil {
				allocation, _ := w.reserve(p, pod)
				got = fmt.Sprint(allocation.Amounts[0].Amount)
			}
			expect(t, value, got, want)
		}
	}
}

// TestAnnotationsOfAgents: the exact annotations that each agent reads, over those that the pod has.
func TestAnnotationsOfAgents(t *testing.T) {
	const container, cdi = "nvidia.com/container.", "nvidia.cdi.k8s.io/container."
	for name, tc := range map[string]struct {
		pod                  *corev1.Pod
		fractioning, toolkit string
	}{
		"one container": {annotatedPod("p", container+"a.gpu-memory.limit=6G "+container+"a.gpus.devices=0", "a", "plain"),
			container + "a.gpus.devices=1 " + container + "a.gpu-memory.limit=5723Mi",
			cdi + "a=nvidia.com/gpu=1"},
		"three containers on two GPUs": {annotatedPod("p", "outboard.dev/gpus=2 "+container+"a.gpu-memory.limit=2Gi "+container+"b.gpu-memory.request=3Gi "+container+"b.gpu-memory.limit=8Gi "+container+"c.gpu-memory.request=4Gi", "a", "b", "c"),
			container + "a.gpus.devices=0,2 " + container + "a.gpu-memory.limit=2048Mi " + container + "b.gpus.devices=0,2 " + container + "b.gpu-memory.limit=8192Mi " +
				container + "b.gpu-memory.request=3072Mi " + container + "c.gpus.devices=0,2 " + container + "c.gpu-memory.limit=4096Mi",
			cdi + "a=nvidia.com/gpu=0,nvidia.com/gpu=2 " + cdi + "b=nvidia.com/gpu=0,nvidia.com/gpu=2 " + cdi + "c=nvidia.com/gpu=0,nvidia.com/gpu=2"},
		"whole GPUs": {annotatedPod("p", "outboard.dev/whole-gpus=2 "+container+"a.gpu-memory.limit=1Gi", "a", "b"),
			container + "a.gpus.devices=0,2 " + container + "a.gpu-memory.limit=16384Mi " + container + "b.gpus.devices=0,2 " + container + "b.gpu-memory.limit=16384Mi",
			cdi + "a=nvidia.com/gpu=0,nvidia.com/gpu=2 " + cdi + "b=nvidia.com/gpu=0,nvidia.com/gpu=2"},
	} {
		for agent, want := range map[string]string{"GPUFractioning": tc.fractioning, "ContainerToolkit": tc.toolkit} {
			t.Run(name+", "+agent, func(t *testing.T) {
				p := build(t, "{nodeAgent: "+agent+"}")
				w := &world{node: labeledNode(3)}
				w.allocation(t, p, annotatedPod("filler", container+"c.gpu-memory.limit=9Gi", "c"))
				w.ledger.Units[0], w.ledger.Units[1] = w.ledger.Units[1], w.ledger.Units[0]
				w.ledger.Units[0].Name, w.ledger.Units[1].Name = "0", "1"
				got := w.allocation(t, p, tc.pod)
				if want := annotatedPod("", want).Annotations; !maps.Equal(got, want) {
					t.Errorf("got\n%v, want\n%v", got, want)
				}
			})
		}
	}
}

// TestRefusedRequests: requests that no node can serve.
func TestRefusedRequests(t *testing.T) {
	const c, like = "nvidia.com/container.c.gpu-memory.", "unknown; memory is requested by nvidia.com/container.NAME.gpu-memory.limit"
	long := strings.Repeat("x", 37)
	many := ""
	for i := range 6 {
		many += fmt.Sprintf("nvidia.com/container.c%d.gpu-memory.limit=1Gi ", i)
	}
	for annotations, want := range map[string]string{
		c + "request=2Gi " + c + "limit=1Gi":                                      `annotation "` + c + `request": 2048Mi is above the limit, 1024Mi`,
		c + "limit=6":                                                             `annotation "` + c + `limit": "6" is less than 1Mi: write a unit, such as 6Gi`,
		c + "limit=" + strings.Repeat("6", 999):                                   `annotation "` + c + `limit": "` + strings.Repeat("6", 100) + `" is not a quantity, such as 6Gi`,
		c + "limits=6Gi":                                                          `annotation "` + c + `limits": unknown; did you mean ` + c + `limit?`,
		c + "limit=1Gi " + c + "reqest=1Gi":                                       `annotation "` + c + `reqest": unknown; did you mean ` + c + `request?`,
		c + "in-gibibytes-of-each-gpu=6":                                          `annotation "` + c + `in-gibibytes-of-each-gpu": ` + like,
		"nvidia.com/container.gpu-memory.limit=1":                                 `annotation "nvidia.com/container.gpu-memory.limit": ` + like,
		"nvidia.com/container.c.gpus.count=1":                                     `annotation "nvidia.com/container.c.gpus.count": ` + like,
		"outboard.dev/gpu=2":                                                      `annotation "outboard.dev/gpu": unknown; did you mean outboard.dev/gpus?`,
		"outboard.dev/whole-gpu=2":                                                `annotation "outboard.dev/whole-gpu": unknown; did you mean outboard.dev/whole-gpus?`,
		c + "limit=1Gi outboard.dev/gpu-model=T4":                                 `annotation "outboard.dev/gpu-model": unknown; did you mean outboard.dev/gpu-models?`,
		"outboard.dev/gpus=0 " + c + "limit=1Gi":                                  `annotation "outboard.dev/gpus": "0" is not a number of GPUs`,
		"outboard.dev/gpus=2":                                                     `annotation "outboard.dev/gpus": needs the memory of each GPU, in nvidia.com/container.NAME.gpu-memory.limit; for whole GPUs, use outboard.dev/whole-gpus`,
		"outboard.dev/whole-gpus=0":                                               `annotation "outboard.dev/whole-gpus": "0" is not a number of GPUs`,
		"outboard.dev/whole-gpus=3 " + c + "limit=junk":                           "TooFewUnusedGPUs! 2/3 GPUs",
		"outboard.dev/gpus=two " + c + "limit=1Gi":                                `annotation "outboard.dev/gpus": "two" is not a number of GPUs`,
		"outboard.dev/gpus=65 " + c + "limit=1Gi":                                 "TooFewGPUs! 2/65 GPUs",
		"nvidia.com/container.typo.gpu-memory.limit=1Gi":                          `container "typo" of an annotation is not in the pod: it has c`,
		"nvidia.com/container.c.gpu-compute.mode=sm-sharing " + c + "limit=1Gi":   "ComputeMode!",
		"nvidia.com/container.c.gpu-compute.mode=time-slicing " + c + "limit=1Gi": "fits",
		c + "limit=1e30":                                                          "TooLarge! 16384/1099511627776 MiB",
		c + "limit=18446744075857035264":                                          "TooLarge! 16384/1099511627776 MiB", // 2 GiB in 64 bits
		"outboard.dev/gpus=2 outboard.dev/whole-gpus=1":                           `annotation "outboard.dev/gpus": has no effect with outboard.dev/whole-gpus: remove one of them`,
		c + "limit=17Gi":                                                          "TooLarge! 16384/17408 MiB",
		c + "limit=8191Pi":                                                        "TooLarge! 16384/1099511627776 MiB",
		many:                                                                      "TooManyContainers!",
		"nvidia.com/container.c.gpu-memory.limit=1Gi outboard.dev/gpu-models=NVIDIA-A10": "WrongModel!",
	} {
		p := build(t, `{nodeAgent: GPUFractioning}`)
		w := &world{node: labeledNode(2)}
		containers := []string{"c"}
		if annotations == many {
			containers = []string{"c0", "c1", "c2", "c3", "c4", "c5"}
		}
		pod := annotatedPod("p", annotations, containers...)
		if _, err := p.Prepare(t.Context(), pod, new(snapshot.View)); err != nil {
			expect(t, annotations, err.Error(), want)
		} else {
			expect(t, annotations, policytest.Says(filter(t, p, pod, w.snapshot())), want)
		}
		expect(t, "a long name", policytest.Says(filter(t, p, annotatedPod("p", "outboard.dev/whole-gpus=1", long), w.snapshot())), "LongContainerName!")
	}
	others := "nvidia.com/container.c.gpus.devices=0 nvidia.com/container.c.gpu-compute.limit=5 outboard.dev/gpu-models=A outboard.dev/licenses=x outboard.dev/retry=1 example.com/gpu=1"
	cycle, err := build(t, `{nodeAgent: ContainerToolkit}`).Prepare(t.Context(), annotatedPod("p", others, "c"), new(snapshot.View))
	if cycle != nil || err != nil {
		t.Errorf("a pod that requests nothing: %v, %v", cycle, err)
	}
}

// TestOrderDoesNotMatter: equal pods that are bound at once get different GPUs, and none waits.
func TestOrderDoesNotMatter(t *testing.T) {
	p := build(t, `{nodeAgent: ContainerToolkit, gpuSelection: Spread}`)
	w := &world{node: labeledNode(2)}
	for i, want := range []string{"0", "1"} {
		pod := annotatedPod(fmt.Sprint("p", i), "nvidia.com/container.c.gpu-memory.limit=4Gi", "c")
		allocation, _ := w.reserve(p, pod)
		expect(t, "GPU", allocation.Amounts[0].Unit, want)
		expect(t, "waits for", fmt.Sprint(allocation.After), "[]")
		w.write(pod, allocation)
		after, verdict := p.(policy.AllocationValidator).ValidateAllocation(policy.ReserveRequest{Pod: pod, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.Pod(pod.UID).At})
		expect(t, "again", policytest.Says(verdict)+fmt.Sprint(after), "fits[]")
	}
}

// TestGPUsChange: a GPU that falls off the bus gives its index to another one at the next start of
// the driver. So a node with another number of GPUs gets no new pods until those that have GPUs are
// gone, and an allocation that is not in use yet is made anew.
func TestGPUsChange(t *testing.T) {
	config := gpumemory.Defaults()
	config.NodeAgent = gpumemory.ContainerToolkit
	p := build(t, `{nodeAgent: ContainerToolkit}`)
	w := &world{node: labeledNode(3)}
	running, pending, later := annotatedPod("running", "nvidia.com/container.c.gpu-memory.limit=9Gi", "c"), annotatedPod("pending", "nvidia.com/container.c.gpu-memory.limit=8Gi", "c"), annotatedPod("later", "nvidia.com/container.c.gpu-memory.limit=1Gi", "c")
	w.allocation(t, p, running)
	w.bind(running)
	w.allocation(t, p, pending)
	says := func(pod *corev1.Pod) string { return policytest.Says(filter(t, p, pod, w.snapshot())) }
	expect(t, "before", says(later), "fits")
	for _, count := range []int{2, 4} {
		w.node = labeledNode(count)
		expect(t, "with another number", says(later), "GPUsChanged")
		expect(t, "with an allocation", says(pending), "GPUsChanged")
		ask := policy.ReserveRequest{Pod: pending, Node: w.snapshot(), Ledger: w.ledger, At: w.ledger.Pod(pending.UID).At}
		_, verdict := p.(policy.AllocationValidator).ValidateAllocation(ask)
		expect(t, "the allocation", policytest.Says(verdict), "UnusableAllocation")
		_, verdict = w.reserve(p, later)
		expect(t, "a new allocation", policytest.Says(verdict), "GPUsChanged")
	}
	expect(t, "used", usage(w.snapshot(), config), "0:9216/16384 1:8192/16384 2:0/16384 3:0/16384 ")
	w.pods = nil
	w.ledger = w.ledger.Without(func(uid types.UID) bool { return uid == running.UID })
	expect(t, "when the running pod is gone", says(pending), "fits")
}

func TestUnreadRequest(t *testing.T) {
	limits := annotatedPod("limits", "", "c")
	limits.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("4")}
	annotations := annotatedPod("annotations", "nvidia.com/container.c.gpu-memory.limit=4Gi", "c")
	both := annotatedPod("both", "outboard.dev/whole-gpus=1", "c")
	both.Spec.Containers = limits.Spec.Containers
	const byLimits, byAnnotations = "requests GPUs by limits, for nodeAgent: GPUShare", "requests GPUs by annotations, for nodeAgent: GPUFractioning or ContainerToolkit"
	for agent, want := range map[string]map[*corev1.Pod]string{
		"GPUFractioning":   {limits: byLimits},
		"ContainerToolkit": {limits: byLimits},
		"GPUShare":         {annotations: byAnnotations},
	} {
		p := build(t, "{nodeAgent: "+agent+"}").(policy.UnreadRequester)
		for _, pod := range []*corev1.Pod{limits, annotations, both, annotatedPod("none", "", "c"), annotatedPod("misspelled", "outboard.dev/whole-gpu=1", "c")} {
			text := want[pod]
			if text != "" {
				text += ", and the configuration has nodeAgent: " + agent
			}
			expect(t, agent+" "+pod.Name, p.UnreadRequest(pod), text)
		}
	}
}
