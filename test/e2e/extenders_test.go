package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// calls records which extenders kube-scheduler calls for which pod, in order.
type calls struct {
	mu    sync.Mutex
	order map[string][]string
}

// extender starts an extender that lets all nodes pass, except for pods with the name of the extender, and returns its URL.
func (c *calls) extender(t *testing.T, name string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		c.order[args.Pod.Name] = append(c.order[args.Pod.Name], name)
		c.mu.Unlock()
		result := extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames}
		if args.Pod.Name == name {
			result = extenderv1.ExtenderFilterResult{NodeNames: &[]string{}, FailedNodes: extenderv1.FailedNodesMap{}}
			for _, node := range *args.NodeNames {
				result.FailedNodes[node] = "no tape drive"
			}
		}
		_ = json.NewEncoder(w).Encode(result)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// kube-scheduler calls strict extenders before ignorable ones, both in the order of the file, and none after one that rejects all nodes.
// docs/verbs.md says so.
func TestOrderOfExtenders(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	c := &calls{order: map[string][]string{}}
	config := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
	for _, name := range []string{"soft-1", "strict-1", "soft-2", "strict-2"} {
		config += "- {urlPrefix: " + c.extender(t, name) + ", filterVerb: filter, nodeCacheCapable: true"
		if strings.HasPrefix(name, "soft") {
			config += ", ignorable: true"
		}
		config += "}\n"
	}
	th.Scheduler(config)
	th.Bound(controlplane.PodSpec{Name: "fits"})
	for _, pod := range []string{"strict-2", "soft-1"} {
		if placed := th.Placed(controlplane.PodSpec{Name: pod}); !strings.Contains(placed.Waiting, "2 no tape drive") {
			t.Errorf("%s is on %q, waiting because of %q", pod, placed.Pod.Spec.NodeName, placed.Waiting)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for pod, want := range map[string][]string{
		"fits":     {"strict-1", "strict-2", "soft-1", "soft-2"},
		"strict-2": {"strict-1", "strict-2"},
		"soft-1":   {"strict-1", "strict-2", "soft-1"},
	} {
		got := c.order[pod]
		again := slices.Repeat(want, len(got)/len(want)+1) // a pod that waits is retried at any time, also now
		if len(got) < len(want) || !slices.Equal(got, again[:len(got)]) {
			t.Errorf("the calls for %s are %q, want %q", pod, got, want)
		}
	}
}

// tenfold are ten times kube-scheduler's default weights, as docs/verbs.md says.
const tenfold = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      enabled:
      - {name: TaintToleration, weight: 30}
      - {name: NodeAffinity, weight: 20}
      - {name: PodTopologySpread, weight: 20}
      - {name: InterPodAffinity, weight: 20}
      - {name: NodeResourcesFit, weight: 10}
      - {name: NodeResourcesBalancedAllocation, weight: 10}
      - {name: ImageLocality, weight: 10}
extenders:
- urlPrefix: http://127.0.0.1:8888
  prioritizeVerb: prioritize
  weight: 1
  nodeCacheCapable: true
  httpTimeout: 1s
  ignorable: true
`

// With ten times the weights, the smallest weight of an extender counts less than a plugin; with kube-scheduler's own, as much.
func TestLessInfluenceThanAPlugin(t *testing.T) {
	t.Parallel()
	var defaults map[string]any
	if err := yaml.Unmarshal([]byte(tenfold), &defaults); err != nil {
		t.Fatal(err)
	}
	delete(defaults, "profiles")
	without, err := yaml.Marshal(defaults)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ config, want string }{
		"ten times the weights": {tenfold, "idle"},
		"the default weights":   {string(without), "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			th := theater.Open(t)
			th.Nodes(controlplane.NodeSpec{Name: "busy", CPU: "8", Memory: "16Gi"}, controlplane.NodeSpec{Name: "idle", CPU: "8", Memory: "16Gi"})
			th.Create(controlplane.PodSpec{Name: "runs", NodeName: "busy", CPU: "4", Memory: "8Gi"})
			o := th.Outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: Rules, config: {scores: [{name: busy, expression: 'node.metadata.name == "busy" ? 100 : 0'}]}}
`)
			config, err := o.SchedulerConfig(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			th.Scheduler(config)
			if pod := th.Bound(controlplane.PodSpec{Name: "new", CPU: "1", Memory: "2Gi"}); pod.Spec.NodeName != tt.want {
				t.Errorf("the pod is on %s, want %s", pod.Spec.NodeName, tt.want)
			}
		})
	}
}

// kube-scheduler binds pods itself, and calls filter for the next pod before Outboard sees where the former one is.
// Pods in quick succession exceed no limit nevertheless.
func TestSoftExtenderKeepsALimit(t *testing.T) {
	th := theater.Open(t)
	const nodes = 20
	var specs []controlplane.NodeSpec
	for i := range nodes {
		specs = append(specs, controlplane.NodeSpec{Name: fmt.Sprintf("n%d", i)})
	}
	th.Nodes(specs...)
	o := th.Outboard(theater.WebLimit + `  - type: Rules
    config: {scores: [{name: first, expression: '100 - 5 * int(node.metadata.name.substring(1))'}]}
    weight: 100
` + theater.PlainHTTP)
	var pods []*corev1.Pod
	for i := range nodes {
		pods = append(pods, th.Create(controlplane.PodSpec{Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": "web"}}))
	}
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize", Ignorable: true}))
	on := map[string]string{}
	for _, pod := range pods {
		pod = th.AwaitBound(pod)
		if other := on[pod.Spec.NodeName]; other != "" {
			t.Errorf("%s has %s and %s, the limit is 1", pod.Spec.NodeName, other, pod.Name)
		}
		on[pod.Spec.NodeName] = pod.Name
	}
}
