package search

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

// Scope bounds a search. Within these numbers, everything may happen in any order.
type Scope struct {
	Replicas, Pods int
	Nodes          int // each with one device, or as many as Devices says
	Devices        int // of each node; 0: one
	Request        Request
	Calls          int  // how often kube-schedulers try each pod
	Faults         int  // how many requests or responses are lost or late, or end because the caller gives up
	Duplicates     int  // how many requests arrive twice, of which the sender gets the second response
	Crashes        int  // how often a replica is killed
	Creations      int  // how many of the pods, the last ones, are created after the replicas have started
	Again          bool // they have the name of the first pod, and are created once that is gone
	Changes        int  // how often somebody else changes a pod that is on no node
	Deletions      int  // how many pods are deleted
	Endings        int  // how many bound pods end, and stay
	Expiries       int  // how many sweeps find that the time of an allocation has ended
	Replacements   int  // how many devices are replaced by others
	Confirms       int  // how often a replica reads a pod that it counts as bound and that its watch does not show there
	// Victims are how many of the pods are bound in the beginning, each to another node. As many of the next ones as there are Preemptors have
	// a higher priority, and Preemptions is how often kube-schedulers call preempt for them. As many of these as Nominated are nominated to the
	// first node in the beginning.
	Victims, Preemptors, Preemptions, Nominated int
	Unaware                                     int  // how many preempt calls are of a kube-scheduler that does not know yet which pods are gone
	Started                                     bool // victims have started one after the other, so that kube-scheduler prefers the one that started last
	// Plugin has kube-schedulers call the plugin, which reserves a pod, and binds it later, or not at all.
	Plugin bool
	// Ahead has the kube-scheduler of the plugin see that pods are gone before the replicas do.
	Ahead bool
	// Unreduced has Worlds differ by what has no effect any more.
	Unreduced bool
	// Asymmetric has Worlds differ that are the same except for the order of replicas.
	Asymmetric bool
	// Prompt has allocations released before their time ends, which holds with one fault and without crashes.
	Prompt   bool
	Mutation Mutation

	engine *engine.Engine
	keys   []snapshot.LedgerKey // of ledgers
	nodes  []*corev1.Node       // in the beginning
}

// Request is what each pod requests.
type Request string

// The requests.
const (
	Device      Request = ""                  // one device; the devices of a node are numbered
	NamedDevice Request = "named device"      // one device; nodes name their devices
	Seat        Request = "seat"              // one seat of a license, of which there is one for all nodes
	OneOfTwo    Request = "one of two seats"  // the same, with two seats
	Both        Request = "device and a seat" // of that license
	Later       Request = "device, and a seat as well once somebody else has changed the pod"
)

// Mutation is a defect of the World, with which a test shows that the search finds it.
type Mutation string

// The mutations.
const (
	BindingWithoutVersion   Mutation = "the Binding has no resourceVersion"
	AnnotationsAfterBinding Mutation = "the annotations are written after the Binding"
	ReleaseWithoutTouch     Mutation = "an allocation is released without changing the pod"
	NotForgotten            Mutation = "a bind call that has failed does not forget its pod"
	DeletionNotShown        Mutation = "the watch does not show that a pod is deleted"
	PoolWithoutVersion      Mutation = "the API server ignores the resourceVersion of a pool"
	UnusableAllocationUsed  Mutation = "an allocation of a device that was replaced is used"
	ConfirmedFromCache      Mutation = "an unconfirmed pod is read from the cache"
	FinishedWithoutBinding  Mutation = "the plugin finishes a binding that has failed"
	EvictedFromCache        Mutation = "evicted pods are read from the cache"
)

const (
	device = "example.com/device"
	seat   = "example.com/seat"
	units  = "example.com/units" // the annotation in which a node names its devices
	// annotation has the device of a pod.
	annotation = "outboard.dev/example.com.device"
	// asksForSeat is the annotation with which a pod requests a seat, if it has one.
	asksForSeat = "outboard.dev/licenses"
	tool        = "tool" // the license
	// changes is an annotation that no step reads.
	changes = "example.com/changes"
)

func (r Request) devices() bool { return r != Seat && r != OneOfTwo }

// seats returns how many seats the license has.
func (r Request) seats() int64 {
	switch r {
	case OneOfTwo:
		return 2
	case Seat, Both, Later:
		return 1
	}
	return 0
}

// prepare completes the Scope.
func (s *Scope) prepare() error {
	if s.Pods > 9 {
		return fmt.Errorf("%d pods, the limit is 9", s.Pods)
	}
	s.Devices = max(s.Devices, 1)
	for n := range s.Nodes {
		s.nodes = append(s.nodes, s.newNode(n, 0))
		if s.Request.devices() {
			s.keys = append(s.keys, snapshot.LedgerKey{Resource: device, Node: s.nodes[n].Name})
		}
	}
	if s.Request.seats() > 0 {
		s.keys = append(s.keys, snapshot.LedgerKey{Resource: "licenses/" + tool})
	}
	policies, err := s.policies()
	if err != nil {
		return err
	}
	s.engine, err = engine.New(engine.Options{Policies: policies})
	return err
}

func (s *Scope) policies() (all []engine.WeightedPolicy, err error) {
	if s.Request.devices() {
		config := devices.Defaults()
		config.Resource, config.Units = device, devices.Numbered
		if s.Request == NamedDevice {
			config.Units, config.UnitsFrom = devices.Named, &fields.From{Annotation: units}
		}
		p, err := devices.New(config)
		if err != nil {
			return nil, err
		}
		all = append(all, engine.WeightedPolicy{Name: "Devices", Policy: p, Weight: 1})
	}
	if s.Request.seats() > 0 {
		config, seats := licenses.Defaults(), s.Request.seats()
		config.Features = []licenses.Feature{{Name: tool, Resource: seat, Seats: &seats}}
		p, err := licenses.New(config)
		if err != nil {
			return nil, err
		}
		all = append(all, engine.WeightedPolicy{Name: "Licenses", Policy: p, Weight: 1})
	}
	return all, nil
}

// newNode returns the node with that index, whose first device was replaced that often.
func (s *Scope) newNode(n, replaced int) *corev1.Node {
	name, named := fmt.Sprintf("node-%d", n), string(rune('a'+replaced))
	for d := range s.Devices - 1 {
		named += "," + string(rune('m'+d))
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{units: named}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{device: *resource.NewQuantity(int64(s.Devices), resource.DecimalSI)}},
	}
}

// preemptor reports whether pod p has a higher priority.
func (s *Scope) preemptor(p int) bool { return p >= s.Victims && p < s.Victims+s.Preemptors }

// pod is what the pod with that index is called in histories: its UID.
func (s *Scope) pod(p int) string { return string(rune('p' + p)) }

// ledger names what the ledger with that index is of.
func (s *Scope) ledger(l int) string { return cmp.Or(s.keys[l].Node, "the license") }

// capacity returns how much the ledger with that index is of.
func (s *Scope) capacity(l int) int64 {
	if s.keys[l].Node == "" {
		return s.Request.seats()
	}
	return int64(s.Devices)
}

// asks reports whether the pod requests what the ledger with that index is of.
func (s *Scope) asks(pod *corev1.Pod, l int) bool {
	return s.Request != Later || s.keys[l].Node != "" || pod.Annotations[asksForSeat] != ""
}

// ledgerOf returns the index of the ledger with the key.
func (s *Scope) ledgerOf(key snapshot.LedgerKey) int { return slices.Index(s.keys, key) }

// newPod returns the pod with that index.
func (s *Scope) newPod(p int) *corev1.Pod {
	pod := s.podWith(s.uid(p))
	pod.Name = s.name(p)
	if s.Started && p < s.Victims {
		pod.Status.StartTime = &metav1.Time{Time: epoch.Add(time.Duration(p) * time.Hour)}
	}
	return pod
}

func (s *Scope) podWith(uid types.UID) *corev1.Pod {
	limits := corev1.ResourceList{}
	if s.Request.devices() {
		limits[device] = resource.MustParse("1")
	}
	if s.Request.seats() > 0 && s.Request != Later {
		limits[seat] = resource.MustParse("1")
	}
	var priority *int32
	if s.preemptor(s.index(uid)) {
		priority = new(int32(1))
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(uid), UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}, Priority: priority},
	}
}

const namespace = "default"

func (s *Scope) uid(p int) types.UID { return types.UID(s.pod(p)) }

// index returns the index of the pod with the UID.
func (s *Scope) index(uid types.UID) int { return int(uid[0] - 'p') }

// name returns the name of the pod with that index.
func (s *Scope) name(p int) string {
	if s.Again && p >= s.Pods-s.Creations {
		return s.pod(0)
	}
	return s.pod(p)
}
