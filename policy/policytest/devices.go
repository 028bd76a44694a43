package policytest

import (
	"cmp"
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// Devices returns a function that adds the objects of a YAML text to a View, for Options.Extend:
// ResourceSlices, ResourceClaims, DeviceClasses and DeviceTaintRules, in a list or as documents
// separated by "---". They are trimmed, and have the defaults of the API server: claims have the
// namespace "default", and each request is for one device. Devices panics if the text is invalid.
func Devices(text string) func(*snapshot.Builder) {
	extend, err := parseDevices(text)
	if err != nil {
		panic(fmt.Sprintf("policytest: %v", err))
	}
	return extend
}

// deviceObject is one object, of the kind that its text names.
type deviceObject struct{ add func(*snapshot.Builder) }

// UnmarshalJSON reads an object with its kind.
func (o *deviceObject) UnmarshalJSON(data []byte) (err error) {
	var is struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return err
	}
	switch is.Kind {
	case "ResourceSlice":
		var s resourcev1.ResourceSlice
		err = unmarshal(data, &s)
		s.UID = types.UID(is.Kind + s.Name)
		o.add = func(b *snapshot.Builder) {
			slice := s.DeepCopy()
			snapshot.TrimResourceSlice(slice)
			b.SetResourceSlice(slice)
		}
	case "ResourceClaim":
		var c resourcev1.ResourceClaim
		err = unmarshal(data, &c)
		c.Namespace = cmp.Or(c.Namespace, "default")
		c.UID = types.UID(is.Kind + c.Name)
		for i := range c.Spec.Devices.Requests {
			if r := c.Spec.Devices.Requests[i].Exactly; r != nil && r.AllocationMode == "" {
				r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeExactCount, max(1, r.Count)
			}
		}
		o.add = func(b *snapshot.Builder) {
			claim := c.DeepCopy()
			snapshot.TrimResourceClaim(claim)
			b.SetResourceClaim(claim)
		}
	case "DeviceClass":
		var c resourcev1.DeviceClass
		err = unmarshal(data, &c)
		o.add = func(b *snapshot.Builder) { b.SetDeviceClass(c.DeepCopy()) }
	case "DeviceTaintRule":
		var r resourcev1.DeviceTaintRule
		err = unmarshal(data, &r)
		o.add = func(b *snapshot.Builder) { b.SetDeviceTaintRule(r.DeepCopy()) }
	default:
		err = fmt.Errorf("kind %q: must be ResourceSlice, ResourceClaim, DeviceClass or DeviceTaintRule", is.Kind)
	}
	return err
}

func parseDevices(text string) (func(*snapshot.Builder), error) {
	objects, err := parse[deviceObject](text)
	if err != nil {
		return nil, err
	}
	return func(b *snapshot.Builder) {
		for _, o := range objects {
			o.add(b)
		}
	}, nil
}
