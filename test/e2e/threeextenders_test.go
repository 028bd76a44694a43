package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// A role is one of the extenders in the scenario of kube-scheduler's own test (test/integration/scheduler/extender in its repository): it lets
// pods on these nodes, and prefers one of them. The rest of its entry differs.
type role struct {
	name, entry string
	fits        []string
	prefers     string
	preferred   int64 // the score of prefers; the others have a tenth
	verbs       []string
}

var scenarioRoles = []role{
	{"extender1", "weight: 3", []string{"machine1", "machine2", "machine3"}, "machine2", 10, []string{"filter", "prioritize"}},
	{"extender2", "weight: 4, bindVerb: bind, managedResources: [{name: foo.com/bar, ignoredByScheduler: true}]",
		[]string{"machine2", "machine3", "machine5"}, "machine3", 10, []string{"filter", "prioritize", "bind"}},
	{"extender3", "weight: 10, nodeCacheCapable: true", []string{"machine1", "machine2", "machine3"}, "machine2", 50, []string{"filter", "prioritize"}},
}

// TestThreeExtenders plays that scenario with kube-scheduler's extenders, and with Outboard in the place of each of them and of all three. The
// first pod must be where kube-scheduler's test wants it. The next pods select other nodes, and must be where those extenders place them.
func TestThreeExtenders(t *testing.T) {
	for name, outboards := range map[string][]string{
		"none": nil, "first": {"extender1"}, "second": {"extender2"}, "third": {"extender3"}, "all": {"extender1", "extender2", "extender3"},
	} {
		t.Run(name, func(t *testing.T) { playThreeExtenders(t, outboards) })
	}
}

func playThreeExtenders(t *testing.T, outboards []string) {
	th := theater.Open(t)
	var nodes []controlplane.NodeSpec
	places := []string{"machine2", "machine3"}
	for i := range 5 {
		n := controlplane.NodeSpec{Name: fmt.Sprint("machine", i+1), Labels: map[string]string{}}
		for _, place := range places {
			if n.Name != place {
				n.Labels["not-"+place] = ""
			}
		}
		nodes = append(nodes, n)
	}
	th.Nodes(nodes...)
	config := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\nprofiles:\n"
	for _, r := range scenarioRoles {
		config += fmt.Sprintf("- path: /%s\n  policies:\n  - type: Rules\n    config:\n      filters: [{name: fits, expression: 'node.metadata.name in %s'}]\n"+
			"      scores: [{name: prefers, expression: 'node.metadata.name == %q ? 100 : 10'}]\n", r.name, strings.ReplaceAll(fmt.Sprintf("%q", r.fits), " ", ", "), r.prefers)
	}
	o := th.Outboard(config)
	scheduler := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
	for _, r := range scenarioRoles {
		url := o.URL + "/" + r.name
		if !slices.Contains(outboards, r.name) {
			server := httptest.NewServer(r.peer(th.Client))
			t.Cleanup(server.Close)
			url = server.URL
		}
		scheduler += fmt.Sprintf("- {urlPrefix: %s, filterVerb: filter, prioritizeVerb: prioritize, %s}\n", url, r.entry)
	}
	th.Scheduler(scheduler)
	elsewhere := map[string]string{}
	for i, want := range places {
		pod := th.Bound(controlplane.PodSpec{Name: fmt.Sprint("pod-", i), Resources: map[string]string{"foo.com/bar": "1"}, NodeSelector: maps.Clone(elsewhere)})
		if pod.Spec.NodeName != want {
			t.Errorf("pod %d is on %s, want %s", i, pod.Spec.NodeName, want)
		}
		elsewhere["not-"+want] = ""
	}
	last := th.Placed(controlplane.PodSpec{Name: "last", Resources: map[string]string{"foo.com/bar": "1"}, NodeSelector: elsewhere})
	if last.Waiting == "" {
		t.Errorf("without a node for all three, the pod is on %s", last.Pod.Spec.NodeName)
	}
	for _, r := range scenarioRoles {
		for _, verb := range r.verbs {
			called := th.Metric(o, fmt.Sprintf("outboard_request_duration_seconds_count{outcome=\"success\",profile=\"/%s\",verb=%q} ", r.name, verb)) != ""
			if called != slices.Contains(outboards, r.name) {
				t.Errorf("as %s, Outboard was called for %s: %t", r.name, verb, called)
			}
		}
	}
}

// peer returns the handler of an extender that does what that of kube-scheduler's test does.
func (r role) peer(client kubernetes.Interface) http.Handler {
	mux := http.NewServeMux()
	respond := func(w http.ResponseWriter, result any) { _ = json.NewEncoder(w).Encode(result) }
	mux.HandleFunc("/filter", func(w http.ResponseWriter, req *http.Request) {
		args, nodes := r.arguments(req)
		result := extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{}}
		var names []string
		for _, node := range nodes {
			if slices.Contains(r.fits, node.Name) {
				names = append(names, node.Name)
			} else {
				result.FailedNodes[node.Name] = "extender failed: " + r.name
			}
		}
		if args.NodeNames != nil {
			result.NodeNames = &names
		} else {
			result.Nodes = &corev1.NodeList{Items: slices.DeleteFunc(nodes, func(n corev1.Node) bool { return !slices.Contains(names, n.Name) })}
		}
		respond(w, result)
	})
	mux.HandleFunc("/prioritize", func(w http.ResponseWriter, req *http.Request) {
		_, nodes := r.arguments(req)
		list := extenderv1.HostPriorityList{}
		for _, node := range nodes {
			score := r.preferred / 10
			if node.Name == r.prefers {
				score = r.preferred
			}
			list = append(list, extenderv1.HostPriority{Host: node.Name, Score: score})
		}
		respond(w, list)
	})
	mux.HandleFunc("/bind", func(w http.ResponseWriter, req *http.Request) {
		var args extenderv1.ExtenderBindingArgs
		err := json.NewDecoder(req.Body).Decode(&args)
		if err == nil {
			err = client.CoreV1().Pods(args.PodNamespace).Bind(req.Context(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: args.Node},
			}, metav1.CreateOptions{})
		}
		result := extenderv1.ExtenderBindingResult{}
		if err != nil {
			result.Error = err.Error()
		}
		respond(w, result)
	})
	return mux
}

// arguments returns those of a filter or prioritize call, and its nodes, which have only names if the call has only names. A body that cannot
// be decoded has no nodes, so no pod fits.
func (r role) arguments(req *http.Request) (args extenderv1.ExtenderArgs, nodes []corev1.Node) {
	if err := json.NewDecoder(req.Body).Decode(&args); err != nil {
		return args, nil
	}
	if args.NodeNames == nil {
		return args, args.Nodes.Items
	}
	for _, name := range *args.NodeNames {
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return args, nodes
}
