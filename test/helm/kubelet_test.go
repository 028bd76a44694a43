package helm

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// kubelet runs one pod of each Deployment in the cluster as a process of this machine, with the command, the files and the ServiceAccount
// that are then in the cluster. Like the real ones, it replaces a process only when the pod template changes, and updates the files of
// ConfigMaps and Secrets in place.
//
// A process sees no container, so kubelet replaces the paths of volumes in commands and files by those of directories, and addresses by free
// ports of the loopback address.
type kubelet struct {
	t        *testing.T
	ctx      context.Context
	cp       *controlplane.ControlPlane
	client   kubernetes.Interface
	programs map[string]string // by the first word of a container's command
	proxy    string            // URL of the network of Services
	started  int
	ran      map[types.UID]bool // Jobs

	mu   sync.Mutex
	pods map[string]*pod // by Deployment; only those that are ready
}

func newKubelet(ctx context.Context, t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface, programs map[string]string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, ctx: ctx, cp: cp, client: client, programs: programs, ran: map[types.UID]bool{}, pods: map[string]*pod{}}
	server := httptest.NewServer(services{k})
	t.Cleanup(server.Close)
	k.proxy = server.URL
	return k
}

// pod is the process of a Deployment.
type pod struct {
	*controlplane.Process
	namespace string
	template  corev1.PodTemplateSpec
	dir       string
	mounts    map[string]mount // by mount path
	ports     map[int32]string // container port to address
}

// mount is a volume of a pod.
type mount struct {
	dir     string
	content map[string]string
}

// The Deployments of a release.
const (
	outboard  = "outboard"
	scheduler = "outboard-scheduler"
)

// pluginImage is the image of the plugin build in docs/extender-or-plugin.md.
const pluginImage = "registry.example/kube-scheduler-outboard"

// sync starts and ends the process of a Deployment as the cluster requires, and returns whether it started one. A new Outboard is ready
// before the former one ends, which is killed: it would take ten seconds to stop. kube-scheduler stops, and so releases its lease, for
// which another one would wait.
func (k *kubelet) sync(deployment string) bool {
	k.t.Helper()
	list, err := k.client.AppsV1().Deployments("").List(k.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + deployment})
	if err != nil {
		k.t.Fatal(err)
	}
	former, wanted := k.pods[deployment], len(list.Items) > 0 && *list.Items[0].Spec.Replicas > 0
	if wanted && former != nil && reflect.DeepEqual(former.template, list.Items[0].Spec.Template) {
		return false
	}
	if wanted && former != nil && deployment == scheduler {
		if err := former.Stop(); err != nil {
			k.t.Error(err)
		}
	}
	var p *pod
	if wanted {
		p = k.start(&list.Items[0])
	}
	k.replace(deployment, p)
	if former != nil {
		former.Kill()
	}
	return wanted
}

func (k *kubelet) replace(deployment string, p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p == nil {
		delete(k.pods, deployment)
	} else {
		k.pods[deployment] = p
	}
}

// start starts the process of a pod, and returns when it is ready.
func (k *kubelet) start(d *appsv1.Deployment) *pod {
	k.t.Helper()
	k.started++
	name := fmt.Sprintf("%s-%d", d.Name, k.started)
	p := &pod{namespace: d.Namespace, template: d.Spec.Template, dir: filepath.Join(k.t.TempDir(), name), mounts: map[string]mount{}, ports: map[int32]string{}}
	k.mount(p)
	container := p.template.Spec.Containers[0]
	if len(p.template.Spec.Containers) != 1 || len(p.template.Spec.InitContainers) != 0 || len(container.EnvFrom) != 0 {
		k.t.Fatalf("the pods of %s are not like those of a Deployment with one container", name)
	}
	command := append(slices.Clone(container.Command), container.Args...)
	for i := range command {
		command[i] = p.local(command[i])
	}
	program, ok := k.programs[command[0]]
	if strings.HasPrefix(container.Image, pluginImage+":") {
		var err error
		if program, err = stage.BuildScheduler(k.ctx); err != nil {
			k.t.Fatal(err)
		}
	}
	if !ok {
		k.t.Fatalf("%s runs %q", name, command)
	}
	if d.Name == scheduler {
		command = append(command, "--secure-port=0") // its own port would be the same for all
	}
	env := []string{"KUBECONFIG=" + k.kubeconfig(p), "HTTPS_PROXY=" + k.proxy}
	for _, v := range container.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	process, err := k.cp.StartProcess(controlplane.Command{Name: name, Path: program, Args: command[1:], Env: env})
	if err != nil {
		k.t.Fatal(err)
	}
	p.Process = process
	k.t.Cleanup(func() {
		if k.t.Failed() {
			log := process.Log()
			k.t.Logf("%s:\n%s", process.Name(), log[max(0, len(log)-4000):])
		}
	})
	if d.Name == outboard {
		k.awaitReady(p)
	}
	return p
}

// runJobs runs each new Job to its end.
func (k *kubelet) runJobs() {
	k.t.Helper()
	list, err := k.client.BatchV1().Jobs("").List(k.ctx, metav1.ListOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	for _, job := range list.Items {
		if k.ran[job.UID] {
			continue
		}
		k.ran[job.UID] = true
		p := &pod{namespace: job.Namespace, template: job.Spec.Template, dir: filepath.Join(k.t.TempDir(), job.Name)}
		command := p.template.Spec.Containers[0].Command
		cmd := exec.CommandContext(k.ctx, k.programs[command[0]], command[1:]...)
		cmd.Env = []string{"KUBECONFIG=" + k.kubeconfig(p)}
		if out, err := cmd.CombinedOutput(); err != nil {
			k.t.Fatalf("%s: %v\n%s", job.Name, err, out)
		}
	}
}

// rollOut reports for each Deployment that all pods are new and ready, as the Deployment controller does in the end, until the context ends.
// The processes are those of the next call of sync.
func (k *kubelet) rollOut(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := k.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			d := &list.Items[i]
			if d.Status.ObservedGeneration == d.Generation {
				continue
			}
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			_, _ = k.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}) // a conflict is one with helm: the next round repeats it
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// update updates the files of all pods, up to a minute later than sync in a real cluster, and waits until Outboard has read a new
// configuration. kube-scheduler reads its file when it starts, so a new one is an error.
func (k *kubelet) update() {
	k.t.Helper()
	for _, p := range k.pods {
		reloads := strings.Count(p.Log(), reloaded)
		for _, m := range k.mount(p) {
			if _, ok := m.content["scheduler.yaml"]; ok {
				k.t.Errorf("%s has changed, and the pod template has not: kube-scheduler keeps the former file", m.dir)
			}
			if _, ok := m.content["outboard.yaml"]; ok {
				k.eventually("Outboard has reloaded its configuration", p, func() bool { return strings.Count(p.Log(), reloaded) > reloads })
			}
		}
	}
}

// reloaded is what Outboard logs.
const reloaded = `msg="reloaded the configuration"`

// mount writes the volumes of the pod, as they are in the cluster, and returns those that have changed.
func (k *kubelet) mount(p *pod) (changed []mount) {
	k.t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range p.template.Spec.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range p.template.Spec.Containers[0].VolumeMounts {
		if m.SubPath != "" {
			k.t.Fatalf("the volume %s has a subPath, and would never be updated", m.Name)
		}
		former, now := p.mounts[m.MountPath], mount{filepath.Join(p.dir, m.Name), k.content(p.namespace, volumes[m.Name])}
		if !reflect.DeepEqual(former, now) {
			p.mounts[m.MountPath] = now
			changed = append(changed, now)
		}
	}
	for _, m := range changed {
		files := map[string]string{}
		for file, text := range m.content {
			files[file] = p.local(text)
			if file == "scheduler.yaml" {
				files[file] += fmt.Sprintf("\nclientConnection: {kubeconfig: %q}\n", p.dir+".kubeconfig") // in a pod, it finds the API server by itself
			}
		}
		if err := project(m.dir, files); err != nil {
			k.t.Fatal(err)
		}
	}
	return changed
}

// content returns the files of a volume.
func (k *kubelet) content(namespace string, v corev1.Volume) map[string]string {
	k.t.Helper()
	files := map[string]string{}
	switch {
	case v.ConfigMap != nil:
		m, err := k.client.CoreV1().ConfigMaps(namespace).Get(k.ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			k.t.Fatal(err)
		}
		maps.Copy(files, m.Data)
	case v.Secret != nil:
		s, err := k.client.CoreV1().Secrets(namespace).Get(k.ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			k.t.Fatal(err)
		}
		for key, data := range s.Data {
			files[key] = string(data)
		}
		for _, item := range v.Secret.Items {
			if _, ok := s.Data[item.Key]; !ok || item.Path != item.Key {
				k.t.Fatalf("the pods do not start: the Secret %s has no %s, or the file another name", s.Name, item.Key)
			}
		}
	default:
		k.t.Fatalf("the volume %q is neither a ConfigMap nor a Secret", v.Name)
	}
	return files
}

// project writes the files as the kubelet does: a symbolic link to the directory of all files is replaced atomically.
func project(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	now, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(now, name), []byte(text), 0o600); err != nil {
			return err
		}
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil {
			return err
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(now), next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "..data"))
}

var listening = regexp.MustCompile(`(?:0\.0\.0\.0|127\.0\.0\.1):\d+`)

// local returns the text for a process outside a container.
func (p *pod) local(text string) string {
	for path, m := range p.mounts {
		text = strings.ReplaceAll(text, path+"/", m.dir+"/")
	}
	return listening.ReplaceAllString(text, "127.0.0.1:0")
}

// kubeconfig writes the credentials of the pod's ServiceAccount.
func (k *kubelet) kubeconfig(p *pod) string {
	k.t.Helper()
	token, err := k.client.CoreV1().ServiceAccounts(p.namespace).CreateToken(k.ctx, p.template.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	server := k.cp.AdminConfig()
	const entry = "pod"
	file := p.dir + ".kubeconfig"
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: entry,
		Contexts:       map[string]*clientcmdapi.Context{entry: {Cluster: entry, AuthInfo: entry}},
		Clusters:       map[string]*clientcmdapi.Cluster{entry: {Server: server.Host, CertificateAuthorityData: server.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{entry: {Token: token.Status.Token}},
	}, file); err != nil {
		k.t.Fatal(err)
	}
	return file
}

var serving = regexp.MustCompile(`msg=serving address=(\S+) .*admin=(\S+)`)

// awaitReady waits until Outboard serves at the addresses that it logs, which are those of the container's ports, and its readiness probe
// succeeds.
func (k *kubelet) awaitReady(p *pod) {
	k.t.Helper()
	var addresses []string
	k.eventually("Outboard serves", p, func() bool {
		addresses = serving.FindStringSubmatch(p.Log())
		return addresses != nil
	})
	for _, m := range p.mounts {
		var c struct{ Serving, Admin struct{ Address string } }
		if err := yaml.Unmarshal([]byte(m.content["outboard.yaml"]), &c); err != nil {
			k.t.Fatal(err)
		}
		for i, address := range []string{c.Serving.Address, c.Admin.Address} {
			if _, port, err := net.SplitHostPort(address); err == nil {
				var number int32
				fmt.Sscan(port, &number)
				p.ports[number] = addresses[i+1]
			}
		}
	}
	probe := p.template.Spec.Containers[0].ReadinessProbe.HTTPGet
	admin, ok := p.address(probe.Port.StrVal)
	if !ok {
		k.t.Fatalf("the readiness probe is for port %s, and the ports are %v", probe.Port.String(), p.ports)
	}
	k.eventually("Outboard is ready", p, func() bool {
		_, err := get("http://" + admin + probe.Path)
		return err == nil
	})
}

// address returns the address at which the process serves a port of its container.
func (p *pod) address(port string) (string, bool) {
	for _, c := range p.template.Spec.Containers[0].Ports {
		if c.Name == port {
			address, ok := p.ports[c.ContainerPort]
			return address, ok
		}
	}
	return "", false
}

// selected returns a pod of the namespace with the labels. It may be called concurrently.
func (k *kubelet) selected(namespace string, selector map[string]string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.namespace == namespace && labels.SelectorFromSet(selector).Matches(labels.Set(p.template.Labels)) {
			return p
		}
	}
	return nil
}

// eventually polls until ok. It fails if the pod, which may be nil, ends.
func (k *kubelet) eventually(what string, p *pod, ok func() bool) {
	k.t.Helper()
	var done <-chan struct{}
	if p != nil {
		done = p.Done()
	}
	for !ok() {
		select {
		case <-done:
			k.t.Fatalf("waiting until %s: %s ended:\n%s", what, p.Name(), p.Log())
		case <-k.ctx.Done():
			k.t.Fatalf("waiting until %s: %v", what, context.Cause(k.ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
