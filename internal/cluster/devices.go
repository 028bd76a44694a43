package cluster

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// taintRulesInterval is how often a Cluster asks whether the API server serves DeviceTaintRules
// now: Kubernetes 1.37 is the first release that does so.
const taintRulesInterval = 10 * time.Minute

// deviceFeeds are the feeds of what Dynamic Resource Allocation allocates.
func (c *Cluster) deviceFeeds() []*feed {
	api, v1 := c.client.ResourceV1(), resourcev1.SchemeGroupVersion
	slices := storeOf(c.State, snapshot.TrimResourceSlice, (*snapshot.Builder).SetResourceSlice,
		func(b *snapshot.Builder, s *resourcev1.ResourceSlice) { b.DeleteResourceSlice(s.Name) })
	claims := storeOf(c.State, snapshot.TrimResourceClaim, (*snapshot.Builder).SetResourceClaim, (*snapshot.Builder).DeleteResourceClaim)
	classes := storeOf(c.State, snapshot.TrimDeviceClass, (*snapshot.Builder).SetDeviceClass,
		func(b *snapshot.Builder, class *resourcev1.DeviceClass) { b.DeleteDeviceClass(class.Name) })
	rules := storeOf(c.State, snapshot.TrimDeviceTaintRule, (*snapshot.Builder).SetDeviceTaintRule,
		func(b *snapshot.Builder, r *resourcev1.DeviceTaintRule) { b.DeleteDeviceTaintRule(r.Name) })
	taintRules := newFeed(c, v1.WithResource("devicetaintrules"), "", api.DeviceTaintRules(), rules)
	if !taintRules.informed {
		taintRules.onceServed(func(ctx context.Context) error {
			_, err := api.DeviceTaintRules().List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
	}
	return []*feed{
		newFeed(c, v1.WithResource("resourceslices"), "", api.ResourceSlices(), slices),
		newFeed(c, v1.WithResource("resourceclaims"), "", api.ResourceClaims(""), claims),
		newFeed(c, v1.WithResource("deviceclasses"), "", api.DeviceClasses(), classes),
		taintRules,
	}
}

// onceServed makes the feed count as read, and its resource as empty, for as long as list says that
// the API server does not serve it.
func (f *feed) onceServed(list func(context.Context) error) {
	run := f.run
	f.run = func(ctx context.Context) {
		for apierrors.IsNotFound(list(ctx)) {
			f.sawEvent()
			f.setRead()
			select {
			case <-ctx.Done():
				return
			case <-time.After(taintRulesInterval):
			}
		}
		run(ctx)
	}
}

// storeOf returns a store that writes into the Builder.
func storeOf[T object](s *State, trim func(T), set, remove func(*snapshot.Builder, T)) store[T] {
	return store[T]{
		trim:   trim,
		set:    func(object T) { s.change(func(b *snapshot.Builder) { set(b, object) }) },
		remove: func(object T) { s.change(func(b *snapshot.Builder) { remove(b, object) }) },
	}
}
