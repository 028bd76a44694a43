package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// pluginEnabled is the rest of a profile of kube-scheduler up to the configuration of the plugin.
const pluginEnabled = `  plugins:
    multiPoint: {enabled: [{name: Outboard}]}
    bind: {enabled: [{name: Outboard}]}
  pluginConfig:
  - name: Outboard
    args:
`

// plugin starts kube-scheduler with the plugin, with the lines as its configuration.
func (th *theater) plugin(configuration string) *controlplane.Scheduler {
	th.t.Helper()
	path, err := plugged()
	if err != nil {
		th.t.Fatal(err)
	}
	return th.pluginOf(path, configuration)
}

// pluginOf is plugin for a build of kube-scheduler, with these arguments.
func (th *theater) pluginOf(path, configuration string, args ...string) *controlplane.Scheduler {
	th.t.Helper()
	return th.pluginIn(path, pluginEnabled, configuration, args...)
}

// pluginIn is pluginOf with the rest of the profile in place of pluginEnabled.
func (th *theater) pluginIn(path, profile, configuration string, args ...string) *controlplane.Scheduler {
	th.t.Helper()
	configuration = outboardHeader + "admin: {address: 127.0.0.1:0}\n" + configuration
	config := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
` + profile + "      " + strings.ReplaceAll(strings.TrimSpace(configuration), "\n", "\n      ") + "\n"
	if err := th.Grant(th.ctx, "plugin.yaml", "system:kube-scheduler"); err != nil {
		th.t.Fatal(err)
	}
	s, err := th.StartScheduler(th.ctx, controlplane.SchedulerOptions{Config: config, Args: args, Verbosity: 3, Path: path})
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

// Inside kube-scheduler, policies filter and score as in an extender.
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
		t.Errorf("fifth waits because of %q, want %q", placed.Waiting, full)
	}
	th.bound(controlplane.PodSpec{Name: "other"}) // to which no policy applies
}

// A custom kube-scheduler, in a module of its own with at most 20 lines of code, has a custom
// policy.
func TestOwnScheduler(t *testing.T) {
	th := open(t)
	program := filepath.Join(t.TempDir(), "scheduler")
	build := exec.CommandContext(th.ctx, "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join(th.Root, "examples", "own-scheduler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	main, err := os.ReadFile(filepath.Join(build.Dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(main, []byte("\n")); lines > 20 {
		t.Errorf("main.go has %d lines, and should have 20 at most", lines)
	}
	th.nodes(controlplane.NodeSpec{Name: "a"})
	th.pluginOf(program, "profiles:\n- policies: [{type: Seats, config: {license: cad, seats: 2}}]\n")
	seat := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Labels: map[string]string{"example.com/license": "cad"}}
	}
	for _, name := range []string{"first", "second"} {
		if pod := th.bound(seat(name)); pod.Annotations["example.com/seat"] != "cad" {
			t.Errorf("%s has the annotations %v", name, pod.Annotations)
		}
	}
	third := th.place(seat("third"))
	if !strings.Contains(third.Waiting, "all seats of the license are taken") {
		t.Fatalf("the third pod waits because of %q", third.Waiting)
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.ctx, "first", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if pod := th.willBeBound(third.Pod); pod.Annotations["example.com/seat"] != "cad" {
		t.Errorf("third has the annotations %v", pod.Annotations)
	}
}

// adminOf returns the admin address of the plugin, as a URL.
func (th *theater) adminOf(s *controlplane.Scheduler) string {
	th.t.Helper()
	found := regexp.MustCompile(`admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(s.Log())
	if found == nil {
		th.t.Fatal("the log does not contain the admin address")
	}
	return "http://" + found[1]
}

// Inside kube-scheduler, a pod is bound with its claims, waits for an allocated GPU and is retried
// when it is free, and preempts others for a GPU, which no extender can do: without the plugin,
// kube-scheduler finds that the pod fits.
func TestPluginClaims(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 10))
	th.priority("urgent", 1000)
	s := th.plugin("profiles:\n- managedResources: [{name: " + string(gpuMem) + "}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n")
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
		t.Errorf("third waits because of %q, want %q", placed.Waiting, full)
	}
	admin := th.adminOf(s)
	doc, err := explain.Fetch(th.ctx, http.DefaultClient, admin, url.Values{"pod": {"third"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := doc.Text(&text); err != nil || !strings.Contains(text.String(), full) {
		t.Errorf("explain returned %v\n%s", err, text.String())
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.ctx, "first", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	th.willBeBound(placed.Pod)
	urgent := gpuPod("urgent", 8)
	urgent.PriorityClass = "urgent"
	preemptor := th.create(urgent)
	th.eventually("a pod is evicted", func() bool {
		pods, err := th.Client.CoreV1().Pods("default").List(th.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil { // no kubelet ends it
				if err := th.Client.CoreV1().Pods("default").Delete(th.ctx, pods.Items[i].Name, *metav1.NewDeleteOptions(0)); err != nil {
					t.Fatal(err)
				}
				return true
			}
		}
		return false
	})
	pod := th.willBeBound(preemptor)
	if pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] == "" {
		t.Errorf("urgent has no GPU: %v", pod.Annotations)
	}
}

// The plugin sends as many requests as kube-scheduler may, whatever its own configuration says, and pods wait for their turn: a rejected pod
// would take more requests than its Binding.
func TestPluginBindsManyPodsAtOnce(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 8, 10))
	var pods []*corev1.Pod
	for i := range 60 {
		pods = append(pods, th.create(gpuPod(fmt.Sprint("share-", i), 1)))
	}
	th.plugin("clientConnection: {qps: 1, burst: 1}\nprofiles:\n- policies: [{type: GPUMemory}]\n")
	for _, pod := range pods {
		th.willBeBound(pod)
		if events := th.events(pod); strings.Contains(events, "too many pods") {
			t.Errorf("pod %s is rejected first:\n%s", pod.Name, events)
		}
	}
}

// With kube-scheduler's gang scheduling, a gang of 8 is placed as a whole, or not at all: each
// member counts the GPUs of the members before it, although none of them is bound, and the plugin
// releases the reservations of a group that does not fit.
func TestPluginPlacesGangs(t *testing.T) {
	const gate = "--feature-gates=GenericWorkload=true"
	th := openWith(t, patience, stage.Options{ControlPlane: controlplane.Options{APIServerArgs: []string{gate, "--runtime-config=scheduling.k8s.io/v1beta1=true"}}})
	th.nodes(gpus("one", 4, 10), gpus("two", 4, 10))
	path, err := plugged()
	if err != nil {
		t.Fatal(err)
	}
	s := th.pluginOf(path, "profiles:\n- managedResources: [{name: "+string(gpuMem)+"}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n", gate)
	blocker := th.bound(gpuPod("blocker", 6))
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 8}
	if _, err := th.Client.SchedulingV1beta1().PodGroups("default").Create(th.ctx, group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var members []*corev1.Pod
	for i := range 8 {
		member := gpuPod(fmt.Sprintf("member-%d", i), 6).Pod()
		member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
		created, err := th.Client.CoreV1().Pods("default").Create(th.ctx, member, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, created)
	}
	th.eventually("the gang was tried", func() bool { return strings.Contains(s.Log(), "Insufficient GPU Memory in one device") })
	for _, member := range members {
		if pod, err := th.Client.CoreV1().Pods("default").Get(th.ctx, member.Name, metav1.GetOptions{}); err != nil || pod.Spec.NodeName != "" {
			t.Fatalf("%s is bound although only 7 fit: %v", member.Name, err)
		}
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.ctx, blocker.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for _, member := range members {
		pod := th.willBeBound(member)
		taken[pod.Spec.NodeName+"/"+pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"]] = true
	}
	if len(taken) != 8 {
		t.Errorf("the members have the GPUs %v, want 8", taken)
	}
}
