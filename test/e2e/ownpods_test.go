package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// While no pod of Outboard runs, the cluster's own kube-scheduler, which has an entry for Outboard,
// places Outboard's pods: a strict entry is only for pods that request a managed resource, and an
// ignorable entry costs kube-scheduler the time until it gives up.
func TestOwnPodsNeedNoOutboard(t *testing.T) {
	th := open(t)
	th.nodes(gpus("a", 1, 16), controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"})
	th.install()
	th.admitCriticalPods()
	strict, err := os.ReadFile(filepath.Join(th.Root, "deploy", "chart", "presets", "gpu-sharing-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(strict), "schedulerName: outboard-scheduler", "schedulerName: default-scheduler", 1)
	soft := config[:strings.Index(config, "  managedResources:")] + config[strings.Index(config, "  enableHTTPS:"):]
	soft = strings.NewReplacer("ignorable: false", "ignorable: true", "  bindVerb: bind\n", "", "httpTimeout: 3s", "httpTimeout: 1s").Replace(soft)

	refused := th.nobodysAddress()
	silent := newSilence(t)
	for _, arm := range []struct{ name, config, address string }{
		{"strict, connection refused", config, refused},
		{"strict, no response", config, silent.address()},
		{"ignorable, connection refused", soft, refused},
		{"ignorable, no response", soft, silent.address()},
	} {
		scheduler := th.scheduler(th.without(arm.address, arm.config))
		silent.connections.Store(0)
		started := time.Now()
		pods := th.createOwnPods()
		for _, pod := range pods {
			th.awaitBound(pod)
		}
		t.Logf("%s: kube-scheduler placed %d pods in %v, with %d connections to the address", arm.name, len(pods), time.Since(started).Round(10*time.Millisecond), silent.connections.Load())
		if asked := silent.connections.Load() > 0; asked != (arm.name == "ignorable, no response") {
			t.Errorf("%s: %d connections", arm.name, silent.connections.Load())
		}
		if strings.HasPrefix(arm.name, "strict") { // the entry is in force: other pods do wait
			waiting := th.create(gpuPod("gpu-"+fmt.Sprint(len(arm.name)), 1))
			event, err := controlplane.WaitForPodEvent(th.ctx, th.Client, waiting, "FailedScheduling")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(event.Message, arm.address) {
				t.Errorf("%s: the event of a pod with a GPU is %q", arm.name, event.Message)
			}
			th.delete(waiting)
		}
		th.delete(pods...)
		if err := scheduler.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// An entry that is strict for every pod must not be in the scheduler of Outboard's own pods: they
// wait for themselves.
func TestOwnPodsWaitForAStrictEntryForAllPods(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	th.install()
	th.admitCriticalPods()
	all, err := os.ReadFile(filepath.Join(th.Root, "deploy", "chart", "presets", "placement-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	address := th.nobodysAddress()
	th.scheduler(th.without(address, strings.Replace(string(all), "schedulerName: outboard-scheduler", "schedulerName: default-scheduler", 1)))
	for _, pod := range th.createOwnPods() {
		event, err := controlplane.WaitForPodEvent(th.ctx, th.Client, pod, "FailedScheduling")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(event.Message, address) {
			t.Errorf("the event of %s is %q", pod.Name, event.Message)
		}
	}
}

// without returns the configuration with the address in its entries, where no Outboard is.
func (th *theater) without(address, config string) string {
	th.t.Helper()
	dir := th.t.TempDir()
	th.command("certs", "--dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	nobody := &stage.Outboard{URL: "https://" + address, CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key")}
	config, err := nobody.SchedulerConfig(config)
	if err != nil {
		th.t.Fatal(err)
	}
	return config
}

// admitCriticalPods sets the status of the quota, as kube-controller-manager does. Until then, the
// API server rejects the pods.
func (th *theater) admitCriticalPods() {
	th.t.Helper()
	quotas := th.Client.CoreV1().ResourceQuotas("outboard-system")
	quota, err := quotas.Get(th.ctx, "outboard-critical-pods", metav1.GetOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: {}}}
	if _, err := quotas.UpdateStatus(th.ctx, quota, metav1.UpdateOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

// createOwnPods creates the pods of all Deployments of the manifests, as their controllers do.
func (th *theater) createOwnPods() (pods []*corev1.Pod) {
	th.t.Helper()
	for _, file := range []string{"outboard.yaml", "scheduler.yaml"} {
		data, err := os.ReadFile(filepath.Join(th.Root, "deploy", file))
		if err != nil {
			th.t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var d appsv1.Deployment
			if yaml.Unmarshal(doc, &d) != nil || d.Kind != "Deployment" {
				continue
			}
			for i := range *d.Spec.Replicas {
				pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
				pod.Name = fmt.Sprintf("%s-%d", d.Name, i)
				if pod, err = th.Client.CoreV1().Pods(d.Namespace).Create(th.ctx, pod, metav1.CreateOptions{}); err != nil {
					th.t.Fatal(err)
				}
				pods = append(pods, pod)
			}
		}
	}
	if len(pods) != 4 {
		th.t.Fatalf("the Deployments have %d pods, want 4", len(pods))
	}
	return pods
}

func (th *theater) delete(pods ...*corev1.Pod) {
	th.t.Helper()
	for _, pod := range pods {
		if err := controlplane.DeletePod(th.ctx, th.Client, pod); err != nil {
			th.t.Fatal(err)
		}
	}
}

// nobodysAddress returns an address on which nothing listens until the end of the test.
func (th *theater) nobodysAddress() string {
	th.t.Helper()
	address, err := th.HoldAddress()
	if err != nil {
		th.t.Fatal(err)
	}
	return address
}

// silence accepts connections and never responds.
type silence struct {
	listener    net.Listener
	connections atomic.Int64
}

func newSilence(t *testing.T) *silence {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silence{listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			defer c.Close() // at the end of the test
		}
	}()
	return s
}

func (s *silence) address() string { return s.listener.Addr().String() }
