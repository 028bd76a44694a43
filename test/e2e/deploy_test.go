package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// The API server accepts the unmodified manifests. With the configurations in their ConfigMaps, the
// certificates in their Secrets and the permissions of their ServiceAccounts, the Job fills these
// Secrets, and Outboard and kube-scheduler place the test pods.
func TestDeploy(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(
		controlplane.NodeSpec{Name: "a"},
		controlplane.NodeSpec{Name: "b", Images: map[string]int64{theater.Nginx: 1 << 27}},
		controlplane.NodeSpec{Name: "c"},
	)
	deploy := filepath.Join(th.Root, "deploy")
	th.Install()
	th.Command("setup", "certs", "--cluster", "--kubeconfig", th.ServiceAccount("outboard-certificates"))

	readByDoctor(th)

	tls := mounted(th)
	config := configMap(t, filepath.Join(deploy, "outboard.yaml"), "outboard.yaml")
	config = strings.ReplaceAll(config, "/etc/outboard/tls/", tls+"/") + fmt.Sprintf("\nclientConnection: {kubeconfig: %q}\n", th.ServiceAccount("outboard"))
	o := th.Outboard(config)
	scheduler, err := o.SchedulerConfig(configMap(t, filepath.Join(deploy, "scheduler.yaml"), "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	th.Scheduler(scheduler + fmt.Sprintf(`
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: true, resourceNamespace: outboard-system, resourceName: outboard-scheduler}
`, th.ServiceAccount("outboard-scheduler")))

	th.Apply(nil, "-f", filepath.Join(deploy, "test-pods.yaml"))
	for _, name := range []string{"web-1", "web-2"} {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "default", name
		if pod = th.AwaitBound(pod); pod.Spec.NodeName != "b" {
			t.Errorf("%s is on %s, its image on b", name, pod.Spec.NodeName)
		}
	}
	third := controlplane.PodSpec{Name: "web-3", Labels: map[string]string{"app": "web"}, SchedulerName: "outboard-scheduler", Image: "nginx"}
	if pod := th.Bound(third); pod.Spec.NodeName == "b" {
		t.Error("web-3 is on b, which has two pods of its kind")
	}
	for _, verb := range []string{"filter", "prioritize", "bind"} {
		if n := th.Metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/placement",verb="`+verb+`"} `); n == "" {
			t.Errorf("no %s call", verb)
		}
	}
	if said := th.Get(o.Admin + "/readyz"); strings.Contains(said, "[!]") {
		t.Errorf("readyz warns:\n%s", said)
	}
}

// With kubectl apply -k, too, a changed file of kube-scheduler changes the template of its pods,
// and nothing else does.
func TestKustomizationStartsNewPods(t *testing.T) {
	th := theater.Open(t)
	deploy := filepath.Join(t.TempDir(), "deploy")
	if err := os.CopyFS(deploy, os.DirFS(filepath.Join(th.Root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	objects := func() (template corev1.PodTemplateSpec, configMaps []string, leases []string) {
		t.Helper()
		out, err := th.Kubectl(th.Ctx, "kustomize", deploy).Output()
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(out, []byte("\n---\n")) {
			var d appsv1.Deployment
			var role rbacv1.Role
			if err := yaml.Unmarshal(doc, &role); err != nil { // all kinds have a name
				t.Fatal(err)
			}
			switch role.Kind + " " + role.Name {
			case "Deployment outboard-scheduler":
				if err := yaml.Unmarshal(doc, &d); err != nil {
					t.Fatal(err)
				}
				template = d.Spec.Template
			case "Role outboard-scheduler-lease":
				leases = role.Rules[1].ResourceNames
			}
			if role.Kind == "ConfigMap" {
				configMaps = append(configMaps, role.Name)
			}
		}
		return template, configMaps, leases
	}
	before, configMaps, leases := objects()
	for _, v := range before.Spec.Volumes {
		if v.ConfigMap != nil && !slices.Contains(configMaps, v.ConfigMap.Name) {
			t.Errorf("the pods refer to the ConfigMap %s, and there are %v", v.ConfigMap.Name, configMaps)
		}
	}
	if !slices.Contains(configMaps, "outboard-scheduler") || !slices.Equal(leases, []string{"outboard-scheduler"}) {
		t.Errorf("the ConfigMaps are %v, and the leases %v", configMaps, leases)
	}
	change := func(file, from, to string) corev1.PodTemplateSpec {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(deploy, file))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(text, []byte(from), []byte(to), 1)
		if err := os.WriteFile(filepath.Join(deploy, file), changed, 0o600); err != nil || bytes.Equal(changed, text) {
			t.Fatalf("%s is the same with %s for %s (%v)", file, to, from, err)
		}
		after, _, _ := objects()
		return after
	}
	if after := change("outboard.yaml", "max: 2", "max: 3"); !reflect.DeepEqual(after, before) {
		t.Error("another limit of pods starts new pods of kube-scheduler")
	}
	if after := change("scheduler.yaml", "httpTimeout: 3s", "httpTimeout: 2s"); reflect.DeepEqual(after, before) {
		t.Error("another file of kube-scheduler starts no new pods")
	}
}

// readByDoctor checks that outboard check --cluster reads both configurations and all certificates
// of the manifests from the cluster, without a finding but that no pod of Outboard runs.
func readByDoctor(th *theater.Theater) {
	th.T.Helper()
	r := th.InNamespace(th.Kubeconfig())
	for _, f := range r.Findings {
		if f.Severity != doctor.Note && f.Code != "NoEndpoints" {
			th.T.Error(f.Text())
		}
		if !strings.HasPrefix(f.File, "configmap outboard-system/outboard") {
			th.T.Errorf("the place of %s is %s", f.Code, f.File)
		}
	}
	for _, o := range r.NotChecked {
		if o.What != "the running kube-scheduler" { // no kubelet runs here
			th.T.Errorf("not checked: %+v", o)
		}
	}
	secret, err := th.Client.CoreV1().Secrets("outboard-system").Get(th.Ctx, "outboard-client", metav1.GetOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	for _, line := range strings.Split(string(secret.Data["tls.key"]), "\n") {
		if len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(r.Text, line) {
			th.T.Error("the report has a key")
		}
	}
}

// New pods that request a GPU get the name of the second scheduler, and others do not.
func TestDeploySetsTheSchedulerName(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	th.Apply(nil, "--server-side", "-f", filepath.Join(th.Root, "deploy", "schedulername.yaml"))
	n := 0
	// The API server applies policies with a delay.
	th.Eventually("the policy is in force", func() bool {
		n++
		return th.Create(theater.GPUPod(fmt.Sprintf("gpu-%d", n), 1)).Spec.SchedulerName == "outboard-scheduler"
	})
	if name := th.Create(controlplane.PodSpec{Name: "web"}).Spec.SchedulerName; name != "default-scheduler" {
		t.Errorf("a pod without a GPU is for %s", name)
	}
	annotated := controlplane.PodSpec{Name: "annotated", Annotations: map[string]string{"nvidia.com/container.main.gpu-memory.limit": "6Gi"}}
	if name := th.Create(annotated).Spec.SchedulerName; name != "outboard-scheduler" {
		t.Errorf("a pod that requests a GPU in an annotation is for %s", name)
	}
	other := theater.GPUPod("other", 1)
	other.SchedulerName = "other-scheduler"
	if name := th.Create(other).Spec.SchedulerName; name != "other-scheduler" {
		t.Errorf("a pod for another scheduler is for %s", name)
	}
}

// mounted writes the Secrets of both sides to files, as the kubelet does, and returns their
// directory.
func mounted(th *theater.Theater) string {
	th.T.Helper()
	dir := th.T.TempDir()
	for secret, files := range map[string]map[string]string{
		"outboard-server": {"ca.crt": "ca.crt", "tls.crt": "tls.crt", "tls.key": "tls.key"},
		"outboard-client": {"client.crt": "tls.crt", "client.key": "tls.key"},
	} {
		s, err := th.Client.CoreV1().Secrets("outboard-system").Get(th.Ctx, secret, metav1.GetOptions{})
		if err != nil {
			th.T.Fatal(err)
		}
		for file, key := range files {
			if err := os.WriteFile(filepath.Join(dir, file), s.Data[key], 0o600); err != nil {
				th.T.Fatal(err)
			}
		}
	}
	return dir
}

// configMap returns a key of the ConfigMap in a file of manifests.
func configMap(t *testing.T, path, key string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var m corev1.ConfigMap
		if err := yaml.Unmarshal(doc, &m); err == nil && m.Kind == "ConfigMap" && m.Data[key] != "" {
			return m.Data[key]
		}
	}
	t.Fatalf("%s has no ConfigMap with %s", path, key)
	return ""
}

// The example does what its README says.
func TestPlacementExample(t *testing.T) {
	th := theater.Open(t)
	play := th.PlayExample("placement")
	perNode, waits := map[string]int{}, 0
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		node := placed.Pod.Spec.NodeName
		switch name := pod.Name; {
		case strings.HasPrefix(name, "web-") && name != "web-5":
			perNode[node]++
			if node != "node-03" && node != "node-09" {
				t.Errorf("%s is on %s, where nginx is not", name, node)
			}
		case name == "web-5" && (node == "node-03" || node == "node-09" || node == ""):
			t.Errorf("web-5 is on %q, which has two web pods", node)
		case name == "train" && node != "node-14":
			t.Errorf("train is on %s, its image on node-14", node)
		case node == "":
			waits++
		}
	}
	if perNode["node-03"] != 2 || perNode["node-09"] != 2 || waits != 1 {
		t.Errorf("web pods by node: %v; %d pods wait", perNode, waits)
	}
}
