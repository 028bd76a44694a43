package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// One command installs all, on nodes without GPUs, three pods share one GPU that does not exist, and
// the fourth waits and says why. One command removes all.
func TestQuickstart(t *testing.T) {
	u := open(t, "v3")
	render := exec.CommandContext(u.ctx, "go", "run", ".", "-quickstart", "gpu-sharing")
	render.Dir = filepath.Join(root, "tools", "render")
	text, err := render.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "quickstart.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := controlplane.CreateNodes(u.ctx, u.client, controlplane.NodeSpec{Name: "without-gpus"}.Node()); err != nil {
		t.Fatal(err)
	}
	u.types("kubectl delete nodes --selector kubernetes.io/hostname!=without-gpus")
	u.types("kubectl apply -f quickstart.yaml")
	u.applied("")
	for _, name := range []string{"share-1", "share-2", "share-3", "share-4"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
		p, err := controlplane.WaitForPod(u.ctx, u.client, p, func(p *corev1.Pod) (bool, error) {
			return p.Spec.NodeName != "" || strings.Contains(waitsFor(p), "node(s) have no healthy GPU that is large enough"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if gpu := p.Annotations["nvidia.com/container.main.gpus.devices"]; (gpu == "0") != (name != "share-4") {
			t.Errorf("%s has GPU %q on the node %q", name, gpu, p.Spec.NodeName)
		}
	}
	t.Log(u.types(listen + "\noutboard check --cluster"))
	u.types("kubectl delete --namespace outboard-system endpointslices --all\nkubectl delete --ignore-not-found --wait=false -f quickstart.yaml")
	u.removed("")
}
