package app

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
)

func TestSchedulerConfig(t *testing.T) {
	config := file(t, plain+"profiles:\n- managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n")
	secure := file(t, header+"serving: {tls: {certFile: a, keyFile: b, clientCAFile: c}}\nprofiles: [{policies: [{type: ImageLocality}]}]\n")
	for _, tt := range []struct {
		name string
		args []string
		want []string // in the output, or in the error
	}{
		{"extenders", []string{config}, []string{"urlPrefix: http://127.0.0.1:8888\n", "bindVerb: bind\n", "ignorable: false\n"}},
		{"a Service", []string{config, "--for", "service"}, []string{"note: serving.address is 127.0.0.1:8888, a loopback address", "urlPrefix: https://outboard.outboard-system.svc\n", "schedulerName: outboard-scheduler\n"}},
		{"a Service before a loopback address", []string{secure, "--for", "service"},
			[]string{"serving.address is 127.0.0.1:8443, a loopback address, which only callers on the same machine or in the same pod reach: set serving.address: 0.0.0.0:8443"}},
		{"a second scheduler at a NodePort", []string{config, "--for", "nodeport", "--scheduler-name", "extended-scheduler"},
			[]string{"urlPrefix: https://127.0.0.1:32766\n", "schedulerName: extended-scheduler\n", "resourceName: extended-scheduler\n", "resourceNamespace: outboard-system\n"}},
		{"a second scheduler at a URL", []string{config, "--url", "http://localhost:30036", "--scheduler-name", "extended-scheduler", "--outboard-namespace", "kube-system"},
			[]string{"urlPrefix: http://localhost:30036\n", "schedulerName: extended-scheduler\n", "resourceNamespace: kube-system\n"}},
		{"a kubeconfig", []string{config, "--scheduler-kubeconfig", "/etc/scheduler.conf"}, []string{"clientConnection:\n  kubeconfig: /etc/scheduler.conf\n"}},
		{"a relative kubeconfig", []string{config, "--scheduler-kubeconfig", "scheduler.conf"}, []string{"must be an absolute path"}},
		{"a name for the cluster's own", []string{config, "--for", "kubeadm", "--url", "https://10.96.0.20", "--dir", "x", "--scheduler-name", "a"},
			[]string{"leave out --scheduler-name, or run a second scheduler with --for service, sidecar or nodeport"}},
		{"topology", []string{config, "--for", "kind"}, []string{`--for="kind": must be kubeadm, sidecar, service or nodeport`}},
		{"several files", []string{config, "--for", "kubeadm"}, []string{"give a directory with --dir"}},
		{"an invalid configuration", []string{file(t, header)}, []string{"the configuration is not valid:\n", "profiles"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := execute(t, append([]string{"setup", "scheduler"}, tt.args...)...)
			if err != nil {
				out = err.Error()
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
		})
	}
}

func TestSchedulerConfigWritesFiles(t *testing.T) {
	config := file(t, plain+"profiles:\n- policies: [{type: ImageLocality}]\n")
	dir := filepath.Join(t.TempDir(), "wiring")
	out, err := execute(t, "setup", "scheduler", config, "--for", "kubeadm", "--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(out)
	if len(names) != 2 {
		t.Fatalf("the files are %q", names)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil || len(text) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever kube-scheduler calls, the certificate that outboard setup certs creates is for it, or for the name that it expects.
func TestSchedulerConfigFitsTheCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	if _, err := execute(t, "setup", "certs", "--dir", dir, "--outboard-namespace", "sched"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "server.crt"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := certs.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	cert := all[0]
	anywhere := file(t, header+"serving: {address: ':8443', tls: {certFile: a, keyFile: b, clientCAFile: c}}\nprofiles: [{policies: [{type: ImageLocality}]}]\n")
	address := file(t, header+"serving: {address: '10.0.0.5:8443', tls: {certFile: a, keyFile: b, clientCAFile: c}}\nprofiles: [{policies: [{type: ImageLocality}]}]\n")
	for _, args := range [][]string{
		{address},
		{anywhere, "--url", "https://10.0.0.5"},
		{anywhere, "--url", "https://10.0.0.5:8443"},
		{anywhere, "--url", "https://[2001:db8::5]:8443"},
		{anywhere, "--url", "https://[::1]:8443"},
		{anywhere, "--url", "https://127.0.0.1:8443"},
		{anywhere, "--url", "https://127.0.0.2:8443"},
		{anywhere, "--url", "https://localhost:8443", "--scheduler-name", "a"},
		{anywhere, "--for", "nodeport", "--scheduler-name", "a"},
		{anywhere, "--for", "nodeport", "--url", "https://10.0.0.5:32766"},
		{anywhere, "--for", "service"},
		{anywhere, "--for", "service", "--url", "https://10.96.0.20"},
		{anywhere, "--for", "sidecar"},
	} {
		out, err := execute(t, append([]string{"setup", "scheduler", "--outboard-namespace", "sched"}, args...)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		var c schedulerv1.KubeSchedulerConfiguration
		if err := yaml.Unmarshal([]byte(out), &c); err != nil || len(c.Extenders) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		called, err := url.Parse(c.Extenders[0].URLPrefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := cert.VerifyHostname(cmp.Or(c.Extenders[0].TLSConfig.ServerName, called.Hostname())); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}
