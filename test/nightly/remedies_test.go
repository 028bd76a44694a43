package nightly

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

var (
	remedies     = flag.Int("remedies", 10, "how many remedies TestRemediesAreTrue applies")
	remediesSeed = flag.Uint64("remedies.seed", 1, "which clusters and pods")
)

const remedyPolicies = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: GPUMemory}
  - {type: PodLimit, config: {max: 2, selector: {matchLabels: {app: web}}}}
  - {type: Licenses, config: {features: [{name: cad, seats: 3}]}}
`

// What explain says would make a pod fit does: in random clusters, kube-scheduler binds the changed pod, or the waiting pod after the
// named pods are gone, and does not bind a pod that requests one unit more.
func TestRemediesAreTrue(t *testing.T) {
	th := theater.Open(t)
	o := th.Outboard(remedyPolicies)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize bind"}))
	s := remedyScene{Theater: th, o: o, r: rand.New(rand.NewPCG(*remediesSeed, 1)), applied: map[whatif.Kind]int{}}
	for count := 0; count < *remedies; count = total(s.applied) {
		s.round++
		s.play()
		s.clear()
	}
	t.Logf("%d clusters, %v remedies: each is true; %d pods with one unit more wait", s.round, s.applied, s.more)
	if len(s.applied) < 3 {
		t.Errorf("only these kinds: %v", s.applied)
	}
}

func total(counts map[whatif.Kind]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// remedyScene is a series of clusters, one after the other.
type remedyScene struct {
	*theater.Theater
	o           *stage.Outboard
	r           *rand.Rand
	round, pods int
	applied     map[whatif.Kind]int
	more        int
}

// play makes a cluster with a pod that waits, and applies what explain says would make it fit.
func (s *remedyScene) play() {
	var specs []controlplane.NodeSpec
	for i := range 1 + s.r.IntN(2) {
		specs = append(specs, s.node(i))
	}
	s.Nodes(specs...)
	for range 3 + s.r.IntN(4) {
		if spec := s.pod(6); s.Placed(spec).Waiting != "" {
			s.gone("default/" + spec.Name)
		}
	}
	if s.r.IntN(4) == 0 {
		s.patchNode(specs[0].Name, `{"spec":{"unschedulable":true}}`)
	}
	s.NextView(s.o)
	spec := s.pod(14)
	if s.r.IntN(3) == 0 {
		spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	waiting := s.Placed(spec)
	if waiting.Waiting == "" {
		return
	}
	now := s.ExplainPending(s.o, spec.Name)
	for i := range now.Remedies {
		if r := &now.Remedies[i]; r.Kind == whatif.Request {
			s.oneMore(waiting.Pod, r)
		}
	}
	for i := range now.Remedies {
		r := &now.Remedies[i]
		changed := s.copyOf(waiting.Pod)
		switch {
		case r.Kind == whatif.Request:
			setRequest(changed, r.Resource, r.To.String())
		case r.Kind == whatif.Nodes && r.Change.Type == whatif.Tolerate:
			key, rest, _ := strings.Cut(r.Change.Of, "=")
			value, effect, _ := strings.Cut(rest, ":")
			changed.Spec.Tolerations = append(changed.Spec.Tolerations, corev1.Toleration{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		case r.Kind == whatif.Nodes && r.Change.Type == whatif.DropSelector:
			key, _, _ := strings.Cut(r.Change.Of, "=")
			delete(changed.Spec.NodeSelector, key)
		default:
			continue
		}
		s.apply(r, changed)
	}
	s.end(waiting.Pod, now.Remedies)
}

// end applies one remedy that changes the cluster, if there is any; then the waiting pod itself is bound.
func (s *remedyScene) end(waiting *corev1.Pod, all []whatif.Remedy) {
	for _, i := range s.r.Perm(len(all)) {
		r := &all[i]
		switch {
		case r.Kind == whatif.End:
			for _, h := range r.End {
				s.gone(h.Namespace + "/" + h.Name)
			}
		case r.Kind == whatif.Nodes && r.Change.Type == whatif.Uncordon:
			s.patchNode(r.Node, `{"spec":{"unschedulable":false}}`)
		default:
			continue
		}
		s.T.Logf("cluster %d: %s would fit %s", s.round, waiting.Name, r)
		s.AwaitBound(waiting)
		s.applied[r.Kind]++
		return
	}
}

// apply creates the changed pod, which must be bound, and deletes it.
func (s *remedyScene) apply(r *whatif.Remedy, changed *corev1.Pod) {
	s.T.Logf("cluster %d: %s would fit %s", s.round, changed.Name, r)
	placed, err := s.Place(s.Ctx, changed)
	if err != nil {
		s.T.Fatal(err)
	}
	if placed.Waiting != "" { // an allocation of the pod before it may not be released yet
		s.AwaitBound(placed.Pod)
	}
	s.applied[r.Kind]++
	s.gone("default/" + changed.Name)
}

// oneMore creates a pod with one unit more than the largest request that is said to fit, which must wait.
func (s *remedyScene) oneMore(waiting *corev1.Pod, r *whatif.Remedy) {
	if r.Next == nil || r.Next.Cmp(*r.From) == 0 {
		return
	}
	pod := s.copyOf(waiting)
	setRequest(pod, r.Resource, r.Next.String())
	placed, err := s.Place(s.Ctx, pod)
	if err != nil {
		s.T.Fatal(err)
	}
	if placed.Waiting == "" {
		s.T.Errorf("cluster %d: it would fit %s, but the pod with %s is bound to %s", s.round, r, r.Next, placed.Pod.Spec.NodeName)
	}
	s.more++
	s.gone("default/" + pod.Name)
}

// copyOf returns a new pod like the given one.
func (s *remedyScene) copyOf(pod *corev1.Pod) *corev1.Pod {
	s.pods++
	c := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("copy-%d", s.pods), Labels: pod.Labels}}
	if needs, ok := pod.Annotations[theater.LicensesKey]; ok {
		c.Annotations = map[string]string{theater.LicensesKey: needs}
	}
	c.Spec = corev1.PodSpec{NodeSelector: maps.Clone(pod.Spec.NodeSelector), Containers: []corev1.Container{{
		Name: "main", Image: "pause", Resources: *pod.Spec.Containers[0].Resources.DeepCopy(),
	}}}
	return c
}

func setRequest(pod *corev1.Pod, name corev1.ResourceName, amount string) {
	other := controlplane.PodSpec{Resources: map[string]string{string(name): amount}}.Pod().Spec.Containers[0].Resources
	list := &pod.Spec.Containers[0].Resources
	list.Requests[name] = other.Requests[name]
	if _, limited := list.Limits[name]; limited {
		list.Limits[name] = other.Limits[name]
	}
}

// node returns a random node. Some are cordoned or have a taint.
func (s *remedyScene) node(i int) controlplane.NodeSpec {
	n := theater.GPUs(fmt.Sprintf("n%d-%d", s.round, i), 1+s.r.IntN(2), 8+2*s.r.IntN(5))
	n.CPU = fmt.Sprint(6 + s.r.IntN(10))
	n.Labels = map[string]string{"disk": []string{"ssd", "hdd"}[s.r.IntN(2)]}
	if s.r.IntN(5) == 0 {
		n.Taints = []corev1.Taint{{Key: "gpu", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// pod returns a random pod that requests up to most of a resource.
func (s *remedyScene) pod(most int) controlplane.PodSpec {
	s.pods++
	p := controlplane.PodSpec{Name: fmt.Sprintf("p%d", s.pods), Labels: map[string]string{"app": []string{"web", "db"}[s.r.IntN(2)]}}
	if s.r.IntN(3) > 0 {
		p.Resources = map[string]string{string(theater.GPUMem): fmt.Sprint(1 + s.r.IntN(most))}
	}
	if s.r.IntN(2) == 0 {
		p.CPU = fmt.Sprintf("%dm", 250*(1+s.r.IntN(4*most)))
	}
	if s.r.IntN(5) < 2 {
		p.Annotations = map[string]string{theater.LicensesKey: fmt.Sprintf("cad=%d", 1+s.r.IntN(2))}
	}
	return p
}

// gone deletes the pod, and waits until Outboard has seen that.
func (s *remedyScene) gone(key string) {
	s.T.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	pod, err := s.Client.CoreV1().Pods(namespace).Get(s.Ctx, name, metav1.GetOptions{})
	if err == nil {
		err = controlplane.DeletePod(s.Ctx, s.Client, pod)
	}
	if err != nil && !apierrors.IsNotFound(err) { // only its allocation may be left
		s.T.Fatal(err)
	}
	s.Eventually("Outboard has seen "+name+" deleted", func() bool { return !s.Explain(s.o, name).Known })
	s.NextView(s.o)
}

func (s *remedyScene) patchNode(name, patch string) {
	if _, err := s.Client.CoreV1().Nodes().Patch(s.Ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.T.Fatal(err)
	}
}

// clear deletes all pods and nodes.
func (s *remedyScene) clear() {
	pods, err := s.Client.CoreV1().Pods("default").List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	for i := range pods.Items {
		if err := controlplane.DeletePod(s.Ctx, s.Client, &pods.Items[i]); err != nil {
			s.T.Fatal(err)
		}
	}
	nodes, err := s.Client.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	for _, n := range nodes.Items {
		if err := s.Client.CoreV1().Nodes().Delete(s.Ctx, n.Name, metav1.DeleteOptions{}); err != nil {
			s.T.Fatal(err)
		}
	}
}
