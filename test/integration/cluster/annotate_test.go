package cluster_test

import (
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

// RetryPod changes exactly this pod, and reports whether it may and whether the pod exists.
func TestRetryPod(t *testing.T) {
	cp, client := sharedServer(t)
	c := run(t, cluster.Options{Config: cp.AdminConfig()})
	pod := createPod(t, client, controlplane.PodSpec{Name: "retry", Annotations: map[string]string{"mine": "kept"}})
	if found, err := c.RetryPod(t.Context(), pod.Namespace, pod.Name, "another"); found || err != nil {
		t.Errorf("another pod of that name: %v, %v", found, err)
	}
	if found, err := c.RetryPod(t.Context(), pod.Namespace, "no-such-pod", pod.UID); found || err != nil {
		t.Errorf("a pod that does not exist: %v, %v", found, err)
	}
	read := func() (version, at string) {
		now, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.Annotations["mine"] != "kept" {
			t.Errorf("got annotations %v", now.Annotations)
		}
		return now.ResourceVersion, now.Annotations[cluster.RetryAnnotation]
	}
	if version, at := read(); version != pod.ResourceVersion || at != "" {
		t.Errorf("version %s after %s, annotation %q: RetryPod changed the pod", version, pod.ResourceVersion, at)
	}
	var before string
	for range 2 { // every call changes the pod
		if found, err := c.RetryPod(t.Context(), pod.Namespace, pod.Name, pod.UID); !found || err != nil {
			t.Errorf("%v, %v", found, err)
		}
		version, at := read()
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil || version == before {
			t.Errorf("version %s after %s, annotation %q", version, before, at)
		}
		before = version
	}
	if touched, err := c.TouchPod(t.Context(), pod.Namespace, pod.Name, "another"); touched != nil || err != nil {
		t.Errorf("touching another pod of that name: %v, %v", touched, err)
	}
	if touched, err := c.TouchPod(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil || touched.ResourceVersion == before {
		t.Errorf("touching: %v, %v", touched, err)
	}
}

// NominatePod changes a pod only as the watch has shown it.
func TestNominatePod(t *testing.T) {
	cp, client := sharedServer(t)
	c := run(t, cluster.Options{Config: cp.AdminConfig()})
	created := createPod(t, client, controlplane.PodSpec{Name: "nominate"})
	nominated := func() *corev1.Pod {
		now, err := client.CoreV1().Pods(created.Namespace).Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	for _, step := range []struct {
		pod        *corev1.Pod
		node, want string
	}{{created, "a", "a"}, {created, "b", "a"}, {nil, "c", "c"}, {nil, "", ""}} {
		pod := cmp.Or(step.pod, nominated())
		found, err := c.NominatePod(t.Context(), pod, step.node)
		now := nominated()
		if !found || err != nil || now.Status.NominatedNodeName != step.want || now.Annotations[cluster.RetryAnnotation] == "" {
			t.Errorf("nominated to %q: %v, %v; it is nominated to %q", step.node, found, err, now.Status.NominatedNodeName)
		}
	}
	gone := created.DeepCopy()
	gone.Name = "no-such-pod"
	if found, err := c.NominatePod(t.Context(), gone, "a"); found || err != nil {
		t.Errorf("a pod that does not exist: %v, %v", found, err)
	}
}

func TestRetryPodWithoutPermission(t *testing.T) {
	cp, client := sharedServer(t)
	nobody, err := cp.AddUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	forbidden := run(t, cluster.Options{Config: nobody.Config})
	pod := createPod(t, client, controlplane.PodSpec{Name: "retry"})
	if touched, err := forbidden.TouchPod(t.Context(), pod.Namespace, pod.Name, pod.UID); touched != nil || !apierrors.IsForbidden(err) {
		t.Errorf("touching without permission: %v, %v", touched, err)
	}
	if found, err := forbidden.RetryPod(t.Context(), pod.Namespace, pod.Name, pod.UID); found || !apierrors.IsForbidden(err) {
		t.Errorf("without permission: %v, %v", found, err)
	}
}
