package snapshot_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

func node(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
	}
	return n
}

// pod returns a pod in namespace "ns" with its name as UID, on the node.
func pod(name, nodeName string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: nodeName},
	}
}

func withVersion[T metav1.Object](object T, version string) T {
	object.SetResourceVersion(version)
	return object
}

func budget(namespace, name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// show writes a view as one line: every node in order with its pods, then the
// budgets in the namespaces a and b.
func show(v *snapshot.View) string {
	var parts []string
	for n := range v.All() {
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Name)
		}
		parts = append(parts, fmt.Sprintf("%s[%s]", n.Name, strings.Join(pods, " ")))
	}
	for _, namespace := range []string{"a", "b"} {
		for b := range v.DisruptionBudgets(namespace) {
			parts = append(parts, namespace+"/"+b.Name())
		}
	}
	return strings.Join(parts, " ")
}
