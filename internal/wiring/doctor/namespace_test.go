package doctor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

const (
	inNamespace = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100
leaderElection: {leaderElect: false}
profiles: [{schedulerName: second}]
extenders:
- urlPrefix: https://outboard.outboard-system.svc
  filterVerb: filter
  nodeCacheCapable: true
  httpTimeout: 3s
  ignorable: true
  enableHTTPS: true
  tlsConfig: {caFile: /etc/scheduler/tls/ca.crt, certFile: /etc/scheduler/tls/tls.crt, keyFile: /etc/scheduler/tls/tls.key}
`
	ofOutboard = `apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: "0.0.0.0:8443", tls: {certFile: ../tls/tls.crt, keyFile: ../tls/tls.key, clientCAFile: ../tls/ca.crt, allowedClients: [kube-scheduler]}}
profiles:
- policies: [{type: ImageLocality}]
`
	schedulerDeployment = `
metadata: {name: scheduler, namespace: ns}
spec:
  template:
    spec:
      containers:
      - name: kube-scheduler
        command: [kube-scheduler]
        args: [--v, "2", --config, /etc/scheduler/config/scheduler.yaml]
        volumeMounts:
        - {name: other, mountPath: /etc}
        - {name: config, mountPath: /etc/scheduler/config}
        - {name: tls, mountPath: /etc/scheduler/tls}
      volumes:
      - {name: other, emptyDir: {}}
      - {name: config, configMap: {name: scheduler-7k8f, items: [{key: wiring, path: scheduler.yaml}]}}
      - {name: tls, secret: {secretName: client}}
`
	outboardDeployment = `
metadata: {name: outboard, namespace: ns}
spec:
  template:
    spec:
      containers:
      - name: outboard
        command: [/outboard, serve, --config=outboard.yaml]
        workingDir: /etc/outboard/config
        volumeMounts:
        - {name: config, mountPath: /etc/outboard/config}
        - {name: tls, mountPath: /etc/outboard/tls}
      volumes:
      - {name: config, configMap: {name: outboard}}
      - name: tls
        projected: {sources: [{secret: {name: server}}, {configMap: {name: authorities, items: [{key: client-ca, path: ca.crt}]}}]}
`
)

var types = config.Types{Policies: standard.Types(), Signals: signals.Types()}

// namespace returns a cluster with Deployments and the objects that they mount.
func namespace(t *testing.T, deployments ...string) *doctor.Cluster {
	t.Helper()
	c := &doctor.Cluster{Version: "v1.34.0"}
	for _, text := range deployments {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		c.Deployments = append(c.Deployments, d)
	}
	files := certificatesOf(t)
	read := func(name string) []byte {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	maps := map[string]map[string]string{
		"ns/scheduler-7k8f": {"wiring": inNamespace},
		"ns/outboard":       {"outboard.yaml": ofOutboard},
		"ns/authorities":    {"client-ca": string(read("ca.crt"))},
	}
	secrets := map[string]map[string][]byte{
		"ns/client": {"ca.crt": read("ca.crt"), "tls.crt": read("client.crt"), "tls.key": read("client.key")},
		"ns/server": {"ca.crt": []byte("not this one"), "tls.crt": read("server.crt")},
	}
	c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) {
		if data, ok := maps[namespace+"/"+name]; ok {
			return &corev1.ConfigMap{Data: data}, nil
		}
		return nil, errors.New("configmaps " + name + " not found")
	}
	c.Secret = func(namespace, name string) (*corev1.Secret, error) {
		if data, ok := secrets[namespace+"/"+name]; ok {
			return &corev1.Secret{Data: data}, nil
		}
		return nil, errors.New("secrets " + name + " not found")
	}
	return c
}

// fromNamespace returns the codes of findings and the omissions for a cluster.
func fromNamespace(t *testing.T, in doctor.Input) (codes []string, places map[string]string, omissions string) {
	t.Helper()
	in.Now = now
	if err := in.FromNamespace("ns", types); err != nil {
		t.Fatal(err)
	}
	findings, all, err := doctor.Check(in)
	if err != nil {
		t.Fatal(err)
	}
	places = map[string]string{}
	for _, f := range findings {
		codes = append(codes, f.Code)
		places[f.Code] = f.Text()
	}
	return codes, places, doctor.OmissionsText(all)
}

// Both configurations and the certificates of both sides come from the cluster.
func TestFromNamespace(t *testing.T) {
	c := namespace(t, schedulerDeployment, outboardDeployment)
	_, places, omissions := fromNamespace(t, doctor.Input{Cluster: c})
	for _, code := range []string{"ServerCertificate", "ClientCertificate", "ProfileNotCalled"} {
		if places[code] != "" {
			t.Error(places[code])
		}
	}
	if diff := cmp.Diff("not checked: the running kube-scheduler (no pod of the cluster runs it with this file)\n", omissions); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}

	// What is wrong is reported with its place.
	c = namespace(t, schedulerDeployment, outboardDeployment)
	read := c.ConfigMap
	replace := func(old, new string) {
		c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) {
			m, err := read(namespace, name)
			if name == "scheduler-7k8f" {
				m.Data["wiring"] = strings.Replace(m.Data["wiring"], old, new, 1)
			}
			return m, err
		}
	}
	replace("outboard.outboard-system.svc", "outboard.ns.svc")
	_, places, _ = fromNamespace(t, doctor.Input{Cluster: c})
	if want := "configmap ns/scheduler-7k8f wiring:13: [ERROR ServerCertificate] "; !strings.HasPrefix(places["ServerCertificate"], want) {
		t.Errorf("%v does not begin with %q", places, want)
	}

	// The second scheduler has a Role for leases in its own namespace.
	replace("leaderElect: false", "leaderElect: true")
	_, places, _ = fromNamespace(t, doctor.Input{Cluster: c})
	if want := "set leaderElection.resourceName: second and leaderElection.resourceNamespace: ns"; !strings.Contains(places["WrongLease"], want) {
		t.Errorf("%q does not say %q", places["WrongLease"], want)
	}
}

// A Secret of the cluster lacks a key that kube-scheduler's configuration names.
func TestFromNamespaceMissingKey(t *testing.T) {
	c := namespace(t, schedulerDeployment, outboardDeployment)
	read := c.Secret
	c.Secret = func(namespace, name string) (*corev1.Secret, error) {
		s, err := read(namespace, name)
		if name == "client" {
			delete(s.Data, "tls.key")
		}
		return s, err
	}
	_, places, omissions := fromNamespace(t, doctor.Input{Cluster: c})
	if want := "configmap ns/scheduler-7k8f wiring:13: [ERROR FileNotFound] extenders[0].tlsConfig.keyFile: secret ns/client tls.key does not exist: there are the keys ca.crt, tls.crt\n"; !strings.HasPrefix(places["FileNotFound"], want) {
		t.Errorf("%v does not begin with %q", places, want)
	}
	if strings.Contains(omissions, "tls.key") {
		t.Error(omissions)
	}
}

// What a flag names is not read from the cluster.
func TestFromNamespaceBesideFiles(t *testing.T) {
	file := strings.ReplaceAll(inNamespace, "/etc/scheduler/tls/", "/tls/")
	files := certificatesOf(t) // of another authority than those in the cluster
	in := doctor.Input{Cluster: namespace(t, outboardDeployment), File: "scheduler.yaml", Data: []byte(file)}
	in.ReadFile = func(name string) ([]byte, error) {
		return files.ReadFile(strings.Replace(strings.TrimPrefix(name, "/tls/"), "tls", "last", 1))
	}
	_, places, _ := fromNamespace(t, in)
	if !strings.Contains(places["ServerCertificate"], "certificate signed by unknown authority") {
		t.Errorf("findings are %v", places)
	}

	in = doctor.Input{Cluster: namespace(t, schedulerDeployment), Config: parseConfig(t, []byte(ofOutboard)), ConfigFile: "outboard.yaml"}
	if _, places, _ = fromNamespace(t, in); !strings.HasPrefix(places["NoEndpoints"], "configmap ns/scheduler-7k8f wiring:7: ") {
		t.Errorf("findings are %v", places)
	}
}

func TestFromNamespaceFails(t *testing.T) {
	static := corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Command: []string{"kube-scheduler", "--config=/etc/kubernetes/scheduler.yaml"}}}}}
	static.Namespace, static.Name = "kube-system", "kube-scheduler-n1"
	other := strings.NewReplacer("name: scheduler, namespace", "name: another, namespace").Replace(schedulerDeployment)
	for _, tt := range []struct {
		name        string
		deployments []string
		pods        []corev1.Pod
		want        []string
	}{
		{"no Deployment", nil, []corev1.Pod{static}, []string{"no Deployment in ns runs kube-scheduler", "copy kube-scheduler's configuration to a FILE", "pod kube-system/kube-scheduler-n1 reads /etc/kubernetes/scheduler.yaml on node n1"}},
		{"two", []string{schedulerDeployment, other}, nil, []string{"several configurations", "configmap ns/scheduler-7k8f wiring"}},
		{"no ConfigMap", []string{strings.Replace(schedulerDeployment, "scheduler-7k8f", "gone", 1)}, nil, []string{"deployment ns/scheduler: configmaps gone not found"}},
		{"no key", []string{strings.Replace(schedulerDeployment, "key: wiring", "key: none", 1)}, nil, []string{"configmap ns/scheduler-7k8f none does not exist"}},
		{"not from a ConfigMap", []string{strings.Replace(schedulerDeployment, "--config, /etc/scheduler", "--config, /var", 1)}, nil, []string{"no Deployment in ns runs"}},
		{"an invalid configuration of Outboard", []string{schedulerDeployment, strings.Replace(outboardDeployment, "configMap: {name: outboard}", "configMap: {name: outboard, items: [{key: outboard.yaml, path: outboard.yaml}]}", 1)}, nil, []string{"configmap ns/outboard outboard.yaml:4: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := namespace(t, tt.deployments...)
			c.Pods = tt.pods
			read := c.ConfigMap
			c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) {
				m, err := read(namespace, name)
				if name == "outboard" {
					m.Data["outboard.yaml"] = strings.Replace(ofOutboard, "profiles", "profile", 1)
				}
				return m, err
			}
			in := doctor.Input{Cluster: c, Now: now}
			err := in.FromNamespace("ns", types)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// Without a ConfigMap of Outboard, the rest is checked.
func TestFromNamespaceWithoutOutboard(t *testing.T) {
	_, _, omissions := fromNamespace(t, doctor.Input{Cluster: namespace(t, schedulerDeployment)})
	if want := "not checked: Outboard's configuration (0 Deployments in ns run it with a configuration from a ConfigMap: FILE names it)\n"; !strings.HasPrefix(omissions, want) {
		t.Errorf("got %s\nwant %s", omissions, want)
	}
	c := namespace(t, schedulerDeployment, outboardDeployment)
	c.Secret = func(string, string) (*corev1.Secret, error) { return nil, errors.New("secrets is forbidden") }
	_, _, omissions = fromNamespace(t, doctor.Input{Cluster: c})
	if want := "not checked: /etc/outboard/tls/tls.crt, /etc/scheduler/tls/ca.crt, /etc/scheduler/tls/tls.crt, /etc/scheduler/tls/tls.key (secrets is forbidden)\n"; !strings.HasPrefix(omissions, want) {
		t.Errorf("got %s\nwant %s", omissions, want)
	}
}
