package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// A large pod takes little memory. The Cluster does not return a pending one for evaluation, and a bound one counts. Pods of which decisions
// about others do not see everything are logged, and no others.
func TestLargePods(t *testing.T) {
	node := exampleNodeName(0)
	noted := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1",
				Annotations: map[string]string{"a": "b", "note": strings.Repeat("x", 20<<10)},
			},
			Spec: corev1.PodSpec{NodeName: node},
		}
	}
	labeled := noted("labeled", node)
	labeled.Labels = map[string]string{}
	for i := range 9_000 { // 1.2 MB, which the API server accepts
		labeled.Labels[fmt.Sprintf("%d-%s", i, strings.Repeat("x", 55))] = strings.Repeat("y", 63)
	}
	c, _ := testCluster(t, exampleNode(0), noted("bound", node), noted("pending", ""), labeled)
	var log bytes.Buffer
	c.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	if err := c.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, pod := range c.Pods() {
		if size := snapshot.PodSize(pod); size > 8<<10 || pod.Annotations["a"] != "b" {
			t.Errorf("%s takes %d bytes and has annotations %v", pod.Name, size, pod.Annotations)
		}
		if c.Pod(pod.UID, "1") != nil {
			t.Errorf("%s is returned for evaluation", pod.Name)
		}
	}
	if n := c.View().Node(node); len(n.Pods) != 2 {
		t.Errorf("%d bound pods count", len(n.Pods))
	}
	if text := log.String(); strings.Count(text, "so large") != 1 || !strings.Contains(text, "pod=default/labeled") {
		t.Error(text)
	}
}
