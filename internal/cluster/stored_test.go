package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A pod that the API server has not changed, although it accepted the request, does not count as changed: its allocation would be released while a
// Binding can still succeed. An admission webhook may remove annotations.
func TestTouchThatIsNotStored(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}
	client := fake.NewClientset(pod)
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pod, nil })
	c := &Cluster{client: client, State: NewState(), options: Options{BindTimeout: time.Minute, LookupTimeout: time.Minute}}
	if touched, err := c.TouchPod(t.Context(), "ns", "p", "p"); err == nil || !strings.Contains(err.Error(), "did not store") {
		t.Errorf("got %v, %v", touched, err)
	}
}
