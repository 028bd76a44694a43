package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// maxRequests is how many requests are under way at a time.
const maxRequests = 8

// name is the name of an object among those of its resource.
type name = types.NamespacedName

// content are the objects of each resource, without what the API server maintains itself. A resource
// without objects has an empty map. The objects must not be changed.
type content map[schema.GroupVersionResource]map[name]*unstructured.Unstructured

// api gives access to objects of every kind.
type api struct {
	discovery discovery.DiscoveryInterface
	objects   dynamic.Interface
}

// resources returns the resources with objects that can be created and deleted, each in one version.
func (a *api) resources() ([]schema.GroupVersionResource, error) {
	lists, err := a.discovery.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // the group of an APIService that does not respond
		return nil, err
	}
	var found []schema.GroupVersionResource
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "create", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			// Events are the same objects in both of their groups.
			if gvr := gv.WithResource(r.Name); gvr != (schema.GroupVersionResource{Version: "v1", Resource: "events"}) {
				found = append(found, gvr)
			}
		}
	}
	return found, nil
}

// read returns the objects of every kind.
func (a *api) read(ctx context.Context) (content, error) {
	resources, err := a.resources()
	if err != nil {
		return nil, err
	}
	found, err := a.list(ctx, resources)
	if err != nil {
		return nil, err
	}
	for _, definition := range found[definitions] {
		if definition.GetDeletionTimestamp() == nil {
			continue
		}
		// Discovery no longer has the resource, and the definition exists until its objects are deleted.
		r := resourceOf(definition)
		of, err := a.list(ctx, []schema.GroupVersionResource{r})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		maps.Copy(found, of)
	}
	return found, nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// resourceOf returns what a CustomResourceDefinition defines, in the version that etcd stores.
func resourceOf(definition *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	r := schema.GroupVersionResource{Group: group, Resource: plural}
	for _, version := range versions {
		if version := version.(map[string]any); version["storage"] == true {
			r.Version = fmt.Sprint(version["name"])
		}
	}
	return r
}

// list returns the objects of the resources. kube-apiserver serves such a list from its cache only after
// that has caught up with etcd.
func (a *api) list(ctx context.Context, resources []schema.GroupVersionResource) (content, error) {
	found := content{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxRequests)
	for _, r := range resources {
		group.Go(func() error {
			list, err := a.objects.Resource(r).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s: %w", r.GroupResource(), err)
			}
			objects := map[name]*unstructured.Unstructured{}
			for i := range list.Items {
				if o := &list.Items[i]; !maintained(o) {
					objects[name{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
				}
			}
			mu.Lock()
			defer mu.Unlock()
			found[r] = objects
			return nil
		})
	}
	return found, group.Wait()
}

// ofServer are the labels of objects that kube-apiserver creates, renews and deletes itself: its own Lease, the APIServices of kinds
// that it serves, and the IPAddresses of Services.
var ofServer = []string{"apiserver.kubernetes.io/identity", "kube-aggregator.kubernetes.io/automanaged", "ipaddress.kubernetes.io/managed-by"}

// maintained reports whether kube-apiserver creates, renews and deletes the object itself.
func maintained(o *unstructured.Unstructured) bool {
	labels := o.GetLabels()
	return slices.ContainsFunc(ofServer, func(label string) bool {
		_, ok := labels[label]
		return ok
	})
}

// change is an object that differs from the wanted content: it is to be removed if wanted is nil, and to be created
// if found is nil.
type change struct {
	resource      schema.GroupVersionResource
	found, wanted *unstructured.Unstructured
}

func (c change) String() string {
	o := cmp.Or(c.found, c.wanted)
	return fmt.Sprintf("%s %s", c.resource.GroupResource(), name{Namespace: o.GetNamespace(), Name: o.GetName()})
}

func (c change) removes() bool {
	return c.wanted == nil || c.found != nil && c.found.GetDeletionTimestamp() != nil
}

// compare returns the objects that differ, and the resources that only one of the contents has.
func compare(found, wanted content) (changes []change, resources []string) {
	for r, objects := range found {
		if wanted[r] == nil {
			resources = append(resources, r.GroupResource().String())
		}
		for n, o := range objects {
			c := change{resource: r, found: o, wanted: wanted[r][n]}
			if c.removes() || !equality.Semantic.DeepEqual(essence(c.found), essence(c.wanted)) {
				changes = append(changes, c)
			}
		}
	}
	for r, objects := range wanted {
		if found[r] == nil {
			resources = append(resources, r.GroupResource().String())
			continue
		}
		for n, o := range objects {
			if found[r][n] == nil {
				changes = append(changes, change{resource: r, wanted: o})
			}
		}
	}
	return changes, resources
}

// restore takes one step towards the wanted content, and returns what was different before it. Another step follows until nothing is
// different, so requests that fail because of other changes are no errors, such as those about an object that is gone.
func (a *api) restore(ctx context.Context, wanted content) (different []string, err error) {
	found, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	changes, different := compare(found, wanted)
	removes := func(c change) bool { return c.removes() && c.resource.Resource != "namespaces" }
	emptied := !slices.ContainsFunc(changes, removes)
	errs := make([]error, len(changes))
	var group errgroup.Group
	group.SetLimit(maxRequests)
	for i, c := range changes {
		different = append(different, c.String())
		if terminates(c.found) && !emptied {
			continue // objects cannot be changed without their namespace
		}
		group.Go(func() error {
			if err := a.apply(ctx, c); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				errs[i] = fmt.Errorf("%s: %w", c, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return different, errors.Join(errs...)
}

// terminates reports whether o is a namespace that waits to be emptied, as a controller would do.
func terminates(o *unstructured.Unstructured) bool {
	return o != nil && o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1" && o.GetDeletionTimestamp() != nil
}

// apply makes the change, or a part of it.
func (a *api) apply(ctx context.Context, c change) error {
	o := cmp.Or(c.wanted, c.found).DeepCopy()
	objects := a.objects.Resource(c.resource).Namespace(o.GetNamespace())
	var err error
	switch {
	case c.removes():
		err = remove(ctx, objects, c.found)
	case c.found == nil:
		o.SetResourceVersion("")
		o.SetUID("")
		_, err = objects.Create(ctx, o, metav1.CreateOptions{})
	default:
		o.SetResourceVersion(c.found.GetResourceVersion())
		o.SetUID(c.found.GetUID())
		if _, err = objects.Update(ctx, o, metav1.UpdateOptions{}); apierrors.IsInvalid(err) {
			// A field has changed that cannot be changed back, such as the node of a pod. The next step creates the object again.
			err = remove(ctx, objects, c.found)
		}
	}
	return err
}

// cleanup is the finalizer of a CustomResourceDefinition that kube-apiserver removes itself, after it has
// deleted the custom resources.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

// remove deletes an object, whatever its finalizers, in one or more steps.
func remove(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	deleted := o.GetDeletionTimestamp() != nil
	switch finalizers, _, _ := unstructured.NestedSlice(o.Object, "spec", "finalizers"); {
	case deleted && terminates(o) && len(finalizers) > 0:
		o = o.DeepCopy()
		unstructured.RemoveNestedField(o.Object, "spec", "finalizers")
		_, err := objects.Update(ctx, o, metav1.UpdateOptions{}, "finalize")
		return err
	case deleted && len(o.GetFinalizers()) > 0:
		patch := `{"metadata":{"finalizers":null}}`
		if slices.Contains(o.GetFinalizers(), cleanup) {
			patch = `{"metadata":{"finalizers":["` + cleanup + `"]}}`
		}
		_, err := objects.Patch(ctx, o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	// Without a grace period, and again if the object was deleted with one: there is no kubelet.
	return objects.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
}

// essence returns the object without its status and what the API server sets with each write.
func essence(o *unstructured.Unstructured) map[string]any {
	essence := maps.Clone(o.Object)
	delete(essence, "status")
	metadata, _, _ := unstructured.NestedMap(o.Object, "metadata") // a copy
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	essence["metadata"] = metadata
	return essence
}
