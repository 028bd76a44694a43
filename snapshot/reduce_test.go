package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

func amounts(from, to int) corev1.ResourceList {
	list := corev1.ResourceList{"cpu": resource.MustParse("100m"), "example.com/gpu": resource.MustParse("1")}
	for i := from; i < to; i++ {
		list[corev1.ResourceName(fmt.Sprintf("other.example.com/%d", i))] = resource.MustParse("1")
	}
	return list
}

// Whatever a pod has, its reduced form takes no more than the limit, and has its requests and short texts. It is complete if nothing that
// policies read had to go.
func TestReducedPodIsSmall(t *testing.T) {
	const many = 2_000
	long := strings.Repeat("x", 1<<20)
	texts := map[string]string{"read": "1"}
	for i := range many {
		texts[fmt.Sprint("key-", i)] = "x"
	}
	always := corev1.ContainerRestartPolicyAlways
	incomplete := map[string]bool{"labels": true, "annotations": true, "containers": true, "init containers": true, "resources": true, "overhead": true, "pod level": true}
	for name, fill := range map[string]func(*corev1.Pod){
		"labels":          func(p *corev1.Pod) { p.Labels = texts },
		"annotations":     func(p *corev1.Pod) { p.Annotations = texts },
		"long annotation": func(p *corev1.Pod) { p.Annotations["other"] = long },
		"containers": func(p *corev1.Pod) {
			p.Spec.Containers = make([]corev1.Container, many)
			for i := range p.Spec.Containers {
				p.Spec.Containers[i] = corev1.Container{Name: fmt.Sprint(i), Image: long[:100], Resources: corev1.ResourceRequirements{Requests: amounts(i, i+1), Limits: amounts(i, i+1)}}
			}
		},
		"init containers": func(p *corev1.Pod) {
			p.Spec.InitContainers = make([]corev1.Container, many)
			for i := range p.Spec.InitContainers {
				p.Spec.InitContainers[i].Resources.Requests = amounts(i, i+1)
				if i%2 == 0 {
					p.Spec.InitContainers[i].RestartPolicy = &always
				}
			}
		},
		"resources": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts(0, many)}}}
		},
		"zeros": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts(0, 0)}}}
			for i := range many {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprintf("a.example.com/%d", i))] = resource.MustParse("0")
			}
		},
		"overhead":    func(p *corev1.Pod) { p.Spec.Overhead = amounts(0, many) },
		"pod level":   func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts(0, many)} },
		"owners":      func(p *corev1.Pod) { p.OwnerReferences = make([]metav1.OwnerReference, many) },
		"finalizers":  func(p *corev1.Pod) { p.Finalizers = make([]string, many) },
		"tolerations": func(p *corev1.Pod) { p.Spec.Tolerations = make([]corev1.Toleration, many) },
		"gates":       func(p *corev1.Pod) { p.Spec.SchedulingGates = make([]corev1.PodSchedulingGate, many) },
		"volumes": func(p *corev1.Pod) {
			p.Spec.Volumes = make([]corev1.Volume, many)
			for i := range p.Spec.Volumes {
				p.Spec.Volumes[i].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}
			}
		},
		"everything set": func(p *corev1.Pod) { *p = *filled[corev1.Pod](); p.Annotations = map[string]string{"other": long} },
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Labels: map[string]string{"read": "1"}, Annotations: map[string]string{"read": "1"}}, Spec: corev1.PodSpec{NodeName: "n"}}
			fill(pod)
			snapshot.TrimPod(pod)
			whole := pod.DeepCopy()
			if complete := snapshot.ReducePod(pod); complete == incomplete[name] {
				t.Errorf("complete: %t", complete)
			}
			if size := snapshot.PodSize(pod); size > 8<<10 || !snapshot.IsReduced(pod) {
				t.Errorf("%d bytes of %d are left, reduced: %t", size, snapshot.PodSize(whole), snapshot.IsReduced(pod))
			}
			if pod.Labels["read"] != whole.Labels["read"] || pod.Annotations["read"] != whole.Annotations["read"] {
				t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
			}
			got, want := snapshot.PodRequests(pod), snapshot.PodRequests(whole)
			for _, name := range []corev1.ResourceName{"cpu", "memory", "example.com/gpu"} {
				if a, b := got[name], want[name]; a.Cmp(b) != 0 {
					t.Errorf("requests %s of %s instead of %s", a.String(), name, b.String())
				}
			}
			if a, b := snapshot.ExtendedResourceRequest(pod, "example.com/gpu"), snapshot.ExtendedResourceRequest(whole, "example.com/gpu"); a != b {
				t.Errorf("requests %d GPUs instead of %d", a, b)
			}
		})
	}
}
