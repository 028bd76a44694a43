package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// patience bounds one scenario: much longer than it takes on a slow machine.
const patience = 10 * time.Minute

// root is the directory of the checkout, in which commands run.
var root = filepath.Join("..", "..")

// user is somebody with Helm, kubectl and outboard, and a cluster whose Deployments run.
type user struct {
	*kubelet
	home, dir string // the home and the working directory
	// staying are the pods that stay, by name.
	staying map[string]*corev1.Pod
}

// newUser adds nodes and a metrics API to the cluster. helm is the major version.
func newUser(t *testing.T, s *stage.Stage, helm string) *user {
	t.Helper()
	path, err := programs[helm]()
	if err != nil {
		t.Fatal(err)
	}
	outboard, err := stage.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cp, client := s.ControlPlane, s.Client
	scheduler, err := cp.SchedulerPath()
	if err != nil {
		t.Fatal(err)
	}
	u := &user{home: t.TempDir(), dir: t.TempDir(), staying: map[string]*corev1.Pod{}}
	u.kubelet = newKubelet(ctx, t, cp, client, map[string]string{
		"/outboard":      outboard,
		"kube-scheduler": scheduler,
	})
	if err := u.settle(path, outboard); err != nil {
		t.Fatal(err)
	}
	for _, spec := range nodes {
		node := spec.Node()
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "gpu-fractioning.nvidia.com/Ready", Status: corev1.ConditionTrue})
		if err := controlplane.CreateNodes(ctx, client, node); err != nil {
			t.Fatal(err)
		}
	}
	serveMetrics(ctx, t, client)
	return u
}

// programs are the helm commands by major version, which tools/render/go.mod pins.
var programs = map[string]func() (string, error){
	"v3": sync.OnceValues(func() (string, error) { return tool("helm.sh/helm/v3/cmd/helm") }),
	"v4": sync.OnceValues(func() (string, error) { return tool("helm.sh/helm/v4/cmd/helm") }),
}

// tool builds the command, which Go keeps in its cache, and returns its path.
func tool(pkg string) (string, error) {
	cmd := exec.Command("go", "tool", "-n", pkg)
	cmd.Dir = filepath.Join(root, "tools", "render")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // so that Go compiles nothing twice
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, complaint.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// sh runs a command line as the user types it, in a directory with the folder deploy of the
// checkout, and returns what it prints.
func (u *user) sh(line string) (string, error) {
	cmd := exec.CommandContext(u.ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = u.dir
	cmd.Env = []string{"PATH=" + filepath.Join(u.home, "bin") + ":" + os.Getenv("PATH"), "HOME=" + u.home, "KUBECONFIG=" + u.cp.Kubeconfig()}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", line, err, out.String(), complaint.String())
	}
	return out.String(), nil
}

// settle makes the programs and the folder deploy available to the user.
func (u *user) settle(helm, outboard string) error {
	checkout, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	errs := []error{os.Mkdir(filepath.Join(u.home, "bin"), 0o700)}
	for link, to := range map[string]string{
		filepath.Join(u.home, "bin", "helm"): helm, filepath.Join(u.home, "bin", "outboard"): outboard,
		filepath.Join(u.home, "bin", "kubectl"): u.cp.KubectlPath(), filepath.Join(u.dir, "deploy"): filepath.Join(checkout, "deploy"),
	} {
		errs = append(errs, os.Symlink(to, link))
	}
	return errors.Join(errs...)
}

// types is sh for a command that must succeed. Meanwhile, rollouts end, for which kubectl rollout
// status waits.
func (u *user) types(line string) string {
	u.t.Helper()
	ctx, cancel := context.WithCancel(u.ctx)
	var rollouts sync.WaitGroup
	rollouts.Go(func() { u.rollOut(ctx) })
	out, err := u.sh(line)
	cancel()
	rollouts.Wait()
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// places creates the pods of the preset, expects what must become of them, audits, and deletes
// those that do not stay.
func (u *user) places(preset, schedulerName string) {
	u.t.Helper()
	var created []*corev1.Pod
	for _, want := range outcomes[preset] {
		if u.staying[want.pod.Name] != nil {
			continue
		}
		p := u.create(want, schedulerName)
		if want.stays {
			u.staying[want.pod.Name] = p
		} else {
			created = append(created, p)
		}
		u.expect(preset, p, want)
	}
	u.audit(preset, len(outcomes[preset]))
	for _, p := range slices.Backward(created) { // those that wait first, so that none of them is bound meanwhile
		if err := controlplane.DeletePod(u.ctx, u.client, p); err != nil {
			u.t.Fatal(err)
		}
	}
	u.audit(preset, 0)
	u.permits()
}

var followed = regexp.MustCompile(`(?m)^outboard_cluster_unreadable\{resource="([a-z]+)`)

// permits expects that each Outboard may read what it follows. A watch goes on for minutes after
// its permission is gone.
func (u *user) permits() {
	u.t.Helper()
	for name, p := range u.pods {
		admin, ok := p.address("metrics")
		if !ok {
			continue // kube-scheduler
		}
		metrics, err := get("http://" + admin + "/metrics")
		if err != nil {
			u.t.Fatal(err)
		}
		account := fmt.Sprintf("system:serviceaccount:%s:%s", p.namespace, p.template.Spec.ServiceAccountName)
		resources := followed.FindAllStringSubmatch(metrics, -1)
		if len(resources) == 0 {
			u.t.Errorf("%s follows nothing", name)
		}
		for _, m := range resources {
			attributes := authorizationv1.ResourceAttributes{Verb: "list", Group: groups[m[1]], Resource: m[1]}
			if m[1] == "configmaps" {
				attributes.Namespace = "kube-system" // where the device plugin lists unhealthy GPUs
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account, ResourceAttributes: &attributes}}
			review, err := u.client.AuthorizationV1().SubjectAccessReviews().Create(u.ctx, review, metav1.CreateOptions{})
			if err != nil {
				u.t.Fatal(err)
			}
			if !review.Status.Allowed {
				u.t.Errorf("%s follows %s without permission", name, m[1])
			}
		}
	}
}

// groups are the API groups of resources outside the core group.
var groups = map[string]string{"poddisruptionbudgets": "policy", "ledgers": "outboard.dev"}

// applied makes the processes those that the cluster describes, Outboard's later than
// kube-scheduler, and returns the names of the Deployments of new ones. If a pod must wait until
// both have the configuration of the preset, it creates that pod before.
func (u *user) applied(preset string) (started []string) {
	u.t.Helper()
	u.runJobs()
	if u.sync(scheduler) {
		started = append(started, scheduler)
	}
	want, waits := early[preset]
	waits = waits && len(started) > 0
	var p *corev1.Pod
	if waits {
		p = u.create(want, scheduler)
		decided, err := controlplane.WaitForPod(u.ctx, u.client, p, func(p *corev1.Pod) (bool, error) { return p.Spec.NodeName != "" || waitsFor(p) != "", nil })
		if err != nil {
			u.t.Fatal(err)
		}
		if decided.Spec.NodeName != "" {
			u.t.Errorf("%s: %s is bound before Outboard has the configuration", preset, p.Name)
		}
	}
	if u.sync(outboard) {
		started = append(started, outboard)
	}
	u.update()
	if waits {
		u.expect(preset, p, want)
		if err := controlplane.DeletePod(u.ctx, u.client, p); err != nil {
			u.t.Fatal(err)
		}
	}
	return started
}

func (u *user) create(o outcome, schedulerName string) *corev1.Pod {
	u.t.Helper()
	o.pod.SchedulerName = schedulerName
	p, err := u.client.CoreV1().Pods(metav1.NamespaceDefault).Create(u.ctx, o.pod.Pod(), metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return p
}

// expect waits until the pod is on a node, or waits for the reason.
func (u *user) expect(preset string, p *corev1.Pod, want outcome) {
	u.t.Helper()
	p, err := controlplane.WaitForPod(u.ctx, u.client, p, func(p *corev1.Pod) (bool, error) {
		return p.Spec.NodeName != "" || want.on == "" && strings.Contains(waitsFor(p), want.reason), nil
	})
	if err != nil {
		u.t.Fatalf("%s: pod %s: %v", preset, want.pod.Name, err)
	}
	if p.Spec.NodeName != "" && !want.permits(p.Spec.NodeName) {
		u.t.Errorf("%s: %s is on node %q, want one of %q", preset, p.Name, p.Spec.NodeName, want.on)
	}
	if got := p.Annotations["ALIYUN_COM_GPU_MEM_IDX"] + p.Annotations["nvidia.com/container.main.gpus.devices"]; got != want.gpu {
		u.t.Errorf("%s: %s has GPU %q, want %q", preset, p.Name, got, want.gpu)
	}
}

// waitsFor returns kube-scheduler's reason why the pod is on no node.
func waitsFor(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// audit expects that soon there are only allocations of the first pods of the preset and of pods
// that stay, and no findings. An allocation of a deleted pod is a finding until Outboard has
// released it.
func (u *user) audit(preset string, first int) {
	u.t.Helper()
	want := len(u.staying)
	for _, o := range outcomes[preset][:first] {
		if o.allocations && !o.stays {
			want++
		}
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		out, err := u.sh("outboard gpus --audit --recheck 0")
		if err == nil && strings.Contains(out, fmt.Sprintf(" allocations: %d, ", want)) && strings.HasSuffix(out, "; no findings\n") {
			return
		}
		if time.Now().After(deadline) {
			u.t.Errorf("%s: want %d allocations and no findings: outboard gpus --audit: %v\n%s", preset, want, err, out)
			return
		}
		time.Sleep(time.Second) // Outboard releases allocations within about ten
	}
}

// serveMetrics serves the usage of nodes as metrics-server does, through the API server.
func serveMetrics(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/nodes" {
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
				{"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"]}]}`)
			return
		}
		var items []map[string]any
		for node, cpu := range usage {
			items = append(items, map[string]any{
				"metadata": map[string]string{"name": node}, "timestamp": time.Now().UTC().Format(time.RFC3339), "window": "10s",
				"usage": map[string]string{"cpu": cpu, "memory": "1Gi"},
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": items})
	}))
	t.Cleanup(server.Close)
	if _, err := client.CoreV1().Services("kube-system").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := fmt.Sprintf(`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
		"spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
			"service": {"namespace": "kube-system", "name": "metrics-server", "port": %d}}}`, server.Listener.Addr().(*net.TCPAddr).Port)
	if err := client.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
		SetHeader("Content-Type", "application/json").Body([]byte(service)).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
}

// get returns the body of a response with the status 200.
func get(url string) (string, error) {
	res, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}

// removed expects that of Outboard there is nothing left but the CRD, with the allocations of pods
// that still run. It is what "kubectl get customresourcedefinitions --output name" then prints.
func (u *user) removed(crd string) {
	u.t.Helper()
	const kinds = "deployments,jobs,cronjobs,secrets,configmaps,services,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,resourcequotas"
	const clusterKinds = "clusterroles,clusterrolebindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	left := u.types("kubectl get " + kinds + " --all-namespaces --output name && kubectl get " + clusterKinds + " --output name")
	for name := range strings.Lines(left) {
		if strings.Contains(name, "outboard") {
			u.t.Errorf("there still is %s", name)
		}
	}
	if got := u.types("kubectl get customresourcedefinitions --output name"); got != crd {
		u.t.Errorf("there are\n%swant\n%s", got, crd)
	}
	if crd != "" {
		u.audit("", 0)
	}
}
