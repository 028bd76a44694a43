// Package chart has a test in which Helm installs the chart in a real cluster from the image of make image. What it creates runs in pods.
package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/node"
	"outboard.dev/outboard/test/stage"
)

// patience bounds the test: much longer than it takes on a slow machine.
const patience = 30 * time.Minute

// cluster is a cluster of one node, and somebody with Helm, kubectl and outboard.
type cluster struct {
	*testing.T
	ctx    context.Context
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	root   string
	path   string // where the programs are
	pods   int    // created
}

func TestChart(t *testing.T) {
	c := start(t)

	// One file installs everything, with four pods, and removes everything.
	quickstart := filepath.Join(c.path, "quickstart.yaml")
	c.sh(`go -C tools/render run . -quickstart gpu-sharing -set image.repository=outboard,image.tag=dev > ` + quickstart + `
kubectl apply -f ` + quickstart + `
kubectl wait pods share-1 share-2 share-3 --for condition=Ready --timeout 10m
kubectl wait pods share-4 --for condition=PodScheduled=false --timeout 10m`)
	const reason = "node(s) have no healthy GPU that is large enough"
	if waits := c.sh("kubectl get pods share-4 --output jsonpath='{.status.conditions[*].message}'"); !strings.Contains(waits, reason) {
		t.Errorf("share-4 waits: %s", waits)
	}
	c.sh("kubectl delete --ignore-not-found -f " + quickstart)
	c.nothingIsLeft()

	c.sh("helm install outboard deploy/chart --namespace outboard-system --create-namespace --set image.tag=dev --set preset=gpushare --wait --timeout 10m")
	c.places("gpushare")
	c.renews()

	// Each call gets a response while the pods of Outboard are replaced, on a busy machine, too.
	c.sh("sed 's/httpTimeout: 3s/httpTimeout: 60s/' deploy/chart/presets/gpushare-scheduler.yaml > " + c.path + "/scheduler.yaml\n" +
		"helm upgrade outboard deploy/chart --namespace outboard-system --reuse-values --set-file scheduler.config=" + c.path + "/scheduler.yaml --wait --timeout 10m")
	updated := make(chan error, 1)
	go func() {
		_, err := c.run("kubectl --namespace outboard-system rollout restart deployment/outboard\n" +
			"kubectl --namespace outboard-system rollout status deployment/outboard --timeout 10m")
		updated <- err
	}()
	placed := c.pods
	for calling := true; calling; {
		select {
		case err := <-updated:
			if err != nil {
				t.Fatal(err)
			}
			calling = false
		default:
			c.delete(c.binds("gpushare"))
		}
	}
	t.Logf("%d pods were placed during the update", c.pods-placed)
	events := c.sh(`kubectl get events --field-selector reason=FailedScheduling --output jsonpath='{range .items[*]}{.involvedObject.name}: {.message}{"\n"}{end}'`)
	for event := range strings.Lines(events) {
		if strings.HasPrefix(event, "gpushare-") {
			t.Errorf("a call failed: %s", event)
		}
	}

	c.sh("helm upgrade outboard deploy/chart --namespace outboard-system --reuse-values --set preset=placement,scheduler.config= --wait --timeout 10m")
	c.places("placement")
	c.sh("helm rollback outboard 1 --namespace outboard-system --wait --timeout 10m")
	c.places("gpushare")

	c.sh("helm uninstall outboard --namespace outboard-system --wait\nkubectl delete namespace outboard-system\nkubectl delete customresourcedefinition ledgers.outboard.dev")
	c.nothingIsLeft()
}

// nothingIsLeft expects no object of Outboard, of any kind.
func (c *cluster) nothingIsLeft() {
	c.Helper()
	left := c.sh(`kubectl get $(kubectl api-resources --verbs list --output name | grep -v ^events | paste -sd,) --all-namespaces --output name`)
	for name := range strings.Lines(left) {
		if strings.Contains(name, "outboard") || strings.Contains(name, "share-") {
			c.Errorf("there still is %s", name)
		}
	}
}

// renews replaces Outboard's certificate by one that ends soon, as if a year had passed, and expects that a Job of the CronJob renews it.
func (c *cluster) renews() {
	c.Helper()
	secrets := c.client.CoreV1().Secrets("outboard-system")
	get := func(name string) *corev1.Secret {
		s, err := secrets.Get(c.ctx, name, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		return s
	}
	ca, server := get("outboard-ca"), get("outboard-server")
	authority, err := certs.LoadAuthority(certs.Pair{Cert: ca.Data[corev1.TLSCertKey], Key: ca.Data[corev1.TLSPrivateKeyKey]})
	if err != nil {
		c.Fatal(err)
	}
	now, err := certs.Parse(server.Data[corev1.TLSCertKey])
	if err != nil {
		c.Fatal(err)
	}
	soon := time.Now().AddDate(0, 0, 10)
	old, err := authority.Issue(certs.Request{CommonName: now[0].Subject.CommonName, Hosts: certs.Hosts(now[0]), Server: true, NotAfter: soon})
	if err != nil {
		c.Fatal(err)
	}
	server.Data[corev1.TLSCertKey], server.Data[corev1.TLSPrivateKeyKey] = old.Cert, old.Key
	if _, err := secrets.Update(c.ctx, server, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.sh(`kubectl --namespace outboard-system create job renewal --from cronjob/outboard-certificates
kubectl --namespace outboard-system wait jobs renewal --for condition=Complete --timeout 10m`)
	renewed, err := certs.Parse(get("outboard-server").Data[corev1.TLSCertKey])
	if err != nil || !renewed[0].NotAfter.After(soon) {
		c.Errorf("the certificate still ends at %v: %v", renewed[0].NotAfter, err)
	}
}

// start starts the cluster, whose GPUs are those of the gpushare device plugin.
func start(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.Start(ctx, node.ControlPlane())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	spec := controlplane.NodeSpec{Name: "node-1", Resources: map[string]string{"aliyun.com/gpu-count": "8", "aliyun.com/gpu-mem": "128"}}
	n, err := node.Start(ctx, cp, root, spec.Node())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Import(ctx, filepath.Join(root, "bin", "image"), "docker.io/library/outboard:dev"); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{}); err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, ctx: ctx, cp: cp, client: client, root: root, path: t.TempDir()}
	if err := c.settle(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.run("kubectl get pods --all-namespaces; kubectl --namespace outboard-system describe pods; kubectl --namespace outboard-system logs --prefix --selector app.kubernetes.io/name")
			t.Log(out)
		}
	})
	return c
}

// settle makes the programs available.
func (c *cluster) settle() error {
	outboard, err := stage.Build(c.ctx)
	if err != nil {
		return err
	}
	helm := exec.CommandContext(c.ctx, "go", "tool", "-n", "helm.sh/helm/v4/cmd/helm")
	helm.Dir = filepath.Join(c.root, "tools", "render")
	out, err := helm.Output()
	return errors.Join(err, os.Symlink(outboard, filepath.Join(c.path, "outboard")),
		os.Symlink(c.cp.KubectlPath(), filepath.Join(c.path, "kubectl")),
		os.Symlink(strings.TrimSpace(string(out)), filepath.Join(c.path, "helm")))
}

// sh runs a command that must succeed, as the user types it in the checkout, and returns what it prints.
func (c *cluster) sh(line string) string {
	c.Helper()
	began := time.Now()
	out, err := c.run(line)
	if err != nil {
		c.Fatal(err)
	}
	c.Logf("%v: %s", time.Since(began).Round(time.Second/10), line)
	return out
}

func (c *cluster) run(line string) (string, error) {
	cmd := exec.CommandContext(c.ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = c.root
	cmd.Env = append(os.Environ(), "PATH="+c.path+":"+os.Getenv("PATH"), "KUBECONFIG="+c.cp.Kubeconfig())
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", line, err, out, complaint.String())
	}
	return string(out), err
}

// places creates a pod that must run.
func (c *cluster) places(preset string) {
	c.Helper()
	p := c.binds(preset)
	if _, err := controlplane.WaitForPod(c.ctx, c.client, p, func(p *corev1.Pod) (bool, error) { return p.Status.Phase == corev1.PodRunning, nil }); err != nil {
		c.Fatal(err)
	}
	c.delete(p)
}

// binds creates a pod that must be bound, as the preset says.
func (c *cluster) binds(preset string) *corev1.Pod {
	c.Helper()
	c.pods++
	spec := controlplane.PodSpec{Name: fmt.Sprintf("%s-%d", preset, c.pods), SchedulerName: "outboard-scheduler", Labels: map[string]string{"app": "web"}}
	if preset == "gpushare" {
		spec.Resources = map[string]string{"aliyun.com/gpu-mem": fmt.Sprint(1 + c.pods%16)} // the order of equal pods matters
	}
	p, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(c.ctx, node.Running(spec.Pod()), metav1.CreateOptions{})
	if err == nil {
		p, err = controlplane.WaitForPodBound(c.ctx, c.client, p)
	}
	if err != nil {
		c.Fatal(err)
	}
	if gpu := p.Annotations["ALIYUN_COM_GPU_MEM_IDX"]; (gpu == "") == (preset == "gpushare") {
		c.Errorf("by the preset %s, the pod has GPU %q", preset, gpu)
	}
	return p
}

func (c *cluster) delete(p *corev1.Pod) {
	c.Helper()
	if err := controlplane.DeletePod(c.ctx, c.client, p); err != nil {
		c.Fatal(err)
	}
}
