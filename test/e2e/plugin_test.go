package e2e

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/controlplane"
	"outboard.dev/outboard/explain"
)

// plugin starts kube-scheduler with the plugin, whose configuration has these lines.
func (th *theater) plugin(configuration string, env ...string) *controlplane.Scheduler {
	th.t.Helper()
	path, err := plugged()
	if err != nil {
		th.t.Fatal(err)
	}
	args := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nadmin: {address: 127.0.0.1:0}\n" + configuration
	config := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: Outboard}]}
    bind: {enabled: [{name: Outboard}]}
  pluginConfig:
  - name: Outboard
    args:
      ` + strings.ReplaceAll(strings.TrimSpace(args), "\n", "\n      ") + "\n"
	if err := th.Grant(th.ctx, "outboard-scheduler.yaml", "system:kube-scheduler"); err != nil {
		th.t.Fatal(err)
	}
	s, err := th.StartScheduler(th.ctx, controlplane.SchedulerOptions{Config: config, Env: env, Verbosity: 3, Path: path})
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		if th.t.Failed() {
			th.t.Logf("kube-scheduler:\n%s", tail(s.Log(), 8000))
		}
	})
	return s
}

// Inside kube-scheduler policies filter and score as behind its calls.
func TestPluginFiltersAndScores(t *testing.T) {
	th := open(t)
	th.nodes(
		controlplane.NodeSpec{Name: "without"},
		controlplane.NodeSpec{Name: "with", Images: map[string]int64{"registry.example/app:1": 900 << 20}},
	)
	th.plugin(`
profiles:
- policies:
  - {type: PodLimit, config: {max: 2, selector: {matchLabels: {app: web}}}}
  - {type: ImageLocality, weight: 3}
`)
	web := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Image: "registry.example/app:1", Labels: map[string]string{"app": "web"}}
	}
	for _, tt := range []struct{ name, want string }{{"first", "with"}, {"second", "with"}, {"third", "without"}, {"fourth", "without"}} {
		if pod := th.bound(web(tt.name)); pod.Spec.NodeName != tt.want {
			t.Errorf("%s is on node %s, want %s", tt.name, pod.Spec.NodeName, tt.want)
		}
	}
	const full = "2 node(s) have reached their limit of matching pods"
	if placed := th.place(web("fifth")); !strings.Contains(placed.Waiting, full) {
		t.Errorf("fifth waits since %q, want %q", placed.Waiting, full)
	}
	th.bound(controlplane.PodSpec{Name: "other"}) // which no policy concerns
}

// adminOf returns the admin address of the plugin, as a URL.
func (th *theater) adminOf(s *controlplane.Scheduler) string {
	th.t.Helper()
	found := regexp.MustCompile(`admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(s.Log())
	if found == nil {
		th.t.Fatal("the log does not say where the admin address is")
	}
	return "http://" + found[1]
}

// Inside kube-scheduler a pod is bound with its claims, waits for a GPU that is taken and is retried when it is free, and preempts
// others for a GPU, which no extender can do: kube-scheduler itself would fit the pod.
func TestPluginClaims(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 10))
	for name, value := range map[string]int32{"urgent": 1000} {
		if _, err := th.Client.SchedulingV1().PriorityClasses().Create(th.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := th.plugin("profiles:\n- managedResources: [{name: " + string(gpuMem) + "}]\n  policies: [{type: GPUMemory}]\n")
	cards := map[string]bool{}
	for _, name := range []string{"first", "second"} {
		pod := th.bound(gpuPod(name, 6))
		cards[pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"]] = true
	}
	if !cards["0"] || !cards["1"] {
		t.Errorf("the pods have the GPUs %v, want 0 and 1", cards)
	}
	const full = "Insufficient GPU Memory in one device"
	placed := th.place(gpuPod("third", 6))
	if !strings.Contains(placed.Waiting, full) {
		t.Errorf("third waits since %q, want %q", placed.Waiting, full)
	}
	admin := th.adminOf(s)
	doc, err := explain.Fetch(th.ctx, http.DefaultClient, admin, url.Values{"pod": {"third"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := doc.Text(&text); err != nil || !strings.Contains(text.String(), full) {
		t.Errorf("explain says %v\n%s", err, text.String())
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.ctx, "first", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	th.awaitBoundIdle("third")
	urgent := gpuPod("urgent", 8)
	urgent.PriorityClass = "urgent"
	if _, err := th.Client.CoreV1().Pods("default").Create(th.ctx, urgent.Pod(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := th.awaitBoundIdle("urgent")
	if pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] == "" {
		t.Errorf("urgent is bound without a GPU: %v", pod.Annotations)
	}
}

// awaitBoundIdle waits until the pod is bound, while nothing else happens in the cluster.
func (th *theater) awaitBoundIdle(name string) *corev1.Pod {
	th.t.Helper()
	var bound *corev1.Pod
	th.eventually(name+" is bound", func() bool {
		pod, err := th.Client.CoreV1().Pods("default").Get(th.ctx, name, metav1.GetOptions{})
		if err != nil {
			th.t.Fatal(err)
		}
		bound = pod
		return pod.Spec.NodeName != ""
	})
	return bound
}
