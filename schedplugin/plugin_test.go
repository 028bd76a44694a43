package schedplugin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/decision"
)

const onePerNode = "profiles: [{policies: [{type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}]}]\n"

var web = map[string]string{"app": "web"}

// A gang of 8 is placed as a whole: each member counts the members before it, before any of them is
// bound. If the group does not fit, the state is the same as before.
func TestGroupIsPlacedAndReverted(t *testing.T) {
	s := schedule(t, 7, onePerNode)
	for round := range 2 {
		var placed []*corev1.Pod
		var states []*state
		for i := range 8 {
			pod := podNamed(fmt.Sprintf("member-%d-%d", round, i), web)
			st, left := s.attempt(pod)
			if len(left) != 7-i {
				t.Fatalf("round %d: member %d fits on %d nodes, want %d", round, i, len(left), 7-i)
			}
			if len(left) == 0 {
				break // the group does not fit
			}
			s.assume(pod, i)
			if status := s.Reserve(t.Context(), st, pod, s.infos[i].node.Name); !status.IsSuccess() {
				t.Fatal(status.AsError())
			}
			placed, states = append(placed, pod), append(states, st)
		}
		for i, pod := range placed {
			s.Unreserve(t.Context(), states[i], pod, s.infos[i].node.Name)
			s.Unreserve(t.Context(), states[i], pod, s.infos[i].node.Name) // the framework may call it twice
			s.forget(pod, i)
		}
	}
	for n := range s.service.Cluster.View().All() {
		if len(n.Pods) > 0 {
			t.Errorf("pod %s is still on node %s", n.Pods[0].Name, n.Name)
		}
	}
}

// A pod counts on its node from Reserve until the view shows it, and on no node if it is not bound.
func TestReservedPodsCount(t *testing.T) {
	s := schedule(t, 2, onePerNode, podNamed("first", web))
	first := podNamed("first", web)
	st, _ := s.attempt(first)
	s.Reserve(t.Context(), st, first, "n0") // the NodeInfo does not show it, like the view of another profile
	s.assume(first, 0)
	if _, left := s.attempt(podNamed("second", web)); len(left) != 1 {
		t.Errorf("second fits on %v, want n1", left)
	}
	if status := s.Bind(t.Context(), st, first, "n0"); !status.IsSkip() {
		t.Errorf("the plugin binds a pod without allocations: %v", status)
	}
	s.PostBind(t.Context(), st, first, "n0")
	if _, left := s.attempt(podNamed("third", web)); len(left) != 1 {
		t.Error("the bound pod does not count before the watch shows it on its node")
	}
	bound := first.DeepCopy()
	bound.Spec.NodeName = "n0"
	if _, err := s.client.CoreV1().Pods("default").Update(t.Context(), bound, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the watch shows the pod on its node", func() bool { return s.service.Cluster.PodByUID("first").Spec.NodeName == "n0" })
	if pods := s.service.Cluster.View().Node("n0").Pods; len(pods) != 1 {
		t.Errorf("%d pods are on the node", len(pods))
	}
}

// A pod is retried when the reservation that takes its place is reverted, although that writes nothing, and not before, whatever else
// changes: each attempt would double its backoff.
func TestPodsAreRetriedAfterAReservation(t *testing.T) {
	s := schedule(t, 1, onePerNode, podNamed("first", web), podNamed("waiting", web))
	first, waiting := podNamed("first", web), podNamed("waiting", web)
	st, _ := s.attempt(first)
	s.assume(first, 0)
	s.Reserve(t.Context(), st, first, "n0") // and then it waits in Permit
	s.attempt(waiting)
	for i := range 3 {
		node := s.infos[0].node.DeepCopy()
		node.Labels = map[string]string{"n": fmt.Sprint(i)}
		if _, err := s.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.eventually("the View has the node", func() bool { return s.service.Cluster.View().Node("n0").Object.Labels["n"] == fmt.Sprint(i) })
	}
	if status, _ := s.service.Requeuer.Status("/", "waiting"); status.Requeues > 0 {
		t.Errorf("it was retried %d times before the reservation ended", status.Requeues)
	}
	s.Unreserve(t.Context(), st, first, "n0")
	s.eventually("it is retried", func() bool {
		status, _ := s.service.Requeuer.Status("/", "waiting")
		return status.Requeues > 0
	})
	if status, _ := s.service.Requeuer.Status("/", "waiting"); status.Requeues != 1 {
		t.Errorf("it was retried %d times", status.Requeues)
	}
}

// The plugin skips a pod to which no policy applies; it records a pod that it rejects on every node
// with the reasons, and requeues it when it fits.
func TestRejectedPodsAreRetried(t *testing.T) {
	blocker := podNamed("blocker", web)
	blocker.Spec.NodeName = "n0"
	s := schedule(t, 1, onePerNode, blocker, podNamed("waiting", web))
	s.assume(blocker, 0)
	if st, left := s.attempt(podNamed("other", nil)); st.data != nil || len(left) != 1 {
		t.Errorf("a pod to which no policy applies: %v, %v", st.data, left)
	}
	waiting := podNamed("waiting", web)
	if _, left := s.attempt(waiting); len(left) > 0 {
		t.Fatalf("it fits on %v", left)
	}
	records := s.service.Log.Find(decision.Query{Namespace: "default", Name: "waiting", Limit: 9})
	if len(records) != 1 || records[0].Verb != decision.Filter || records[0].Fit != 0 || len(records[0].Rejections) != 1 || records[0].Rejections[0].Nodes != 1 {
		t.Fatalf("the records are %+v", records)
	}
	if hint, err := s.untracked(logger, waiting, nil, nil); err != nil || hint != fwk.QueueSkip {
		t.Errorf("an event that does not make the pod fit: %v, %v", hint, err)
	}
	if hint, err := s.untracked(logger, podNamed("unknown", web), nil, nil); err != nil || hint != fwk.Queue {
		t.Errorf("an event for a pod that is not tracked: %v, %v", hint, err)
	}
	if hint, err := s.fitsNewNode(logger, waiting, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil || hint != fwk.Queue {
		t.Errorf("a new node: %v, %v", hint, err)
	}
	if err := s.client.CoreV1().Pods("default").Delete(t.Context(), "blocker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the pod is retried", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.activated["waiting"] > 0
	})
}

// kube-scheduler asks for each pending pod whether it fits on a new node, and holds the lock of its queue meanwhile. The plugin evaluates
// only pods for which that takes microseconds.
func TestNewNodesForLargePods(t *testing.T) {
	s := schedule(t, 1, `profiles: [{policies: [{type: Rules, config: {filters: [{name: never, expression: 'pod.metadata.name == ""'}]}}]}]`)
	keys := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("k", i)] = "v"
		}
		return m
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        fwk.QueueingHint
	}{
		{"ordinary", keys(20), fwk.QueueSkip},
		{"many annotations", keys(10000), fwk.Queue},
		{"a large annotation", map[string]string{"k": strings.Repeat("v", 200<<10)}, fwk.Queue},
	} {
		pod := podNamed("waiting", nil)
		pod.Annotations = tt.annotations
		if hint, err := s.fitsNewNode(logger, pod, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil || hint != tt.want {
			t.Errorf("%s: %v, %v; want %v", tt.name, hint, err, tt.want)
		}
	}
}

// The framework evaluates hypothetical nodes: without the pods that preemption evicts, and with
// nominated pods. The plugin records neither as a decision for the pod.
func TestSupposedNodes(t *testing.T) {
	blocker := podNamed("blocker", web)
	s := schedule(t, 1, onePerNode)
	s.assume(blocker, 0)
	pod := podNamed("urgent", web)
	st, _ := s.attempt(pod)
	before := s.service.Log.Find(decision.Query{Namespace: "default", Name: "urgent", Limit: 9})
	dry := st.Clone()
	s.RemovePod(t.Context(), dry, pod, podInfo{pod: blocker}, s.infos[0])
	without := &nodeInfo{node: s.infos[0].node, generation: 1000}
	if status := s.Filter(t.Context(), dry, pod, without); !status.IsSuccess() {
		t.Errorf("without the pod to evict: %v", status)
	}
	if status := s.Filter(t.Context(), dry, pod, s.infos[0]); status.Code() != fwk.Unschedulable {
		t.Errorf("with it: %v", status)
	}
	if after := s.service.Log.Find(decision.Query{Namespace: "default", Name: "urgent", Limit: 9}); len(after) != len(before) || after[0].Nodes != 1 {
		t.Errorf("the records are %+v", after)
	}
}

// Pods with the same verdicts and scores have the same signature, other pods have different ones,
// and a pod that depends on more has none.
func TestSignatures(t *testing.T) {
	s := schedule(t, 1, "profiles: [{policies: [{type: PodLimit, config: {max: 1, selector: {matchLabels: {app: web}}}}, {type: ImageLocality}]}]\n")
	image := func(name, image string, labels map[string]string) *corev1.Pod {
		pod := podNamed(name, labels)
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
		return pod
	}
	sign := func(pod *corev1.Pod) []byte {
		t.Helper()
		fragments, status := s.SignPod(t.Context(), pod)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("%v, %v", fragments, status)
		}
		return fragments[0].Value.([]byte)
	}
	one := sign(image("a", "app:1", web))
	if !bytes.Equal(one, sign(image("b", "app:1", web))) {
		t.Error("equal pods differ")
	}
	if bytes.Equal(one, sign(image("c", "app:2", web))) || bytes.Equal(one, sign(image("d", "app:1", nil))) {
		t.Error("different pods have the same signature")
	}
	for what, policies := range map[string]string{
		"a policy that normalizes": `{type: Cost, config: {scoringStrategy: {type: NodeCost}, prices: [{priceFrom: {label: price}}]}}`,
		"a policy that allocates":  `{type: Devices, config: {resource: example.com/nic}}`,
	} {
		unsigned := schedule(t, 1, "profiles: [{policies: ["+policies+"]}]\n")
		pod := podNamed("a", nil)
		pod.Spec.Containers = []corev1.Container{{Name: "c"}}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/nic": resource.MustParse("1")}
		pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests
		if _, status := unsigned.SignPod(t.Context(), pod); status.Code() != fwk.Unschedulable {
			t.Errorf("%s: %v", what, status)
		}
	}
}

const allocating = "profiles: [{policies: [{type: GPUMemory}]}]\n"

// gpuPod returns a pod that needs an allocation.
func gpuPod(name string) *corev1.Pod {
	pod := podNamed(name, nil)
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("4")},
	}}}
	return pod
}

// withGPU adds a node with a GPU to kube-scheduler's nodes.
func (s *scheduler) withGPU(name string) *corev1.Node {
	size := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("16"), "aliyun.com/gpu-count": resource.MustParse("1")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: size, Allocatable: size}}
	s.generation++
	s.infos = append(s.infos, &nodeInfo{node: node, generation: s.generation})
	return node
}

// If no View shows a node yet, a pod that may need an allocation is not placed there, and so it is never bound without the allocation.
func TestNoAllocationOnNodesThatNoViewShows(t *testing.T) {
	s := schedule(t, 0, allocating)
	s.withGPU("new")
	pod := gpuPod("p")
	st, left := s.attempt(pod)
	if _, fits := left["new"]; !fits {
		t.Fatalf("the pod fits on %v", left)
	}
	status := s.Reserve(t.Context(), st, pod, "new")
	if status.Code() != fwk.Error || !strings.Contains(status.Message(), `node "new" is not known to Outboard yet`) {
		t.Errorf("Reserve on a node that no view shows: %v", status)
	}
	if status := s.Bind(t.Context(), st, pod, "new"); status.IsSkip() || status.IsSuccess() {
		t.Errorf("Bind without a reservation: %v", status)
	}
}

// A profile of kube-scheduler may not call Reserve. The plugin then binds the pods that may need an allocation, and skips the others.
func TestBindWithoutReserve(t *testing.T) {
	s := schedule(t, 0, allocating, gpuPod("p"))
	node := s.withGPU("n")
	if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the node", func() bool { return s.service.Cluster.View().Len() == 1 })
	pod := gpuPod("p")
	st, _ := s.attempt(pod)
	if status := s.Bind(t.Context(), st, pod, "n"); !status.IsSuccess() {
		t.Errorf("a pod that needs an allocation: %v", status)
	}
	if allocations := s.ledgers.allocations(); !slices.Equal(allocations, []string{"p"}) {
		t.Errorf("allocations of the pods %v, want p", allocations)
	}
	if status := s.Bind(t.Context(), &state{}, podNamed("other", nil), "n"); !status.IsSkip() {
		t.Errorf("a pod to which no policy applies: %v", status)
	}
	limited := schedule(t, 1, onePerNode)
	st, _ = limited.attempt(podNamed("web", web))
	if status := limited.Bind(t.Context(), st, podNamed("web", web), "n0"); !status.IsSkip() {
		t.Errorf("a pod of a profile that allocates nothing: %v", status)
	}
}

// If all nodes have the same total, the framework need not call Score. A profile of kube-scheduler may also not call PreScore.
func TestEqualScoresAreSkipped(t *testing.T) {
	s := schedule(t, 3, "profiles: [{policies: [{type: ImageLocality}]}]\n")
	pod := podNamed("p", nil)
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "nowhere:1"}}
	var all []fwk.NodeInfo
	for _, info := range s.infos {
		all = append(all, info)
	}
	st := &state{}
	s.PreFilter(t.Context(), st, pod, all)
	if score, status := s.Score(t.Context(), st, pod, all[0]); score != 0 || !status.IsSuccess() {
		t.Errorf("Score without PreScore: %d, %v", score, status)
	}
	if status := s.PreScore(t.Context(), st, pod, all); !status.IsSkip() {
		t.Errorf("no node has the image: %v", status)
	}
	records := s.service.Log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 9})
	if len(records) != 2 || records[0].Verb != decision.Prioritize || records[0].Ties != 3 {
		t.Errorf("the records are %+v", records)
	}
}
