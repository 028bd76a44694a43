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

// RetryAnnotation is set on a pending pod to make kube-scheduler retry it; its value is the time.
const RetryAnnotation = "outboard.dev/retry"

// RetryPod makes kube-scheduler retry the pod once, if it is pending there: any change of an
// unscheduled pod does that. found is false if there is no pod of that name with that UID. An error
// is that of the API server: see apierrors.IsForbidden.
func (c *Cluster) RetryPod(ctx context.Context, namespace, name string, uid types.UID) (found bool, err error) {
	_, err = c.stamp(ctx, namespace, name, uid, RetryAnnotation)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return false, nil
	}
	return err == nil, err
}

// stamp sets an annotation of the pod to the current time. It does not change a pod of that name
// with another UID: the API server rejects such a patch as invalid, because a UID is immutable.
// stamp patches the pod's status, which includes annotations, so that it does not need the
// permission to change the pod's spec.
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
		return nil, fmt.Errorf("pod %s/%s: the API server did not store the annotation %s, and the pod has not changed", namespace, name, annotation)
	}
	return pod, err
}
