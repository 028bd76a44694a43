package policytest

import (
	"bytes"
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

type deviceObject struct{ add func(*snapshot.Builder) }

func (o *deviceObject) UnmarshalJSON(data []byte) (err error) {
	var is struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(data, &is); err != nil {
		return err
	}
	data = bytes.Clone(data) // each View has objects of its own
	switch is.Kind {
	case "ResourceSlice":
		o.add, err = adding(data, func(b *snapshot.Builder, s *resourcev1.ResourceSlice) {
			s.UID = types.UID(is.Kind + s.Name)
			snapshot.TrimResourceSlice(s)
			b.SetResourceSlice(s)
		})
	case "ResourceClaim":
		o.add, err = adding(data, func(b *snapshot.Builder, c *resourcev1.ResourceClaim) {
			c.Namespace, c.UID = cmp.Or(c.Namespace, "default"), types.UID(is.Kind+c.Name)
			for i := range c.Spec.Devices.Requests {
				if r := c.Spec.Devices.Requests[i].Exactly; r != nil && r.AllocationMode == "" {
					r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeExactCount, max(1, r.Count)
				}
			}
			snapshot.TrimResourceClaim(c)
			b.SetResourceClaim(c)
		})
	case "DeviceClass":
		o.add, err = adding(data, (*snapshot.Builder).SetDeviceClass)
	case "DeviceTaintRule":
		o.add, err = adding(data, (*snapshot.Builder).SetDeviceTaintRule)
	default:
		err = fmt.Errorf("kind %q: must be ResourceSlice, ResourceClaim, DeviceClass or DeviceTaintRule", is.Kind)
	}
	return err
}

// adding returns a function that adds a new object with this content.
func adding[T any](data []byte, add func(*snapshot.Builder, *T)) (func(*snapshot.Builder), error) {
	return func(b *snapshot.Builder) {
		object := new(T)
		_ = unmarshal(data, object)
		add(b, object)
	}, unmarshal(data, new(T))
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
