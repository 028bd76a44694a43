package nightly

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"outboard.dev/outboard/test/theater"
)

// kubelet serves port-forwards to the loopback address of this machine, as a kubelet does for pods
// on the network of its host, and nothing else. It returns its port.
func kubelet(t *testing.T) int32 {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/portForward/outboard-system/") {
			http.NotFound(w, r)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			return // it has responded
		}
		streams := make(chan httpstream.Stream, 2)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if connection == nil {
			return
		}
		defer connection.Close()
		pair := map[string]httpstream.Stream{}
		for range 2 {
			s := <-streams
			pair[s.Headers().Get(corev1.StreamType)] = s
		}
		failures, data := pair[corev1.StreamTypeError], pair[corev1.StreamTypeData]
		target, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", data.Headers().Get(corev1.PortHeader)))
		if err != nil {
			_, _ = fmt.Fprint(failures, err)
			_ = failures.Close()
			<-connection.CloseChan()
			return
		}
		defer target.Close()
		_ = failures.Close()
		go func() { _, _ = io.Copy(target, data) }()
		_, _ = io.Copy(data, target)
		_ = data.Close()
	}))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// host makes the kubelet at the port that of the node.
func host(th *theater.Theater, node string, port int32) {
	th.T.Helper()
	n, err := th.Client.CoreV1().Nodes().Get(th.Ctx, node, metav1.GetOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	if _, err := th.Client.CoreV1().Nodes().UpdateStatus(th.Ctx, n, metav1.UpdateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

const schedulerInPod = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: outboard-scheduler, namespace: outboard-system}
spec:
  selector: {matchLabels: {app: scheduler}}
  template: &template
    metadata: {labels: {app: scheduler}}
    spec: &spec
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: kube-scheduler
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        image: registry.k8s.io/kube-scheduler:v1.37.0
        command: [kube-scheduler, --config=/etc/scheduler/scheduler.yaml, --secure-port=PORT]
        volumeMounts: [{name: config, mountPath: /etc/scheduler}]
      volumes: [{name: config, configMap: {name: scheduler-5g7h}}]
`

// schedulerPod creates the Deployment whose pod runs the scheduler, and the pod, which started at a
// time, in place of a former one.
func schedulerPod(th *theater.Theater, node, port string, started time.Time) {
	th.T.Helper()
	if out, err := th.Kubectl(th.Ctx, "-n", "outboard-system", "delete", "pod", "outboard-scheduler-6d5f-x1", "--ignore-not-found", "--force").CombinedOutput(); err != nil {
		th.T.Fatalf("%v: %s", err, out)
	}
	_, template, _ := strings.Cut(strings.ReplaceAll(schedulerInPod, "PORT", port), "  template: &template\n")
	template = strings.ReplaceAll(regexp.MustCompile(`(?m)^    `).ReplaceAllString(template, ""), "spec: &spec\n", "spec:\n  nodeName: "+node+"\n")
	deployment := strings.NewReplacer("PORT", port, " &template", "", " &spec", "").Replace(schedulerInPod)
	pod := "---\napiVersion: v1\nkind: Pod\n" + strings.Replace(template, "metadata: {", "metadata: {name: outboard-scheduler-6d5f-x1, namespace: outboard-system, ", 1)
	th.Apply([]byte(deployment+pod), "-f", "-")
	p, err := th.Client.CoreV1().Pods("outboard-system").Get(th.Ctx, "outboard-scheduler-6d5f-x1", metav1.GetOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "kube-scheduler", Image: "kube-scheduler", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
	}}
	if _, err := th.Client.CoreV1().Pods("outboard-system").UpdateStatus(th.Ctx, p, metav1.UpdateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// fileLine is a line of tlsConfig with the name of a file.
var fileLine = regexp.MustCompile(`(?m)^(\s+)(ca|cert|key)File: (.*)$`)

// withData returns the configuration with the content of certificates and keys instead of the names
// of files, and the keys.
func withData(t *testing.T, config string) (_ string, keys []string) {
	return fileLine.ReplaceAllStringFunc(config, func(line string) string {
		m := fileLine.FindStringSubmatch(line)
		text, err := os.ReadFile(m[3])
		if err != nil {
			t.Fatal(err)
		}
		data := base64.StdEncoding.EncodeToString(text)
		if m[2] == "key" {
			keys = append(keys, data)
		}
		return m[1] + m[2] + "Data: " + data
	}), keys
}

// notRestarted returns the finding about a kube-scheduler that must be restarted, as text; "" if
// there is none.
func notRestarted(r theater.DoctorsReport) string {
	for _, f := range r.Findings {
		if f.Code == "SchedulerNotRestarted" {
			return f.Text()
		}
	}
	return ""
}

// notLoaded returns why it is unknown what kube-scheduler has loaded; "" if it is known.
func notLoaded(r theater.DoctorsReport) string {
	for _, o := range r.NotChecked {
		if strings.HasSuffix(o.What, " has loaded") {
			return o.Why
		}
	}
	return ""
}

// The ConfigMap of a real kube-scheduler changes to another preset, and nobody restarts it.
// outboard check --scheduler reads what it has loaded, through a port-forward of the real API
// server.
func TestDoctorFindsASchedulerThatWasNotRestarted(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("n1", 2, 16))
	host(th, "n1", kubelet(t))
	preset := func(name string) string {
		text, err := os.ReadFile(filepath.Join(th.Root, "deploy", "chart", "presets", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	o := th.Outboard("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving:\n  tls: {certFile: server.crt, keyFile: server.key, clientCAFile: ca.crt, allowedClients: [kube-scheduler]}\n" + preset("gpushare.yaml"))
	config := func(name string) (string, []string) {
		text, err := o.SchedulerConfig(preset(name))
		if err != nil {
			t.Fatal(err)
		}
		return withData(t, text)
	}
	former, keys := config("utilization-scheduler.yaml")
	current, _ := config("gpushare-scheduler.yaml")
	if len(keys) == 0 {
		t.Fatalf("no key in:\n%s", former)
	}
	address, err := url.Parse(th.Scheduler(former).URL())
	if err != nil {
		t.Fatal(err)
	}
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	started := time.Now().Add(-time.Hour)
	schedulerPod(th, "n1", address.Port(), started)
	mounts := func(config string) {
		t.Helper()
		m := corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"scheduler.yaml": config}}
		m.Namespace, m.Name = "outboard-system", "scheduler-5g7h"
		text, err := json.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		th.Apply(text, "--server-side", "-f", "-")
	}

	mounts(former)
	r := th.InNamespace(th.Kubeconfig())
	if found, unknown := notRestarted(r), notLoaded(r); found != "" || unknown != "" {
		t.Errorf("the configuration is that which is loaded: %q, not checked: %q", found, unknown)
	}

	mounts(current)
	r = th.InNamespace(th.Kubeconfig())
	for _, want := range []string{"[ERROR SchedulerNotRestarted]", "configmap outboard-system/scheduler-5g7h scheduler.yaml:", "extenders[0].bindVerb is not set, and bind in the file"} {
		if !strings.Contains(notRestarted(r), want) {
			t.Errorf("%q is not in %q, not checked: %q", want, notRestarted(r), notLoaded(r))
		}
	}
	for _, key := range keys {
		if strings.Contains(r.Text, key) || strings.Contains(r.Text, key[:40]) {
			t.Error("the report has a key")
		}
	}

	// A user with a token does not show it to the pod.
	th.Apply([]byte(`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "outboard", "namespace": "outboard-system"}}`), "-f", "-")
	th.Apply([]byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: outboard, namespace: outboard-system}]
`), "-f", "-")
	token := th.ServiceAccount("outboard")
	r = th.InNamespace(token)
	if found, unknown := notRestarted(r), notLoaded(r); found != "" || !strings.Contains(unknown, "no client certificate") {
		t.Errorf("found %q, not checked: %q", found, unknown)
	}

	// Users with fewer permissions, and a kube-scheduler that does not listen.
	user, err := th.AddUser("reader")
	if err != nil {
		t.Fatal(err)
	}
	th.Apply([]byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: doctor}
rules:
- {apiGroups: [""], resources: [nodes, pods, services, configmaps], verbs: [get, list]}
- {apiGroups: [apps], resources: [deployments], verbs: [list]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: doctor-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doctor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`), "-f", "-")
	forward := `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: doctor}
rules:
- {apiGroups: [""], resources: [nodes, pods, services, configmaps], verbs: [get, list]}
- {apiGroups: [apps], resources: [deployments], verbs: [list]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list]}
- {apiGroups: [""], resources: [pods/portforward], verbs: [create]}
`
	for _, tt := range []struct{ name, role, want string }{
		{"may not forward ports", "", "forbidden"},
		{"may not read /configz", forward, "kube-scheduler does not allow the user to get /configz (status 403)"},
		{"may", forward + "- {nonResourceURLs: [/configz], verbs: [get]}\n", ""},
	} {
		if tt.role != "" {
			th.Apply([]byte(tt.role), "-f", "-")
		}
		th.Eventually(tt.name, func() bool { // the API server and kube-scheduler learn of permissions a moment later
			unknown := notLoaded(th.InNamespace(user.Kubeconfig))
			return unknown == tt.want || tt.want != "" && strings.Contains(unknown, tt.want)
		})
	}
	schedulerPod(th, "n1", "1", time.Now().Add(time.Hour))
	if unknown := notLoaded(th.InNamespace(th.Kubeconfig())); !strings.Contains(unknown, "connection refused") {
		t.Errorf("nothing listens, and %q", unknown)
	}
}
