package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// workerPod has environment variables, which an error must not contain.
func workerPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "inference-7d9c5b6f4-x2x8k", Namespace: "ml-serving",
		UID: "0b7e3c1a-5f0e-4d9b-8c55-7a1a5f0e4d9b", ResourceVersion: "981299113",
		Annotations: map[string]string{"sidecar.istio.io/status": `{"containers":["istio-proxy"]}`},
	}}
	for k := range 2 {
		c := corev1.Container{Name: fmt.Sprintf("container-%d", k)}
		for e := range 14 {
			c.Env = append(c.Env, corev1.EnvVar{
				Name: fmt.Sprintf("SETTING_%02d", e), Value: fmt.Sprintf("value-of-setting-%02d", e),
			})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// tester is the common part of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func marshal(tb tester, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// namesBody is kube-scheduler's body with nodeCacheCapable: true.
func namesBody(tb testing.TB, nodes int) []byte {
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i>>8, i&255)
	}
	return marshal(tb, &extenderv1.ExtenderArgs{Pod: workerPod(), NodeNames: &names})
}
