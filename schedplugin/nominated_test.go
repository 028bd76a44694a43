package schedplugin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods were evicted from GPU 1 for a pod that is nominated to the node, and kube-scheduler adds that pod to the NodeInfo. No other pod gets
// its GPU, although that has the most memory free.
func TestNominatedPodKeepsItsGPU(t *testing.T) {
	sized := func(name, memory string) *corev1.Pod {
		pod := gpuPod(name)
		pod.Spec.Containers[0].Resources.Limits["aliyun.com/gpu-mem"] = resource.MustParse(memory)
		return pod
	}
	runs, important, other := sized("runs", "6"), sized("important", "16"), sized("other", "8")
	runs.Spec.NodeName, runs.Annotations = "n", map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
	important.Spec.Priority, important.Status.NominatedNodeName = new(int32(1000)), "n"
	size := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("32"), "aliyun.com/gpu-count": resource.MustParse("2")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: size, Allocatable: size}}
	start := func() *scheduler {
		s := schedule(t, 0, "profiles: [{policies: [{type: GPUMemory, config: {gpuSelection: Spread}}]}]\n", node, runs, important, other)
		s.withPlugins(inOrder)
		s.infos = []*nodeInfo{{node: node, generation: 1}}
		s.assume(runs, 0)
		s.assume(important, 0)
		return s
	}

	s := start()
	if _, left := s.attempt(sized("large", "11")); len(left) > 0 {
		t.Error("a pod fits that only the GPU of the nominated pod has room for")
	}
	st, left := s.attempt(other)
	if len(left) != 1 {
		t.Fatal("the other pod does not fit")
	}
	if status := s.Reserve(t.Context(), st, other, "n"); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	for _, pod := range s.service.Cluster.View().Node("n").Pods {
		if gpu := pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"]; gpu != "0" {
			t.Errorf("Reserve: pod %s has GPU %q", pod.Name, gpu)
		}
	}

	s = start()
	st, _ = s.attempt(other)
	if status := s.Bind(t.Context(), st, other, "n"); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	for _, l := range s.ledgers.byName {
		if gpu := l.Spec.Pod("other").Annotations["ALIYUN_COM_GPU_MEM_IDX"]; gpu != "0" {
			t.Errorf("Bind: the pod has GPU %q", gpu)
		}
	}
}
