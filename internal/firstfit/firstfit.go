// Package firstfit predicts which devices kube-scheduler will allocate for the ResourceClaims of a
// pod on a node. No scheduler extender and no plugin can choose devices: kube-scheduler takes the
// first ones that fit, in the order of [snapshot.Node.DevicePools], with the allocator of
// k8s.io/dynamic-resource-allocation. This package calls the same allocator with the devices of one
// node.
//
// A prediction can be wrong, and that changes only a score: kube-scheduler decides itself. It is
// wrong if the View is older than kube-scheduler's cache, and if feature gates of kube-scheduler
// differ from the defaults of Kubernetes 1.37. Devices that do not belong to one node are unknown
// here.
package firstfit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/lru"

	"outboard.dev/outboard/snapshot"
)

// celFeatures are those of features for selectors.
var celFeatures = cel.Features{EnableConsumableCapacity: true}

// keptSelectors is how many selectors of claims and classes are kept compiled.
const keptSelectors = 256

// Predictor predicts allocations. It is safe for concurrent use.
type Predictor struct {
	states *snapshot.Fact[*nodeState]
	kinds  *snapshot.Fact[kinds]
	// What depends on the expression of a selector alone: to compile one takes milliseconds.
	compiled  *cel.Cache
	selectors *lru.Cache // of *selector
}

// New returns a Predictor.
func New() *Predictor {
	p := &Predictor{compiled: cel.NewCache(keptSelectors, celFeatures), selectors: lru.New(keptSelectors)}
	p.states = snapshot.NewFact(func(n *snapshot.Node) *nodeState { return stateOf(n.DevicePools(), true) })
	p.kinds = snapshot.NewFact(p.kindsOf)
	return p
}

// Request is what the claims of a pod request that are not allocated yet.
type Request struct {
	claims  []*resourcev1.ResourceClaim
	classes map[string]*resourcev1.DeviceClass
	key     Key

	predictor *Predictor
	selector      // of all selectors together
	steps     int // the maximum for one node
}

// Key is the same for equal requests, with equal classes.
type Key [sha256.Size]byte

// Key returns the key of the request.
func (r *Request) Key() Key { return r.key }

// Claims returns the claims, in the order of the pod; none of a nil Request. They must not be
// changed.
func (r *Request) Claims() []*resourcev1.ResourceClaim {
	if r == nil {
		return nil
	}
	return r.claims
}

// Request returns what the pod requests, or nil if it has no claim that is not allocated yet. The
// error says why the request is not known.
func (p *Predictor) Request(pod *corev1.Pod, view *snapshot.View) (*Request, error) {
	r := &Request{classes: map[string]*resourcev1.DeviceClass{}, predictor: p}
	for i := range pod.Spec.ResourceClaims {
		name, made := snapshot.ClaimName(pod, &pod.Spec.ResourceClaims[i])
		if !made {
			return nil, fmt.Errorf("the ResourceClaim of %q is not created yet", pod.Spec.ResourceClaims[i].Name)
		}
		if name == "" {
			continue // it was not needed
		}
		claim := view.ResourceClaim(pod.Namespace, name)
		switch {
		case claim == nil:
			return nil, fmt.Errorf("there is no ResourceClaim %q", name)
		case claim.Status.Allocation != nil:
			continue
		case snapshot.IsReducedClaim(claim):
			return nil, fmt.Errorf("ResourceClaim %q is too large", name)
		}
		r.claims = append(r.claims, claim)
	}
	if len(r.claims) == 0 {
		return nil, nil
	}
	if err := r.complete(view, view.Devices()); err != nil {
		return nil, err
	}
	return r, nil
}

// RequestOf returns what claims with these specs request, whether they are allocated or not. The
// nodes for which it is predicted have so many devices in all.
func (p *Predictor) RequestOf(specs []*resourcev1.ResourceClaimSpec, view *snapshot.View, devices int) (*Request, error) {
	r := &Request{classes: map[string]*resourcev1.DeviceClass{}, predictor: p}
	for i, spec := range specs {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i))}, Spec: *spec}
		if snapshot.IsReducedClaim(claim) {
			return nil, errors.New("a ResourceClaim is too large")
		}
		r.claims = append(r.claims, claim)
	}
	return r, r.complete(view, devices)
}

// complete adds the classes, the limit and the key.
func (r *Request) complete(view *snapshot.View, devices int) error {
	for _, claim := range r.claims {
		for i := range claim.Spec.Devices.Requests {
			if err := r.addClasses(&claim.Spec.Devices.Requests[i], view); err != nil {
				return fmt.Errorf("ResourceClaim %q: %w", claim.Name, err)
			}
		}
	}
	if err := r.readSelectors(); err != nil {
		return err
	}
	if err := r.setSteps(devices); err != nil {
		return err
	}
	return r.setKey()
}

func (r *Request) addClasses(request *resourcev1.DeviceRequest, view *snapshot.View) error {
	for _, alternative := range alternatives(request) {
		name := alternative.DeviceClassName
		class := view.DeviceClass(name)
		if class == nil {
			return fmt.Errorf("there is no DeviceClass %q", name)
		}
		r.classes[name] = class
	}
	return nil
}

// setKey sets the key to a hash of everything on which an allocation depends besides the node.
func (r *Request) setKey() error {
	hash := sha256.New()
	hash.Write(binary.AppendUvarint(nil, uint64(r.steps)))
	add := func(message interface{ Marshal() ([]byte, error) }) error {
		data, err := message.Marshal()
		if err == nil {
			hash.Write(binary.AppendUvarint(nil, uint64(len(data))))
			hash.Write(data)
		}
		return err
	}
	for _, claim := range r.claims {
		if err := add(&claim.Spec); err != nil {
			return err
		}
	}
	for _, name := range sets.List(sets.KeySet(r.classes)) {
		hash.Write(append([]byte(name), 0))
		if err := add(&r.classes[name].Spec); err != nil {
			return err
		}
	}
	hash.Sum(r.key[:0])
	return nil
}

// Allocate returns what kube-scheduler will allocate on the node for each claim of the request, or
// nil if it cannot allocate all of them there from devices of this node alone. The error says what
// is invalid.
func (p *Predictor) Allocate(r *Request, n *snapshot.Node) ([]resourcev1.AllocationResult, error) {
	return p.allocate(r, n.Object, *p.states.Of(n))
}

// AllocateEmpty is Allocate for the node as if nothing of its devices were allocated.
func (p *Predictor) AllocateEmpty(r *Request, n *snapshot.Node) ([]resourcev1.AllocationResult, error) {
	return p.allocate(r, n.Object, stateOf(n.DevicePools(), false))
}
