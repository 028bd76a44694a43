package search

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/snapshot"
)

// Scope bounds a search. Within these numbers, everything may happen in any order.
type Scope struct {
	Replicas, Pods int
	Nodes          int // each with one device
	Calls          int // how often kube-schedulers try each pod
	Faults         int // how many requests or responses are lost or late, or end because the caller gives up
	Crashes        int // how often a replica is killed
	Deletions      int // how many pods are deleted
	Expiries       int // how many sweeps find that the time of a claim has ended
	// Unreduced has Worlds differ by what has no effect any more.
	Unreduced bool
	// Asymmetric has Worlds differ that are the same except for the order of replicas.
	Asymmetric bool
	// Prompt has claims released before their time ends, which holds with one fault and without crashes.
	Prompt   bool
	Mutation Mutation

	engine *engine.Engine
	keys   []snapshot.LedgerKey
	nodes  []*corev1.Node
}

// Mutation is a defect of the World, with which a test shows that the search finds it.
type Mutation string

// The mutations.
const (
	None                    Mutation = ""
	BindingWithoutVersion   Mutation = "the Binding has no resourceVersion"
	AnnotationsAfterBinding Mutation = "the annotations are written after the Binding"
	ReleaseWithoutTouch     Mutation = "a claim is released without changing the pod"
	ForgetWithoutView       Mutation = "a forgotten pod makes no new view"
)

const device = "example.com/device"

// annotation has the device of a pod.
const annotation = "outboard.dev/example.com.device"

// prepare completes the Scope.
func (s *Scope) prepare() error {
	config := devices.Defaults()
	config.Resource, config.Units = device, devices.Numbered
	if s.Pods > 11 {
		return fmt.Errorf("%d pods, the limit is 11", s.Pods)
	}
	p, err := devices.New(config)
	if err != nil {
		return err
	}
	s.engine, err = engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Devices", Policy: p, Weight: 1}}})
	for n := range s.Nodes {
		name := fmt.Sprintf("node-%d", n)
		s.nodes = append(s.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{device: resource.MustParse("1")}},
		})
		s.keys = append(s.keys, snapshot.LedgerKey{Resource: device, Node: name})
	}
	return err
}

func (s *Scope) pod(p int) string    { return string(rune('p' + p)) }
func (s *Scope) ledger(l int) string { return s.keys[l].Node }

// newPod returns the pod with that index, which requests one device.
func (s *Scope) newPod(p int) *corev1.Pod {
	limits := corev1.ResourceList{device: resource.MustParse("1")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.pod(p), UID: types.UID(s.pod(p))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}},
	}
}

// node returns the index of the node with the name.
func (s *Scope) node(name string) int {
	for i, n := range s.nodes {
		if n.Name == name {
			return i
		}
	}
	return -1
}

// podNamed returns the index of the pod with the name.
func (s *Scope) podNamed(name string) int { return int(name[0] - 'p') }
