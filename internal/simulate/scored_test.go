package simulate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestScored(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if amount != "" {
				l[name] = resource.MustParse(amount)
			}
		}
		return l
	}
	containers := func(requests ...corev1.ResourceList) corev1.PodSpec {
		var spec corev1.PodSpec
		for _, r := range requests {
			spec.Containers = append(spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: r}})
		}
		return spec
	}
	whole := containers(nil, list("1", ""))
	whole.Resources = &corev1.ResourceRequirements{Requests: list("", "1Gi")}
	for name, tt := range map[string]struct {
		spec     corev1.PodSpec
		assigned bool
		cpu, mib int64
	}{
		"all":                       {containers(list("2", "1Gi")), false, 2000, 1024},
		"nothing":                   {containers(nil), false, 100, 200},
		"no container":              {containers(), false, 0, 0},
		"one of two":                {containers(list("2", "1Gi"), nil), false, 2100, 1224},
		"zero is a request":         {containers(list("0", "0")), true, 0, 0},
		"the whole pod, to place":   {whole, false, 1100, 400},
		"the whole pod, on a node":  {whole, true, 1000, 1024},
		"one of two, on a node":     {containers(list("2", ""), nil), true, 2100, 400},
		"one of two, to be placed":  {containers(list("2", ""), nil), false, 2100, 400},
		"nothing at all, on a node": {containers(nil, nil), true, 200, 400},
	} {
		pod := &corev1.Pod{Spec: tt.spec}
		if tt.assigned {
			pod.Spec.NodeName = "n"
		}
		if got := scoredOf(pod); got != (scored{tt.cpu, tt.mib << 20}) {
			t.Errorf("%s: %v, want %dm and %d MiB", name, got, tt.cpu, tt.mib)
		}
	}
}
