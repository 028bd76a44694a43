package simulate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// deviceVersions are the versions of resource.k8s.io whose fields are those of v1.
var deviceVersions = []string{"", "resource.k8s.io/v1", "resource.k8s.io/v1beta2"}

// add adds the object. It ignores other kinds.
func (d *Devices) add(version, kind string, raw json.RawMessage) error {
	var object any
	var keep func()
	switch kind {
	case "ResourceSlice":
		s := new(resourcev1.ResourceSlice)
		object, keep = s, func() { d.Slices = append(d.Slices, s) }
	case "DeviceClass":
		c := new(resourcev1.DeviceClass)
		object, keep = c, func() { d.Classes = append(d.Classes, c) }
	case "ResourceClaim":
		c := new(resourcev1.ResourceClaim)
		object, keep = c, func() { d.Claims = append(d.Claims, c) }
	case "ResourceClaimTemplate":
		t := new(resourcev1.ResourceClaimTemplate)
		object, keep = t, func() { d.Templates = append(d.Templates, t) }
	case "DeviceTaintRule":
		r := new(resourcev1.DeviceTaintRule)
		object, keep = r, func() { d.Rules = append(d.Rules, r) }
	default:
		return nil
	}
	if !slices.Contains(deviceVersions, version) {
		return fmt.Errorf("a %s of %s: must be of resource.k8s.io/v1, as kubectl prints it from Kubernetes 1.34 on", kind, version)
	}
	if err := json.Unmarshal(raw, object); err != nil {
		return fmt.Errorf("a %s: %w", kind, err)
	}
	keep()
	return nil
}

// check fills in what an API server would add, removes what no allocation depends on, and returns
// an error for invalid objects.
func (d *Devices) check() error {
	known := map[string]bool{}
	identify := func(kind string, namespaced bool, meta *metav1.ObjectMeta) error {
		if namespaced && meta.Namespace == "" {
			meta.Namespace = metav1.NamespaceDefault
		}
		name := strings.TrimPrefix(meta.Namespace+"/"+meta.Name, "/")
		if key := kind + " " + name; meta.Name == "" || known[key] {
			return fmt.Errorf("%s %q: must have a unique name", kind, name)
		} else {
			known[key] = true
		}
		if meta.UID == "" {
			meta.UID = types.UID(name)
		}
		return nil
	}
	for _, s := range d.Slices {
		if err := identify("ResourceSlice", false, &s.ObjectMeta); err != nil {
			return err
		}
		if s.Spec.Pool.ResourceSliceCount < 1 {
			return fmt.Errorf("ResourceSlice %q: spec.pool.resourceSliceCount must be 1 or more", s.Name)
		}
		snapshot.TrimResourceSlice(s)
	}
	for _, c := range d.Classes {
		if err := identify("DeviceClass", false, &c.ObjectMeta); err != nil {
			return err
		}
		snapshot.TrimDeviceClass(c)
	}
	for _, c := range d.Claims {
		if err := identify("ResourceClaim", true, &c.ObjectMeta); err != nil {
			return err
		}
		setDefaults(&c.Spec)
		reservedFor := c.Status.ReservedFor // of which a View needs only some
		snapshot.TrimResourceClaim(c)
		c.Status.ReservedFor = reservedFor
	}
	for _, t := range d.Templates {
		if err := identify("ResourceClaimTemplate", true, &t.ObjectMeta); err != nil {
			return err
		}
		setDefaults(&t.Spec.Spec)
		t.Spec.Spec.Devices.Config = nil
	}
	for _, r := range d.Rules {
		if err := identify("DeviceTaintRule", false, &r.ObjectMeta); err != nil {
			return err
		}
		snapshot.TrimDeviceTaintRule(r)
	}
	return nil
}

// setDefaults sets the defaults of the API server.
func setDefaults(spec *resourcev1.ResourceClaimSpec) {
	set := func(mode *resourcev1.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourcev1.DeviceAllocationModeExactCount
		}
		if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil {
			set(&r.Exactly.AllocationMode, &r.Exactly.Count)
		}
		for j := range r.FirstAvailable {
			set(&r.FirstAvailable[j].AllocationMode, &r.FirstAvailable[j].Count)
		}
	}
}

// release takes the claims from the pods, which leave their nodes: it removes claims that were made
// for one of them, and deallocates those that no other pod has.
func (d *Devices) release(pods []*corev1.Pod) {
	leaving := map[types.UID]bool{}
	for _, pod := range pods {
		leaving[pod.UID] = true
	}
	d.Claims = slices.DeleteFunc(d.Claims, func(c *resourcev1.ResourceClaim) bool {
		owner := metav1.GetControllerOfNoCopy(c)
		return owner != nil && leaving[owner.UID]
	})
	for i, c := range d.Claims {
		d.Claims[i] = without(c, func(uid types.UID) bool { return leaving[uid] })
	}
}
