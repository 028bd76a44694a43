package schedplugin

import (
	"errors"
	"fmt"
	"reflect"
)

// listed returns the plugins of the profile at an extension point, such as Bind, in the order in
// which kube-scheduler runs them. Its type for that is not one that others can import, and may
// change with a minor version of Kubernetes.
func listed(handle any, point string) ([]string, error) {
	list := reflect.ValueOf(handle).MethodByName("ListPlugins")
	if !list.IsValid() || list.Type().NumIn() != 0 || list.Type().NumOut() != 1 {
		return nil, errors.New("this version of kube-scheduler does not list the plugins of a profile")
	}
	enabled := reflect.Indirect(list.Call(nil)[0]).FieldByName(point).FieldByName("Enabled")
	var names []string
	for i := range enabled.Len() {
		names = append(names, enabled.Index(i).FieldByName("Name").String())
	}
	return names, nil
}

// bindsFirst returns an error unless the plugin is the first that binds pods: the default plugin
// would bind a pod without the annotations of its allocations.
func bindsFirst(handle any) error {
	const advice = "plugins.bind.enabled of the profile must have " + Name + " beside plugins.multiPoint.enabled, so that it runs before DefaultBinder"
	names, err := listed(handle, "Bind")
	switch {
	case err != nil:
		return fmt.Errorf("%w, so that pods with allocations cannot be bound safely", err)
	case len(names) == 0:
		return fmt.Errorf("%s does not bind pods: %s", Name, advice)
	case names[0] != Name:
		return fmt.Errorf("%s binds pods before %s does: %s", names[0], Name, advice)
	}
	return nil
}
