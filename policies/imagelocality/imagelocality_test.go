package imagelocality_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/imagelocality"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

func TestScenarios(t *testing.T) {
	policytest.RunScenarios(t, imagelocality.Type(), "testdata/*.txtar")
}

func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Options{
		New: policytest.FromYAML(imagelocality.Type(), ""),
		Pods: policytest.Pods(`
- metadata: {name: one}
  spec: {containers: [{name: a, image: nginx}]}
- metadata: {name: two}
  spec: {initContainers: [{name: a, image: setup}], containers: [{name: a, image: "nginx:1"}, {name: b, image: "a/b"}]}
`),
		Nodes: policytest.Nodes(`
- metadata: {name: a}
  status: {images: [{names: ["docker.io/library/nginx:latest", "docker.io/library/nginx:1"], sizeBytes: 5000}]}
- metadata: {name: b}
  status: {images: [{names: ["docker.io/library/setup:latest"], sizeBytes: 7000}, {names: ["docker.io/a/b:latest"]}, {}]}
- metadata: {name: c}
`),
		Assigned: policytest.Pods(`{metadata: {name: old}, spec: {nodeName: a, containers: [{name: a, image: "a/b"}]}}`),
	})
}

func nodeWith(name string, sizes map[string]int64) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for image, size := range sizes {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: size})
	}
	return node
}

func podOf(images ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	for _, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Image: image})
	}
	return pod
}

// TestScore: a node with all images has 100, one with no image has 0, and an additional image never
// lowers a score, whatever sizes the node reports.
func TestScore(t *testing.T) {
	images := []string{"a.io/a:1", "a.io/b:1", "a.io/c:1", "a.io/d:1", "a.io/e:1"}
	sizes := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 5000), rapid.Int64(), rapid.Just(int64(math.MaxInt64)))
	rapid.Check(t, func(t *rapid.T) {
		p := policytest.Build(t, imagelocality.Type(), "")
		var b snapshot.Builder
		for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
			b.SetNode(nodeWith(fmt.Sprint(i), rapid.MapOf(rapid.SampledFrom(images), sizes).Draw(t, "images")))
		}
		wanted := rapid.SliceOfNDistinct(rapid.SampledFrom(images), 1, len(images), rapid.ID).Draw(t, "wanted")
		cycle := policytest.Prepare[policy.Score](t, p, podOf(wanted...), b.View())
		on := map[string]int64{}
		last := int64(0)
		for i, image := range wanted {
			score := cycle.Score(snapshot.NewNode(nodeWith("n", on)))
			if score < last || i == 0 && score != 0 || score == policy.MaxScore {
				t.Errorf("with %d of %d images the score is %d, after %d", i, len(wanted), score, last)
			}
			last = score
			on[image] = sizes.Draw(t, "size")
		}
		if score := cycle.Score(snapshot.NewNode(nodeWith("n", on))); score != policy.MaxScore {
			t.Errorf("with all images the score is %d", score)
		}
	})
}

func TestExplain(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("a.io/%02d:1", i))
	}
	view := policytest.View([]*corev1.Node{nodeWith("a", map[string]int64{"a.io/a:1": 142_500_000, "a.io/b:1": 0})}, nil, nil)
	p := policytest.Build(t, imagelocality.Type(), "")
	for _, tt := range []struct {
		pod  *corev1.Pod
		want []string
	}{
		{podOf("a.io/a:1"), []string{"on the node: a.io/a:1 (142.5 MB)"}},
		{podOf("a\nb"), []string{`not on the node: "docker.io/library/a\nb:latest"`}},
		{podOf("nginx"), []string{"not on the node: docker.io/library/nginx:latest"}},
		{podOf("a.io/b:1", "a.io/a:1", "a.io/c:1"), []string{"on the node: a.io/a:1 (142.5 MB), a.io/b:1 (size unknown)", "not on the node: a.io/c:1"}},
		{podOf(many...), []string{"not on the node: " + strings.Join(many[:16], ", ") + ", and 4 more"}},
	} {
		cycle := policytest.Prepare[policy.Explainer](t, p, tt.pod, view)
		if got := cycle.Explain(view.Node("a")); !slices.Equal(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if got := cycle.Explain(nil); len(got) > 0 {
			t.Errorf("about the pod: %q", got)
		}
	}
}

func BenchmarkImageLocality(b *testing.B) {
	var builder snapshot.Builder
	for i := range 5000 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}
		for j := range 50 {
			repository := fmt.Sprintf("registry.example.com/team-%d/app-%d", (i+j)%7, (i*3+j)%200)
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
				Names:     []string{fmt.Sprintf("%s@sha256:%064d", repository, j), repository + ":1"},
				SizeBytes: int64(j+1) << 20,
			})
		}
		snapshot.TrimNode(node)
		builder.SetNode(node)
	}
	view := builder.View()
	known := []string{"registry.example.com/team-0/app-0:1", "registry.example.com/team-1/app-1:1", "registry.example.com/team-2/app-2:1"}
	for name, images := range map[string][]string{
		"known":   known,
		"unknown": slices.Concat(known[:2], []string{"registry.example.com/new:1"}),
	} {
		b.Run(name, func(b *testing.B) {
			policytest.Benchmark(b, policytest.Build(b, imagelocality.Type(), ""), podOf(images...), view)
		})
	}
}
