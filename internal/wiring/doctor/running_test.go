package doctor_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// kube-scheduler reads CAs only when it starts. Its Secret gets a second CA, and then Outboard a certificate of it.
func TestNewerCA(t *testing.T) {
	started := now.Add(-24 * time.Hour)
	authority := func(begin time.Time) *certs.Authority {
		ca, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: fmt.Sprintf("made %s", begin.Format(time.DateOnly)), NotBefore: begin, NotAfter: now.AddDate(5, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	older, newer := authority(now.AddDate(-1, 0, 0)), authority(now.Add(-time.Hour))
	serving := func(ca *certs.Authority) []byte {
		pair, err := ca.Issue(certs.Request{CommonName: "outboard", Hosts: []string{"outboard.outboard-system.svc"}, Server: true, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Cert
	}
	pem := func(all ...*certs.Authority) (text []byte) {
		for _, ca := range all {
			text = append(text, ca.Pair().Cert...)
		}
		return text
	}
	before, after := started.Add(-time.Hour), started.Add(time.Hour)
	for _, tt := range []struct {
		name    string
		cas     []byte
		server  []byte
		changed time.Time
		want    string // the begin of the finding
	}{
		{"nothing changed", pem(older), serving(older), before, ""},
		{"a certificate was renewed", pem(older), serving(older), after, "[NOTE SchedulerNotRestarted] pod ns/scheduler-x started at 2026-05-31T12:00:00Z, and secret ns/client ca.crt changed at 2026-05-31T13:00:00Z: its CAs are older"},
		{"a CA was added", pem(newer, older), serving(older), after, `[WARNING SchedulerNotRestarted] pod ns/scheduler-x started at 2026-05-31T12:00:00Z, and secret ns/client ca.crt changed at 2026-05-31T13:00:00Z: the CA "made 2026-06-01" is newer`},
		{"a CA was added, and its use began", pem(newer, older), serving(newer), after, "[ERROR SchedulerNotRestarted] "},
		{"the CA was replaced", pem(newer), serving(newer), after, "[ERROR SchedulerNotRestarted] "},
		{"kube-scheduler was restarted", pem(newer, older), serving(newer), before, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := namespace(t, schedulerDeployment, outboardDeployment)
			pod := corev1.Pod{Spec: c.Deployments[0].Spec.Template.Spec}
			pod.Namespace, pod.Name = "ns", "scheduler-x"
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "kube-scheduler", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}
			c.Pods = append(c.Pods, pod)
			read := c.Secret
			c.Secret = func(namespace, name string) (*corev1.Secret, error) {
				s, err := read(namespace, name)
				switch name {
				case "client":
					s.Data["ca.crt"] = tt.cas
					s.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: tt.changed}, FieldsV1: metav1.NewFieldsV1(`{"f:data": {"f:ca.crt": {}, "f:tls.crt": {}}}`)}}
				case "server":
					s.Data["tls.crt"] = tt.server
				}
				return s, err
			}
			c.Configz = func(string, string, int) ([]byte, error) { return nil, errors.New("cannot be read") }
			_, places, omissions := fromNamespace(t, doctor.Input{Cluster: c})
			if got := places["SchedulerNotRestarted"]; (got == "") != (tt.want == "") || !strings.HasPrefix(got, strings.TrimSuffix("secret ns/client ca.crt: "+tt.want, "secret ns/client ca.crt: ")) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if want := "not checked: what kube-scheduler of pod ns/scheduler-x has loaded (cannot be read)\n"; omissions != want {
				t.Errorf("omitted %q, want %q", omissions, want)
			}
		})
	}
}

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
			findings, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: []byte(text), Cluster: c, Now: now})
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
