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
	"outboard.dev/outboard/test/theater"
)

// While no pod of Outboard runs, the cluster's own kube-scheduler, which has an entry for Outboard,
// places Outboard's pods: a strict entry is only for pods that request a managed resource, and an
// ignorable entry costs kube-scheduler the time until it gives up.
func TestOwnPodsNeedNoOutboard(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("a", 1, 16), controlplane.NodeSpec{Name: "b"}, controlplane.NodeSpec{Name: "c"})
	th.Install()
	admitCriticalPods(th)
	strict, err := os.ReadFile(filepath.Join(th.Root, "deploy", "chart", "presets", "gpushare-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(strict), "schedulerName: outboard-scheduler", "schedulerName: default-scheduler", 1)
	soft := config[:strings.Index(config, "  managedResources:")] + config[strings.Index(config, "  enableHTTPS:"):]
	soft = strings.NewReplacer("ignorable: false", "ignorable: true", "  bindVerb: bind\n", "", "httpTimeout: 3s", "httpTimeout: 1s").Replace(soft)

	refused := nobodysAddress(th)
	silent := newSilence(t)
	for _, arm := range []struct{ name, config, address string }{
		{"strict, connection refused", config, refused},
		{"strict, no response", config, silent.address()},
		{"ignorable, connection refused", soft, refused},
		{"ignorable, no response", soft, silent.address()},
	} {
		scheduler := th.Scheduler(withNobodyAt(th, arm.address, arm.config))
		silent.connections.Store(0)
		started := time.Now()
		pods := createOwnPods(th)
		for _, pod := range pods {
			th.AwaitBound(pod)
		}
		t.Logf("%s: kube-scheduler placed %d pods in %v, with %d connections to the address", arm.name, len(pods), time.Since(started).Round(10*time.Millisecond), silent.connections.Load())
		if asked := silent.connections.Load() > 0; asked != (arm.name == "ignorable, no response") {
			t.Errorf("%s: %d connections", arm.name, silent.connections.Load())
		}
		if strings.HasPrefix(arm.name, "strict") { // the entry is in force: other pods do wait
			waiting := th.Create(theater.GPUPod("gpu-"+fmt.Sprint(len(arm.name)), 1))
			event, err := controlplane.WaitForPodEvent(th.Ctx, th.Client, waiting, "FailedScheduling")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(event.Message, arm.address) {
				t.Errorf("%s: the event of a pod with a GPU is %q", arm.name, event.Message)
			}
			deletePods(th, waiting)
		}
		deletePods(th, pods...)
		if err := scheduler.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// withNobodyAt returns the configuration with the address in its entries, where no Outboard is.
func withNobodyAt(th *theater.Theater, address, config string) string {
	th.T.Helper()
	dir := th.T.TempDir()
	th.Command("setup", "certs", "--dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	nobody := &stage.Outboard{URL: "https://" + address, CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key")}
	config, err := nobody.SchedulerConfig(config)
	if err != nil {
		th.T.Fatal(err)
	}
	return config
}

// admitCriticalPods sets the status of the quota, as kube-controller-manager does. Until then, the
// API server rejects the pods.
func admitCriticalPods(th *theater.Theater) {
	th.T.Helper()
	quotas := th.Client.CoreV1().ResourceQuotas("outboard-system")
	quota, err := quotas.Get(th.Ctx, "outboard-critical-pods", metav1.GetOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: {}}}
	if _, err := quotas.UpdateStatus(th.Ctx, quota, metav1.UpdateOptions{}); err != nil {
		th.T.Fatal(err)
	}
}

// createOwnPods creates the pods of all Deployments of the manifests, as their controllers do.
func createOwnPods(th *theater.Theater) (pods []*corev1.Pod) {
	th.T.Helper()
	for _, file := range []string{"outboard.yaml", "scheduler.yaml"} {
		data, err := os.ReadFile(filepath.Join(th.Root, "deploy", file))
		if err != nil {
			th.T.Fatal(err)
		}
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var d appsv1.Deployment
			if yaml.Unmarshal(doc, &d) != nil || d.Kind != "Deployment" {
				continue
			}
			for i := range *d.Spec.Replicas {
				pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
				pod.Name = fmt.Sprintf("%s-%d", d.Name, i)
				if pod, err = th.Client.CoreV1().Pods(d.Namespace).Create(th.Ctx, pod, metav1.CreateOptions{}); err != nil {
					th.T.Fatal(err)
				}
				pods = append(pods, pod)
			}
		}
	}
	if len(pods) != 4 {
		th.T.Fatalf("the Deployments have %d pods, want 4", len(pods))
	}
	return pods
}

func deletePods(th *theater.Theater, pods ...*corev1.Pod) {
	th.T.Helper()
	for _, pod := range pods {
		if err := controlplane.DeletePod(th.Ctx, th.Client, pod); err != nil {
			th.T.Fatal(err)
		}
	}
}

// nobodysAddress returns an address on which nothing listens until the end of the test.
func nobodysAddress(th *theater.Theater) string {
	th.T.Helper()
	address, err := th.HoldAddress()
	if err != nil {
		th.T.Fatal(err)
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
