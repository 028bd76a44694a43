package yardstick

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/imagelocality"
)

// TestImageLocality compares the order of nodes by the policy ImageLocality with that of kube-scheduler's plugin.
func TestImageLocality(t *testing.T) {
	p, err := imagelocality.New(imagelocality.Defaults())
	e := engineOf(t, p, err)
	f, equal, different := newInTree(t, func(*schedulerapi.NodeResourcesFitArgs) {}, names.ImageLocality), 0, 0
	rapid.Check(t, func(t *rapid.T) {
		d := draw{t}
		nodes, pod := d.withImages(), d.wantsImages()
		f.set(nodes, nil)
		got, want := scores(t, e, nodes, pod), pluginScores(t, f, nodes, pod)
		for i, a := range nodes {
			for _, b := range nodes[:i] {
				order := cmp.Compare(want[a.Name], want[b.Name])
				if order == 0 {
					equal++
				} else {
					different++
				}
				if cmp.Compare(got[a.Name], got[b.Name]) != order {
					t.Fatalf("the policy scores %v, and the plugin %v", got, want)
				}
			}
		}
	})
	if t.Logf("%d pairs of nodes are equal, and %d are not", equal, different); equal == 0 || different == 0 {
		t.Error("all are the same")
	}
}

// withImages draws nodes, half of which have each image, so that each image counts in the plugin with half of its size, which is
// between the thresholds. Different sums differ by more than one hundredth, to which scores are rounded.
func (d draw) withImages() []*corev1.Node {
	var nodes []*corev1.Node
	for i := range pick(d, "nodes", 2, 4, 8) {
		name := fmt.Sprintf("node-%02d", i)
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	for _, image := range images() {
		const size = 400 << 20
		for _, node := range rapid.Permutation(nodes).Draw(d.T, image)[:len(nodes)/2] {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: size})
		}
	}
	return nodes
}

// wantsImages draws a pod with images, each in one container or volume. The first is in a container, because each pod has one.
func (d draw) wantsImages() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod"}}
	wanted := rapid.Permutation([]string{"registry.example.com/web:1", "busybox", "registry.example.com:5000/model", "nginx@sha256:1f", "unknown"}).Draw(d.T, "images")
	for i, image := range wanted[:rapid.IntRange(1, len(wanted)).Draw(d.T, "containers")] {
		c := corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image}
		switch {
		case i > 0 && d.chance(30, "volume"):
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
				Name: c.Name, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}},
			})
		case i > 0 && d.chance(30, "init container"):
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// scores returns the policy's scores of the nodes.
func scores(t *rapid.T, e *engine.Engine, nodes []*corev1.Node, pod *corev1.Pod) map[string]int64 {
	var result engine.Result
	if err := e.Score(context.Background(), request(nodes, nil, pod), &result); err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for i, total := range result.Totals {
		all[nodes[i].Name] = total
	}
	return all
}

// pluginScores returns the scores of kube-scheduler's ImageLocality.
func pluginScores(t *rapid.T, f *inTree, nodes []*corev1.Node, pod *corev1.Pod) map[string]int64 {
	var asked []string
	for _, node := range nodes {
		asked = append(asked, node.Name)
	}
	parts, err := f.begin(pod).score(asked...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for name, part := range parts {
		all[name] = part[names.ImageLocality]
	}
	return all
}
