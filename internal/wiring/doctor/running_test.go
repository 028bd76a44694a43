package doctor_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/wiring/doctor"
)

// Certificates in the configuration are compared, whatever their line breaks; keys are neither compared nor printed.
func TestLoadedData(t *testing.T) {
	files := certificatesOf(t)
	data := func(name string) string {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(text)
	}
	const scheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: https://127.0.0.1:8443
  filterVerb: filter
  enableHTTPS: true
  tlsConfig: {caData: "%s\n%s", certData: %s, keyData: %s}
`
	ca := data("ca.crt")
	text := fmt.Sprintf(scheduler, ca[:64], ca[64:], data("client.crt"), data("client.key"))
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"kube-scheduler"}}}}}
	pod.Namespace, pod.Name = "kube-system", "kube-scheduler"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, tt := range []struct{ name, ca, key, want string }{
		{"the same", ca, data("client.key"), ""},
		{"another CA", data("soon.crt"), data("client.key"), "extenders[0].tlsConfig.caData is not that of the file"},
		{"another key", ca, data("server.key"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &doctor.Cluster{Version: "v1.37.0", Pods: []corev1.Pod{pod}}
			c.Configz = func(string, string, int) ([]byte, error) {
				return fmt.Appendf(nil, `{"componentconfig": {"kind": "KubeSchedulerConfiguration", "profiles": [{"schedulerName": "default-scheduler"}], "extenders": [{"urlPrefix": "https://127.0.0.1:8443",
"filterVerb": "filter", "enableHTTPS": true, "httpTimeout": "0s", "tlsConfig": {"caData": %q, "certData": %q, "keyData": %q}}]}}`, tt.ca, data("client.crt"), tt.key), nil
			}
			findings, _, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: []byte(text), Cluster: c, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, f := range findings {
				if f.Code == "SchedulerNotRestarted" {
					found = f.Message
				}
			}
			if (found == "") != (tt.want == "") || !strings.HasSuffix(found, tt.want) || strings.Contains(found, ca[:40]) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}
