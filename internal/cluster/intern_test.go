package cluster

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outboard.dev/outboard/snapshot"
)

// Pods share memory even while they are being read, and with many templates.
func TestFirstReadingIsShared(t *testing.T) {
	const templates = 2500
	var objects []runtime.Object
	for i := range 2 * templates {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: fmt.Sprint(i % templates)}}}}
		pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = "default", fmt.Sprint("p-", i), uid("pod", i), "1"
		objects = append(objects, pod)
	}
	c, _ := testCluster(t, objects...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "everything read", func() bool { return c.Synced() == nil })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	distinct := map[*corev1.Container]bool{}
	for i := range 2 * templates {
		distinct[&c.PodByName("default", fmt.Sprint("p-", i)).Spec.Containers[0]] = true
	}
	if len(distinct) != templates {
		t.Errorf("%d pods of %d templates hold %d copies of their containers", 2*templates, templates, len(distinct))
	}
}

// Sharing changes only where the parts are in memory, and writes to no part of another object.
func TestInternPod(t *testing.T) {
	trimmed := func(name, cpu, address string) *corev1.Pod {
		pod := examplePod(0, name)
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = quantity(cpu)
		pod.Annotations["address"] = address
		snapshot.TrimPod(pod)
		return pod
	}
	one, two, three := trimmed("one", "1", "10.0.0.1"), trimmed("two", "1", "10.0.0.2"), trimmed("three", "2", "10.0.0.1")
	unchanged := one.DeepCopy()
	for _, p := range []*corev1.Pod{two, three} {
		before := p.DeepCopy()
		intern(p, one)
		if diff := cmp.Diff(before, p) + cmp.Diff(unchanged, one); diff != "" {
			t.Errorf("pod %s or the first one changed (-before +after):\n%s", p.Name, diff)
		}
	}
	if &two.Spec.Containers[0] != &one.Spec.Containers[0] {
		t.Error("equal containers are not shared")
	}
	for i, spec := range reflect.ValueOf(two.Spec).Fields() {
		kind := spec.Kind()
		shareable := kind == reflect.Slice || kind == reflect.Map || kind == reflect.Pointer && spec.Type().Elem().Kind() == reflect.Struct
		if shareable && !spec.IsNil() && spec.Pointer() != reflect.ValueOf(one.Spec).FieldByIndex(i.Index).Pointer() {
			t.Errorf("equal parts of the spec are not shared: %s", i.Name)
		}
	}
	if len(one.Status.ContainerStatuses) > 0 || one.Status.Resources != nil || one.Status.AllocatedResources != nil {
		t.Errorf("a pod that is not resized keeps these resources: %v", one.Status)
	}
	if &three.Spec.Containers[0] == &one.Spec.Containers[0] {
		t.Error("different containers are shared")
	}
	for key, value := range one.Annotations {
		if same := unsafe.StringData(two.Annotations[key]) == unsafe.StringData(value); same != (key != "address") {
			t.Errorf("annotation %s is shared: %v", key, same)
		}
	}
}

// The status that a pod keeps while it is resized is shared with its next version.
func TestInternResizedPod(t *testing.T) {
	resized := func(version string) *corev1.Pod {
		pod := examplePod(0, "resized")
		pod.ResourceVersion = version
		pod.Status.ContainerStatuses[0].AllocatedResources[corev1.ResourceCPU] = quantity("2")
		pod.Status.AllocatedResources[corev1.ResourceCPU] = quantity("2")
		snapshot.TrimPod(pod)
		return pod
	}
	one, two := resized("1"), resized("2")
	before := two.DeepCopy()
	intern(two, one)
	if diff := cmp.Diff(before, two); diff != "" {
		t.Errorf("the pod changed (-before +after):\n%s", diff)
	}
	if &two.Status.ContainerStatuses[0] != &one.Status.ContainerStatuses[0] || two.Status.Resources != one.Status.Resources {
		t.Error("equal resources in the status are not shared")
	}
	if cpu := snapshot.PodRequests(two)[corev1.ResourceCPU]; cpu.Cmp(quantity("2")) != 0 {
		t.Errorf("the pod counts with %s cores, want 2", cpu.String())
	}
}

func TestInternNode(t *testing.T) {
	read := func(i int) *corev1.Node {
		node := exampleNode(i)
		snapshot.TrimNode(node)
		return node
	}
	one, two := read(0), read(97*400) // as much memory, and the same images
	unchanged, before := one.DeepCopy(), two.DeepCopy()
	intern(two, one)
	if diff := cmp.Diff(before, two) + cmp.Diff(unchanged, one); diff != "" {
		t.Errorf("a node changed (-before +after):\n%s", diff)
	}
	if nodeKeyOf(one) != nodeKeyOf(two) || nodeKeyOf(one) == nodeKeyOf(read(1)) {
		t.Error("machines of one kind have different keys, or different machines have the same key")
	}
	if &one.Status.Images[0] != &two.Status.Images[0] {
		t.Error("the images are not shared")
	}
	one.Status.Capacity["shared"] = quantity("1")
	if _, ok := two.Status.Capacity["shared"]; !ok {
		t.Error("the capacity is not shared")
	}
}
