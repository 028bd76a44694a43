package cluster

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pods share memory although all that is known of them is that they are being
// read, and although there are many templates.
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
