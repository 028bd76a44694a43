package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RetryAnnotation is written to a pod that waits, so that kube-scheduler tries it again: when.
const RetryAnnotation = "outboard.dev/retry"

// RetryPod makes kube-scheduler try the pod again if it waits there, once: any change of an unscheduled pod does. found is
// false if there is no pod of that name with that UID. An error is the API server's: see apierrors.IsForbidden.
func (c *Cluster) RetryPod(ctx context.Context, namespace, name string, uid types.UID) (found bool, err error) {
	_, err = c.stamp(ctx, namespace, name, uid, RetryAnnotation)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return false, nil
	}
	return err == nil, err
}

// stamp writes the time into an annotation of the pod. A pod of that name with another UID is not changed: to the API server
// the patch is invalid then, because a UID cannot be. The patch goes to the pod's status, which takes annotations, too, so that
// nobody needs the permission to change what pods run.
func (c *Cluster) stamp(ctx context.Context, namespace, name string, uid types.UID, annotation string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.BindTimeout)
	defer cancel()
	now := time.Now().UTC().Format(time.RFC3339Nano)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]string{annotation: now}}})
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	pod, err := c.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && pod.Annotations[annotation] != now {
		return nil, fmt.Errorf("pod %s/%s: the API server did not keep the annotation %s, and the pod has not changed", namespace, name, annotation)
	}
	return pod, err
}
