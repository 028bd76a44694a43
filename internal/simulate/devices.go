package simulate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// The reasons of kube-scheduler's plugin DynamicResources.
const (
	noDevices   = "cannot allocate all claims"
	otherNode   = "resourceclaim not available on the node"
	claimIsFull = "resourceclaim in use"
)

// Devices are the objects of Dynamic Resource Allocation.
type Devices struct {
	Slices    []*resourcev1.ResourceSlice
	Classes   []*resourcev1.DeviceClass
	Claims    []*resourcev1.ResourceClaim
	Templates []*resourcev1.ResourceClaimTemplate
	Rules     []*resourcev1.DeviceTaintRule
}

// Add adds the other objects.
func (d *Devices) Add(other *Devices) {
	d.Slices = append(d.Slices, other.Slices...)
	d.Classes = append(d.Classes, other.Classes...)
	d.Claims = append(d.Claims, other.Claims...)
	d.Templates = append(d.Templates, other.Templates...)
	d.Rules = append(d.Rules, other.Rules...)
}

// Missing returns which objects the claims of the pod name that are not there.
func (d *Devices) Missing(pod *corev1.Pod) (missing []string) {
	for i := range pod.Spec.ResourceClaims {
		switch claim := &pod.Spec.ResourceClaims[i]; {
		case claim.ResourceClaimName != nil && !has(d.Claims, pod.Namespace, *claim.ResourceClaimName):
			missing = append(missing, fmt.Sprintf("ResourceClaim %s/%s", pod.Namespace, *claim.ResourceClaimName))
		case claim.ResourceClaimTemplateName != nil && !has(d.Templates, pod.Namespace, *claim.ResourceClaimTemplateName):
			missing = append(missing, fmt.Sprintf("ResourceClaimTemplate %s/%s", pod.Namespace, *claim.ResourceClaimTemplateName))
		}
	}
	return missing
}

func has[O metav1.Object](all []O, namespace, name string) bool {
	return slices.ContainsFunc(all, func(o O) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}

// devices is the part of a cluster for Dynamic Resource Allocation.
type devices struct {
	templates map[types.NamespacedName]*resourcev1.ResourceClaimTemplate
	predictor *firstfit.Predictor
	fits      *snapshot.Fact[map[firstfit.Key]bool] // whether a node's devices are enough for a request
}

func (c *cluster) setDevices(d *Devices) {
	c.devices = devices{
		templates: map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{}, predictor: firstfit.New(),
		fits: snapshot.NewFact(func(*snapshot.Node) map[firstfit.Key]bool { return map[firstfit.Key]bool{} }),
	}
	for _, s := range d.Slices {
		c.builder.SetResourceSlice(s)
	}
	for _, class := range d.Classes {
		c.builder.SetDeviceClass(class)
	}
	for _, claim := range d.Claims {
		c.builder.SetResourceClaim(claim)
	}
	for _, t := range d.Templates {
		c.devices.templates[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] = t
	}
	for _, r := range d.Rules {
		c.builder.SetDeviceTaintRule(r)
	}
}

// createClaims creates the claims of the pod that are made from templates, as
// kube-controller-manager does. The pod has their names then. It creates none for which there is no
// template.
func (c *cluster) createClaims(pod *corev1.Pod) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return
	}
	statuses := slices.Clone(pod.Status.ResourceClaimStatuses)
	for i := range pod.Spec.ResourceClaims {
		of := &pod.Spec.ResourceClaims[i]
		if name, made := snapshot.ClaimName(pod, of); made && (name == "" || c.claim(pod, name) != nil) || of.ResourceClaimTemplateName == nil {
			continue
		}
		t := c.devices.templates[types.NamespacedName{Namespace: pod.Namespace, Name: *of.ResourceClaimTemplateName}]
		if t == nil {
			continue
		}
		name := pod.Name + "-" + of.Name
		claim := &resourcev1.ResourceClaim{Spec: t.Spec.Spec}
		claim.Namespace, claim.Name, claim.UID = pod.Namespace, name, types.UID(pod.Namespace+"/"+name)
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
		c.builder.SetResourceClaim(claim)
		statuses = slices.DeleteFunc(statuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == of.Name })
		statuses = append(statuses, corev1.PodResourceClaimStatus{Name: of.Name, ResourceClaimName: &name})
	}
	pod.Status.ResourceClaimStatuses = statuses
}

func (c *cluster) claim(pod *corev1.Pod, name string) *resourcev1.ResourceClaim {
	return c.builder.View().ResourceClaim(pod.Namespace, name)
}

// claimsOf returns the claims of the pod that there are.
func (c *cluster) claimsOf(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim) {
	for i := range pod.Spec.ResourceClaims {
		if name, _ := snapshot.ClaimName(pod, &pod.Spec.ResourceClaims[i]); name != "" {
			if claim := c.claim(pod, name); claim != nil && !slices.Contains(claims, claim) {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// claimFilter is kube-scheduler's filter for the claims of a pod.
type claimFilter struct {
	devices   *devices
	request   *firstfit.Request            // what is not allocated yet; nil: nothing
	selectors []*nodeaffinity.NodeSelector // of what is allocated
	nowhere   string                       // why no node passes
}

// claimFilter returns the filter, or nil if the pod has no claims.
func (c *cluster) claimFilter(pod *corev1.Pod) *claimFilter {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	f := &claimFilter{devices: &c.devices}
	var err error
	if f.request, err = c.devices.predictor.Request(pod, c.builder.View()); err != nil {
		f.nowhere = err.Error()
	}
	for _, claim := range c.claimsOf(pod) {
		if len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize {
			f.nowhere = claimIsFull
		}
		if a := claim.Status.Allocation; a != nil && a.NodeSelector != nil {
			selector, err := nodeaffinity.NewNodeSelector(a.NodeSelector)
			if err != nil {
				f.nowhere = err.Error()
				continue
			}
			f.selectors = append(f.selectors, selector)
		}
	}
	return f
}

// excludes returns why the pod cannot run on the node of the View, or "". A nil filter excludes
// nothing.
func (f *claimFilter) excludes(view *snapshot.View, name string) string {
	if f == nil {
		return ""
	}
	n := view.Node(name)
	switch {
	case f.nowhere != "":
		return f.nowhere
	case slices.ContainsFunc(f.selectors, func(s *nodeaffinity.NodeSelector) bool { return !s.Match(n.Object) }):
		return otherNode
	case f.request == nil:
		return ""
	}
	known := *f.devices.fits.Of(n)
	fits, ok := known[f.request.Key()]
	if !ok {
		results, err := f.devices.predictor.Allocate(f.request, n)
		fits = err == nil && results != nil
		known[f.request.Key()] = fits
	}
	if !fits {
		return noDevices
	}
	return ""
}

// allocate allocates devices of the node to the claims of the pod that have none, and reserves all
// of its claims for it.
func (c *cluster) allocate(pod *corev1.Pod, n *node) error {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	view := c.builder.View()
	request, err := c.devices.predictor.Request(pod, view)
	if err != nil {
		return err
	}
	if request != nil {
		results, err := c.devices.predictor.Allocate(request, view.Node(n.object.Name))
		if err != nil {
			return err
		}
		if results == nil {
			return fmt.Errorf("node %s: %s", n.object.Name, noDevices)
		}
		for i, claim := range request.Claims() {
			next := *claim // shallow: fields are replaced, not changed
			next.Status.Allocation = &results[i]
			c.builder.SetResourceClaim(&next)
		}
	}
	for _, claim := range c.claimsOf(pod) {
		if !reserved(claim, pod.UID) {
			next := *claim
			next.Status.ReservedFor = append(slices.Clip(claim.Status.ReservedFor), resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
			c.builder.SetResourceClaim(&next)
		}
	}
	return nil
}

func reserved(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

// release ends the reservations of the pod. Claims that were made for it are deleted, and others
// without a reservation that is left are deallocated, as kube-controller-manager does.
func (c *cluster) release(pod *corev1.Pod) {
	for _, claim := range c.claimsOf(pod) {
		if metav1.IsControlledBy(claim, pod) {
			c.builder.DeleteResourceClaim(claim)
		} else if next := without(claim, func(uid types.UID) bool { return uid == pod.UID }); next != claim {
			c.builder.SetResourceClaim(next)
		}
	}
}

// without returns the claim without the reservations of the pods that leave, and without devices if
// none is left; the claim itself if none of them leaves.
func without(claim *resourcev1.ResourceClaim, leaving func(types.UID) bool) *resourcev1.ResourceClaim {
	left := slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(r resourcev1.ResourceClaimConsumerReference) bool { return leaving(r.UID) })
	if len(left) == len(claim.Status.ReservedFor) {
		return claim
	}
	next := *claim
	if next.Status.ReservedFor = left; len(left) == 0 {
		next.Status.Allocation = nil
	}
	return &next
}
