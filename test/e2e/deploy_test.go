package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/test/controlplane"
)

// The API server accepts the unmodified manifests. With the configurations in their ConfigMaps, the
// certificates in their Secrets and the permissions of their ServiceAccounts, Outboard and
// kube-scheduler place the test pods.
func TestDeploy(t *testing.T) {
	th := open(t)
	th.nodes(
		controlplane.NodeSpec{Name: "a"},
		controlplane.NodeSpec{Name: "b", Images: map[string]int64{nginx: 1 << 27}},
		controlplane.NodeSpec{Name: "c"},
	)
	deploy := filepath.Join(th.Root, "deploy")
	th.install()
	th.apply([]byte(th.command("certs", "--dir", t.TempDir(), "--secrets")), "-f", "-")

	th.readByDoctor()

	tls := th.mounted()
	config := configMap(t, filepath.Join(deploy, "outboard.yaml"), "outboard.yaml")
	config = strings.ReplaceAll(config, "/etc/outboard/tls/", tls+"/") + fmt.Sprintf("\nclientConnection: {kubeconfig: %q}\n", th.serviceAccount("outboard"))
	o := th.outboard(config)
	scheduler, err := o.SchedulerConfig(configMap(t, filepath.Join(deploy, "scheduler.yaml"), "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	th.scheduler(scheduler + fmt.Sprintf(`
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: true, resourceNamespace: outboard-system, resourceName: outboard-scheduler}
`, th.serviceAccount("outboard-scheduler")))

	th.apply(nil, "-f", filepath.Join(deploy, "test-pods.yaml"))
	for _, name := range []string{"web-1", "web-2"} {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "default", name
		if pod = th.awaitBound(pod); pod.Spec.NodeName != "b" {
			t.Errorf("%s is on %s, its image on b", name, pod.Spec.NodeName)
		}
	}
	third := controlplane.PodSpec{Name: "web-3", Labels: map[string]string{"app": "web"}, SchedulerName: "outboard-scheduler", Image: "nginx"}
	if pod := th.bound(third); pod.Spec.NodeName == "b" {
		t.Error("web-3 is on b, which has two pods of its kind")
	}
	for _, verb := range []string{"filter", "prioritize", "bind"} {
		if n := th.metric(o, `outboard_request_duration_seconds_count{outcome="success",profile="/placement",verb="`+verb+`"} `); n == "" {
			t.Errorf("no %s call", verb)
		}
	}
	if said := th.get(o.Admin + "/readyz"); strings.Contains(said, "[!]") {
		t.Errorf("readyz warns:\n%s", said)
	}
}

// With kubectl apply -k, too, a changed file of kube-scheduler changes the template of its pods, and nothing else does.
func TestKustomizationStartsNewPods(t *testing.T) {
	th := open(t)
	deploy := filepath.Join(t.TempDir(), "deploy")
	if err := os.CopyFS(deploy, os.DirFS(filepath.Join(th.Root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	objects := func() (template corev1.PodTemplateSpec, configMaps []string, leases []string) {
		t.Helper()
		out, err := th.Kubectl(th.ctx, "kustomize", deploy).Output()
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

// readByDoctor checks that outboard doctor reads both configurations and all certificates of the manifests from the cluster, without a
// finding but that no pod of Outboard runs.
func (th *theater) readByDoctor() {
	th.t.Helper()
	r := th.inNamespace(th.Kubeconfig())
	for _, f := range r.Findings {
		if f.Severity != doctor.Note && f.Code != "NoEndpoints" {
			th.t.Error(f.Text())
		}
		if !strings.HasPrefix(f.File, "configmap outboard-system/outboard") {
			th.t.Errorf("the place of %s is %s", f.Code, f.File)
		}
	}
	for _, o := range r.NotChecked {
		if o.What != "the running kube-scheduler" { // no kubelet runs here
			th.t.Errorf("not checked: %+v", o)
		}
	}
	secret, err := th.Client.CoreV1().Secrets("outboard-system").Get(th.ctx, "outboard-client", metav1.GetOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	for _, line := range strings.Split(string(secret.Data["tls.key"]), "\n") {
		if len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(r.text, line) {
			th.t.Error("the report has a key")
		}
	}
}

// foreign is a Go module that contains the CRDs of another project as files.
type foreign struct {
	module, sum string // with its version, and the hash that go.sum would have
	crds        []string
}

// foreignModules have the CRDs of what the chart creates for cert-manager and the Prometheus
// Operator.
var foreignModules = []foreign{
	{"github.com/cert-manager/cert-manager@v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=", []string{
		"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml",
	}},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=", []string{
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
	}},
}

// installForeignCRDs installs them. Go downloads the modules, and they are no dependency of Outboard.
func (th *theater) installForeignCRDs() {
	th.t.Helper()
	for _, f := range foreignModules {
		download := exec.CommandContext(th.ctx, "go", "mod", "download", "-json", f.module)
		download.Dir = th.t.TempDir() // in no module
		download.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GONOSUMDB=*", "GOSUMDB=off")
		out, err := download.Output()
		if err != nil {
			th.t.Fatalf("go mod download %s: %v: %s", f.module, err, out)
		}
		var module struct{ Dir, Sum string }
		if err := json.Unmarshal(out, &module); err != nil {
			th.t.Fatal(err)
		}
		if module.Sum != f.sum {
			th.t.Fatalf("%s has the hash %s, want %s", f.module, module.Sum, f.sum)
		}
		for _, file := range f.crds {
			path := filepath.Join(module.Dir, file)
			th.apply(nil, "--server-side", "-f", path)
			// kubectl wait fails as long as the CRD has no list of conditions.
			th.eventually("the CRDs of "+f.module+" are established", func() bool {
				return th.Kubectl(th.ctx, "wait", "--for=condition=Established", "--timeout=2m", "-f", path).Run() == nil
			})
		}
	}
}

// install applies the manifests as a user does. The stage has installed the CRD.
func (th *theater) install() {
	th.t.Helper()
	deploy := filepath.Join(th.Root, "deploy")
	th.apply(nil, "--server-side", "--force-conflicts", "-f", filepath.Join(deploy, "namespace.yaml"))
	th.apply(nil, "--server-side", "--force-conflicts", "-k", deploy)
}

// ofPods are the values of the pods of a Deployment.
func ofPods(prefix string) string {
	values := []string{
		"podAnnotations.a=b", "podLabels.a=b", "nodeSelector.a=b", "tolerations[0].key=a", "tolerations[0].operator=Exists",
		"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=a",
		"extraEnv[0].name=A", "extraEnv[0].value=b", "extraEnvFrom[0].secretRef.name=a",
		"extraVolumes[0].name=a", "extraVolumes[0].secret.secretName=a", "extraVolumeMounts[0].name=a", "extraVolumeMounts[0].mountPath=/a",
		"extraContainers[0].name=a", "extraContainers[0].image=a",
	}
	return prefix + strings.Join(values, ","+prefix)
}

// Everything that the chart can create is valid for the API server, with the CRDs of cert-manager and the Prometheus Operator. test/helm
// installs each preset.
func TestForeignCRDs(t *testing.T) {
	// A node port that no other test creates: a dry run does not see that Restore released it.
	const nodePort = "32000"
	// The control plane, which has a time limit, starts after the program that renders has been compiled.
	render := exec.CommandContext(t.Context(), "go", "run", ".", "-set", "service.nodePort="+nodePort+",service.annotations.a=b,service.labels.a=b,imagePullSecrets[0].name=a,setSchedulerName.enabled=true,"+
		"certificates.source=CertManager,monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true,preset=gpu-sharing,"+ofPods("")+","+ofPods("scheduler."))
	render.Dir = filepath.Join("..", "..", "deploy", "render")
	var stderr bytes.Buffer
	render.Stderr = &stderr
	manifests, err := render.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	th := open(t)
	th.installForeignCRDs()
	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	th.apply(manifests, "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-") // the stage has created some roles
}

// New pods that request a GPU get the name of the second scheduler, and others do not.
func TestDeploySetsTheSchedulerName(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	th.apply(nil, "--server-side", "-f", filepath.Join(th.Root, "deploy", "schedulername.yaml"))
	n := 0
	// The API server applies policies with a delay.
	th.eventually("the policy is in force", func() bool {
		n++
		return th.create(gpuPod(fmt.Sprintf("gpu-%d", n), 1)).Spec.SchedulerName == "outboard-scheduler"
	})
	if name := th.create(controlplane.PodSpec{Name: "web"}).Spec.SchedulerName; name != "default-scheduler" {
		t.Errorf("a pod without a GPU is for %s", name)
	}
	other := gpuPod("other", 1)
	other.SchedulerName = "other-scheduler"
	if name := th.create(other).Spec.SchedulerName; name != "other-scheduler" {
		t.Errorf("a pod for another scheduler is for %s", name)
	}
}

// mounted writes the Secrets of both sides to files, as the kubelet does, and returns their
// directory.
func (th *theater) mounted() string {
	th.t.Helper()
	dir := th.t.TempDir()
	for secret, files := range map[string]map[string]string{
		"outboard-server": {"ca.crt": "ca.crt", "tls.crt": "tls.crt", "tls.key": "tls.key"},
		"outboard-client": {"client.crt": "tls.crt", "client.key": "tls.key"},
	} {
		s, err := th.Client.CoreV1().Secrets("outboard-system").Get(th.ctx, secret, metav1.GetOptions{})
		if err != nil {
			th.t.Fatal(err)
		}
		for file, key := range files {
			if err := os.WriteFile(filepath.Join(dir, file), s.Data[key], 0o600); err != nil {
				th.t.Fatal(err)
			}
		}
	}
	return dir
}

// serviceAccount returns a kubeconfig file with a token of a ServiceAccount, which has the permissions that the manifests
// grant it and no others.
func (th *theater) serviceAccount(name string) string {
	th.t.Helper()
	token, err := th.Client.CoreV1().ServiceAccounts("outboard-system").CreateToken(th.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	admin := th.AdminConfig()
	file := filepath.Join(th.t.TempDir(), "kubeconfig")
	const entry = "cluster"
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: entry,
		Contexts:       map[string]*clientcmdapi.Context{entry: {Cluster: entry, AuthInfo: entry}},
		Clusters:       map[string]*clientcmdapi.Cluster{entry: {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{entry: {Token: token.Status.Token}},
	}, file); err != nil {
		th.t.Fatal(err)
	}
	return file
}

// apply runs kubectl apply as a user does.
func (th *theater) apply(stdin []byte, args ...string) {
	th.t.Helper()
	kubectl := th.Kubectl(th.ctx, append([]string{"apply"}, args...)...)
	kubectl.Stdin = bytes.NewReader(stdin)
	if out, err := kubectl.CombinedOutput(); err != nil {
		th.t.Fatalf("kubectl apply %s: %v\n%s", strings.Join(args, " "), err, out)
	}
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
	th := open(t)
	play := th.play("placement")
	perNode, waits := map[string]int{}, 0
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.ctx, pod)
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
