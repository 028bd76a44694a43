package controlplane_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

func TestNodeIsStoredAsDescribed(t *testing.T) {
	ctx, client := within(t), clientOf(t, plane(t))
	spec := controlplane.NodeSpec{
		Name:        "gpu-1",
		CPU:         "64",
		Memory:      "512Gi",
		Resources:   map[string]string{"nvidia.com/gpu": "8", "pods": "20"},
		Allocatable: map[string]string{"cpu": "63500m"},
		Labels:      map[string]string{"zone": "a"},
		Annotations: map[string]string{"note": "x"},
		Taints:      []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		Images:      map[string]int64{"example.test/big:1": 9e9, "example.test/a:1": 5},
		NotReady:    true,
	}
	if err := controlplane.CreateNodes(ctx, client, spec.Node()); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Nodes().Get(ctx, "gpu-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{
			"cpu": resource.MustParse(cpu), "memory": resource.MustParse("512Gi"),
			"pods": resource.MustParse("20"), "nvidia.com/gpu": resource.MustParse("8"),
		}
	}
	want := corev1.NodeStatus{
		Capacity:    list("64"),
		Allocatable: list("63500m"),
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}},
		Images: []corev1.ContainerImage{
			{Names: []string{"example.test/a:1"}, SizeBytes: 5},
			{Names: []string{"example.test/big:1"}, SizeBytes: 9e9},
		},
	}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(spec.Taints, got.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	wantLabels := map[string]string{
		"kubernetes.io/hostname": "gpu-1", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "zone": "a",
	}
	if diff := cmp.Diff(wantLabels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(spec.Annotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if err := controlplane.CreateNodes(ctx, client, spec.Node()); err == nil {
		t.Error("creating an existing node succeeds")
	}
}

func TestCreateNodesCreatesThemAll(t *testing.T) {
	ctx, client := within(t), clientOf(t, plane(t))
	var nodes []*corev1.Node
	for i := range 300 {
		nodes = append(nodes, controlplane.NodeSpec{Name: fmt.Sprintf("many-%d", i), Labels: map[string]string{"many": ""}}.Node())
	}
	if err := controlplane.CreateNodes(ctx, client, nodes...); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "many"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(nodes) {
		t.Errorf("%d nodes, want %d", len(list.Items), len(nodes))
	}
}

func TestPodSpec(t *testing.T) {
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	tests := []struct {
		name string
		spec controlplane.PodSpec
		want *corev1.Pod
	}{
		{"least", controlplane.PodSpec{Name: "p"}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "pause",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}},
			}}},
		}},
		{"most", controlplane.PodSpec{
			Namespace: "team", Name: "p", CPU: "500m", Memory: "1Gi", Resources: map[string]string{"nvidia.com/gpu": "1"},
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, NodeSelector: map[string]string{"e": "f"},
			Image: "example.test/a:1", NodeName: "n", SchedulerName: "s", PriorityClass: "high",
		}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			},
			Spec: corev1.PodSpec{
				NodeName: "n", SchedulerName: "s", PriorityClassName: "high", NodeSelector: map[string]string{"e": "f"},
				Containers: []corev1.Container{{
					Name: "main", Image: "example.test/a:1",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{
							"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("1"),
						},
						Limits: gpu,
					},
				}},
			},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.spec.Pod()); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}
