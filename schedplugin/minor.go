package schedplugin

import (
	"errors"
	"fmt"
	"reflect"
)

// This file holds what may differ between the minor versions of Kubernetes and is not a part of the framework's interfaces.

// bindsFirst returns an error unless the plugin is the first that binds pods: the default plugin would bind a pod without the
// annotations of its claims. kube-scheduler lists the plugins of a profile in the order in which it runs them; its type for that is
// not one that others can import.
func bindsFirst(handle any) error {
	const advice = "plugins.bind.enabled of the profile must have " + Name + " beside plugins.multiPoint.enabled, so that it runs before DefaultBinder"
	list := reflect.ValueOf(handle).MethodByName("ListPlugins")
	if !list.IsValid() || list.Type().NumIn() != 0 || list.Type().NumOut() != 1 {
		return errors.New("this version of kube-scheduler does not list the plugins of a profile, so that pods with claims cannot be bound safely")
	}
	enabled := reflect.Indirect(list.Call(nil)[0]).FieldByName("Bind").FieldByName("Enabled")
	for i := range enabled.Len() {
		switch name := enabled.Index(i).FieldByName("Name").String(); {
		case name == Name:
			return nil
		default:
			return fmt.Errorf("%s binds pods before %s does: %s", name, Name, advice)
		}
	}
	return fmt.Errorf("%s does not bind pods: %s", Name, advice)
}
