package doctor_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/wiring/doctor"
)

func TestOmissions(t *testing.T) {
	const (
		scheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: https://192.0.2.1:8443
  filterVerb: filter
  nodeCacheCapable: true
  enableHTTPS: true
  tlsConfig: {caFile: /tls/ca.crt, certFile: /tls/client.crt, keyFile: /tls/client.key}
`
		outboard = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {tls: {certFile: /tls/server.crt, keyFile: /tls/server.key, clientCAFile: /tls/secret.crt}}
profiles:
- policies: [{type: ImageLocality}]
`
	)
	read := certificatesOf(t)
	kubeScheduler := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"kube-scheduler", "--config=scheduler.yaml"}}}}}
	kubeScheduler.Namespace, kubeScheduler.Name = "kube-system", "kube-scheduler-a"
	for _, tt := range []struct {
		name string
		in   doctor.Input
		want string
	}{
		{"the file alone", doctor.Input{Data: []byte(scheduler)}, `not checked: /tls/ca.crt, /tls/client.crt, /tls/client.key (not on this machine)
not checked: Outboard's configuration (FILE names it)
not checked: the cluster (--cluster reads it)
not checked: what differs between versions of kube-scheduler (--kubernetes-version names the version)
`},
		{"no certificates", doctor.Input{Data: []byte(scheduler), Config: parseConfig(t, []byte(outboard)), Version: "1.37"}, `not checked: /tls/server.crt, /tls/ca.crt, /tls/client.crt, /tls/client.key (not on this machine)
not checked: the cluster (--cluster reads it)
`},
		{"certificates that cannot be read", doctor.Input{Data: []byte(scheduler), Config: parseConfig(t, []byte(outboard)), Version: "1.37", ReadFile: func(name string) ([]byte, error) {
			if name == "/tls/secret.crt" {
				return nil, errors.New("open /tls/secret.crt: permission denied")
			}
			return read.ReadFile(name[len("/tls/"):])
		}}, `not checked: /tls/secret.crt (open /tls/secret.crt: permission denied)
not checked: the cluster (--cluster reads it)
`},
		{"a cluster without kube-scheduler", doctor.Input{Data: []byte(scheduler), Config: parseConfig(t, []byte(outboard)), Cluster: &doctor.Cluster{Version: "v1.37.0"}, ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }},
			`not checked: /tls/server.crt, /tls/ca.crt, /tls/client.crt, /tls/client.key (not on this machine)
not checked: the running kube-scheduler (no pod of the cluster runs it with this file)
not checked: whether an extender listens at 192.0.2.1:8443 (no Service has this address)
`},
		{"a cluster", doctor.Input{Data: []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"), Config: parseConfig(t, []byte(outboard)),
			Cluster: &doctor.Cluster{Version: "v1.37.0", Pods: []corev1.Pod{kubeScheduler}}}, "not checked: what kube-scheduler of pod kube-system/kube-scheduler-a has loaded (it is not running)\n"},
		{"the plugin", doctor.Input{Version: "1.37", Data: []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n" +
			"- plugins: {multiPoint: {enabled: [{name: Outboard}]}, bind: {enabled: [{name: Outboard}]}}\n  pluginConfig: [{name: Outboard, args: {configFile: /etc/outboard.yaml}}]\n")},
			"not checked: /etc/outboard.yaml (not on this machine)\nnot checked: what the policies of Outboard's plugin need in profiles[0].plugins (its configuration is not known: FILE names it)\nnot checked: the cluster (--cluster reads it)\n"},
		{"another document", doctor.Input{Data: []byte("kind: Pod"), Version: "1.37"}, "not checked: the fields of the file (it must be readable first)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.File, tt.in.Now, tt.in.ReadConfigFile = "scheduler.yaml", now, tt.in.ReadFile
			all, err := doctor.Omissions(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, doctor.OmissionsText(all)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}
