package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// A trimmed node takes at most 32 KiB. What is removed is the smallest images, and then the longest annotations and labels, whether the
// node is shared or not.
func TestNodeIsLimited(t *testing.T) {
	const limit = 32 << 10
	images := func(n int) (list []corev1.ContainerImage) {
		for i := range n {
			list = append(list, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/%d@sha256:%064d", i, i)}, SizeBytes: int64(n - i)})
		}
		return list
	}
	texts := func(n, length int) map[string]string {
		all := map[string]string{"kept": "1"}
		for i := range n {
			all[fmt.Sprint("key-", i)] = strings.Repeat("x", length)
		}
		return all
	}
	for name, tc := range map[string]struct {
		node  corev1.Node
		whole bool
	}{
		"usual":       {corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: texts(20, 30), Annotations: texts(10, 100)}, Status: corev1.NodeStatus{Images: images(50)}}, true},
		"images":      {corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: texts(20, 30)}, Status: corev1.NodeStatus{Images: images(5000)}}, false},
		"annotations": {corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: texts(5, 100_000), Labels: texts(20, 30)}}, false},
		"labels":      {corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: texts(20_000, 63)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			shared := tc.node.DeepCopy()
			copied, own := snapshot.TrimmedNode(shared), tc.node.DeepCopy()
			snapshot.TrimNode(own)
			if diff := cmp.Diff(copied, own) + cmp.Diff(shared, &tc.node); diff != "" {
				t.Fatalf("shared nodes are trimmed differently, or changed: %s", diff)
			}
			if size := snapshot.SizeOf(own); size > limit || cmp.Equal(own, &tc.node) != tc.whole {
				t.Errorf("%d bytes are left of %d, the same: %t", size, snapshot.SizeOf(&tc.node), cmp.Equal(own, &tc.node))
			}
			if n := len(own.Status.Images); n > 0 && own.Status.Images[0].SizeBytes != int64(len(tc.node.Status.Images)) || len(tc.node.Labels) < 100 && len(own.Labels) != len(tc.node.Labels) || own.Annotations["kept"] != tc.node.Annotations["kept"] || own.Labels["kept"] != tc.node.Labels["kept"] {
				t.Errorf("%d images, labels %d, annotations %v", n, len(own.Labels), len(own.Annotations))
			}
		})
	}
}
