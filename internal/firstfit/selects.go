package firstfit

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
)

// Preferred returns the preferred alternative of what is requested, or nil if there is none.
func Preferred(request *resourcev1.DeviceRequest) *resourcev1.ExactDeviceRequest {
	if all := alternatives(request); len(all) > 0 {
		return &all[0]
	}
	return nil
}

// Selects reports whether the class of what is wanted selects the device, and whether its own
// selectors do as well.
func (r *Request) Selects(want *resourcev1.ExactDeviceRequest, driver string, d *resourcev1.Device) (class, all bool, err error) {
	if class, err = r.match(r.classes[want.DeviceClassName].Spec.Selectors, driver, d); class && err == nil {
		all, err = r.match(want.Selectors, driver, d)
	}
	return class, all, err
}

// match reports whether all selectors select the device.
func (r *Request) match(all []resourcev1.DeviceSelector, driver string, d *resourcev1.Device) (bool, error) {
	device := selectable(driver, d)
	for _, s := range all {
		if s.CEL == nil {
			return false, nil
		}
		compiled := r.predictor.compiled.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false, compiled.Error
		}
		if is, _, err := compiled.DeviceMatches(context.Background(), device); !is || err != nil {
			return false, err
		}
	}
	return true, nil
}
