package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// Inside kube-scheduler, policies filter and score as in an extender.
func TestPluginFiltersAndScores(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(
		controlplane.NodeSpec{Name: "without"},
		controlplane.NodeSpec{Name: "with", Images: map[string]int64{"registry.example/app:1": 900 << 20}},
	)
	th.Plugin(`
profiles:
- policies:
  - {type: PodLimit, config: {max: 2, selector: {matchLabels: {app: web}}}}
  - {type: ImageLocality, weight: 3}
`)
	web := func(name string) controlplane.PodSpec {
		return controlplane.PodSpec{Name: name, Image: "registry.example/app:1", Labels: map[string]string{"app": "web"}}
	}
	for _, tt := range []struct{ name, want string }{{"first", "with"}, {"second", "with"}, {"third", "without"}, {"fourth", "without"}} {
		if pod := th.Bound(web(tt.name)); pod.Spec.NodeName != tt.want {
			t.Errorf("%s is on node %s, want %s", tt.name, pod.Spec.NodeName, tt.want)
		}
	}
	const full = "2 node(s) have reached their limit of matching pods"
	if placed := th.Placed(web("fifth")); !strings.Contains(placed.Waiting, full) {
		t.Errorf("fifth waits because of %q, want %q", placed.Waiting, full)
	}
	th.Bound(controlplane.PodSpec{Name: "other"}) // to which no policy applies
}

// adminOf returns the admin address of the plugin, as a URL.
func adminOf(th *theater.Theater, s *controlplane.Scheduler) string {
	th.T.Helper()
	found := regexp.MustCompile(`admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(s.Log())
	if found == nil {
		th.T.Fatal("the log does not contain the admin address")
	}
	return "http://" + found[1]
}

// Inside kube-scheduler, a pod is bound with its allocations, waits for an allocated GPU and is retried
// when it is free, and preempts others for a GPU, which no extender can do: without the plugin,
// kube-scheduler finds that the pod fits.
func TestPluginAllocations(t *testing.T) {
	for name, agent := range map[string]nodeAgent{
		"GPUShare": {
			theater.GPUs("gpu-node", 2, 10), theater.GPUPod, "ALIYUN_COM_GPU_MEM_IDX",
			"profiles:\n- managedResources: [{name: " + string(theater.GPUMem) + "}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n",
		},
		"ContainerToolkit": {
			controlplane.NodeSpec{Name: "gpu-node", Labels: map[string]string{"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "10240"}},
			func(name string, units int) controlplane.PodSpec {
				return controlplane.PodSpec{Name: name, Annotations: map[string]string{"nvidia.com/container.main.gpu-memory.limit": fmt.Sprint(units, "Gi")}}
			},
			"nvidia.cdi.k8s.io/container.main", "profiles:\n- policies: [{type: GPUMemory, config: {nodeAgent: ContainerToolkit}}]\n",
		},
	} {
		t.Run(name, func(t *testing.T) { agent.allocates(t) })
	}
}

// nodeAgent is a node with two GPUs, pods that request units of one, the annotation with the GPU, and the configuration.
type nodeAgent struct {
	node        controlplane.NodeSpec
	pod         func(name string, units int) controlplane.PodSpec
	key, config string
}

func (a nodeAgent) allocates(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(a.node)
	th.Priority("urgent", 1000)
	s := th.Plugin(a.config)
	cards := map[string]bool{}
	for _, name := range []string{"first", "second"} {
		pod := th.Bound(a.pod(name, 6))
		cards[pod.Annotations[a.key]] = true
	}
	if len(cards) != 2 {
		t.Errorf("the pods have the GPUs %v, want 0 and 1", cards)
	}
	const full = "Insufficient GPU Memory in one device"
	placed := th.Placed(a.pod("third", 6))
	if !strings.Contains(placed.Waiting, full) {
		t.Errorf("third waits because of %q, want %q", placed.Waiting, full)
	}
	admin := adminOf(th, s)
	doc, err := explain.Fetch(th.Ctx, http.DefaultClient, admin, url.Values{"pod": {"third"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := doc.Text(&text); err != nil || !strings.Contains(text.String(), full) {
		t.Errorf("explain returned %v\n%s", err, text.String())
	}
	if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, "first", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	th.WillBeBound(placed.Pod)
	urgent := a.pod("urgent", 8)
	urgent.PriorityClass = "urgent"
	preemptor := th.Create(urgent)
	th.Eventually("a pod is evicted", func() bool {
		pods, err := th.Client.CoreV1().Pods("default").List(th.Ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil { // no kubelet ends it
				if err := th.Client.CoreV1().Pods("default").Delete(th.Ctx, pods.Items[i].Name, *metav1.NewDeleteOptions(0)); err != nil {
					t.Fatal(err)
				}
				return true
			}
		}
		return false
	})
	pod := th.WillBeBound(preemptor)
	if pod.Annotations[a.key] == "" {
		t.Errorf("urgent has no GPU: %v", pod.Annotations)
	}
}

// The plugin sends as many requests as kube-scheduler may, whatever its own configuration says, and pods wait for their turn: a rejected pod
// would take more requests than its Binding.
func TestPluginBindsManyPodsAtOnce(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("gpu-node", 8, 10))
	var pods []*corev1.Pod
	for i := range 60 {
		pods = append(pods, th.Create(theater.GPUPod(fmt.Sprint("share-", i), 1)))
	}
	th.Plugin("clientConnection: {qps: 1}\nprofiles:\n- policies: [{type: GPUMemory}]\n")
	for _, pod := range pods {
		th.WillBeBound(pod)
		if events := th.Events(pod); strings.Contains(events, "too many pods") {
			t.Errorf("pod %s is rejected first:\n%s", pod.Name, events)
		}
	}
}
