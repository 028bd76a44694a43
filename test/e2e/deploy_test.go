package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/controlplane"
)

// The manifests as they are: the API server accepts them, and the configurations
// in their ConfigMaps place the test pods.
func TestDeploy(t *testing.T) {
	th := open(t)
	th.nodes(
		controlplane.NodeSpec{Name: "a"},
		controlplane.NodeSpec{Name: "b", Images: map[string]int64{nginx: 1 << 27}},
		controlplane.NodeSpec{Name: "c"},
	)
	deploy := filepath.Join(th.Root, "deploy")
	certificates, err := exec.CommandContext(th.ctx, th.Binary(), "certs", "--dir", t.TempDir(), "--secrets").Output()
	if err != nil {
		t.Fatal(err)
	}
	th.apply(nil, "-f", filepath.Join(deploy, "namespace.yaml"))
	th.apply(certificates, "-f", "-")
	th.apply(nil, "-f", filepath.Join(deploy, "outboard.yaml"), "-f", filepath.Join(deploy, "scheduler.yaml"))

	o := th.outboard(configMap(t, filepath.Join(deploy, "outboard.yaml"), "outboard.yaml"))
	config, err := o.SchedulerConfig(configMap(t, filepath.Join(deploy, "scheduler.yaml"), "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	th.scheduler(config)
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
		t.Error("web-3 is on b, where two of its kind are")
	}
}

// apply runs kubectl apply as a user would.
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
	t.Fatalf("%s holds no ConfigMap with %s", path, key)
	return ""
}

// Our own extender keeps every rule, asked by our own verifier about the nodes of
// a real cluster.
func TestVerify(t *testing.T) {
	th := open(t)
	var nodes []controlplane.NodeSpec
	for _, name := range strings.Fields("a b c d e f g h i j") {
		nodes = append(nodes, controlplane.NodeSpec{Name: name})
	}
	th.nodes(nodes...)
	o := th.outboard(oneWeb + mutualTLS)
	th.create(controlplane.PodSpec{Name: "some", NodeName: "a", Labels: map[string]string{"app": "web"}})
	cmd := exec.CommandContext(th.ctx, th.Binary(), "verify", o.URL,
		"--filter", "filter", "--prioritize", "prioritize", "--preempt", "preempt", "--bind", "bind", "--mode", "both",
		"--ca", o.CAFile, "--cert", o.CertFile, "--key", o.KeyFile, "--cluster", "--kubeconfig", th.Kubeconfig(), "--timeout", "30s")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "✗") {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "✓") {
		t.Errorf("nothing was verified:\n%s", out)
	}
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
			t.Errorf("web-5 is on %q, where two web pods are", node)
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
