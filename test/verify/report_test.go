package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestReportInText(t *testing.T) {
	o := quick(Options{
		URL: strings.Replace(serve(t, scored(func(s *extenderv1.HostPriorityList) { add(s, 90) })()), "http://", "http://user:password@", 1),
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2"}}}},
		}},
	})
	prioritize(&o)
	report := mustRun(t, o)
	written := text(t, report)
	for _, want := range []string{
		"✗ score-range ", "✓ score-once ", "– subset ", "(filter is not checked)",
		"✗ score-range (error): scores are between 0 and 10\n    sent  POST prioritize: 10 nodes, names mode\n    got   200 OK, ",
		"which is not between 0 and 10", "In kube-scheduler: Scores are not clamped", "(failed: 1 error, 1 warning, 0 note)",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("the text has no %q:\n%s", want, written)
		}
	}
	for _, secret := range []string{"hunter2", "password"} {
		if strings.Contains(written, secret) {
			t.Errorf("the report shows %q", secret)
		}
	}
}
