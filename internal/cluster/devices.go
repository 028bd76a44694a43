package cluster

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// taintRulesInterval is how often a Cluster asks whether the API server serves DeviceTaintRules now: Kubernetes 1.37 is the first
// release that does so.
const taintRulesInterval = 10 * time.Minute

// deviceFeeds are the feeds of what Dynamic Resource Allocation allocates.
func (c *Cluster) deviceFeeds() ([]*resourceReflector, error) {
	sliceStore := storeOf(c.state, (*snapshot.Builder).ResourceSlices, (*snapshot.Builder).SetResourceSlice, (*snapshot.Builder).DeleteResourceSlice, c.trimSlice)
	claimStore := storeOf(c.state, (*snapshot.Builder).ResourceClaims, (*snapshot.Builder).SetResourceClaim, (*snapshot.Builder).DeleteResourceClaim, snapshot.TrimResourceClaim)
	classStore := storeOf(c.state, (*snapshot.Builder).DeviceClasses, (*snapshot.Builder).SetDeviceClass, (*snapshot.Builder).DeleteDeviceClass, c.trimClass)
	ruleStore := storeOf(c.state, (*snapshot.Builder).DeviceTaintRules, (*snapshot.Builder).SetDeviceTaintRule, (*snapshot.Builder).DeleteDeviceTaintRule, snapshot.TrimDeviceTaintRule)
	sliceStore.done, claimStore.done, classStore.done, ruleStore.done = c.completed, c.completed, c.completed, c.completed
	feeds := []*resourceReflector{c.feed("resourceslices"), c.feed("resourceclaims"), c.feed("deviceclasses"), c.feed("devicetaintrules")}
	if c.options.Informers != nil {
		from := c.options.Informers.Resource().V1()
		return feeds, firstError(
			feedFrom(feeds[0], from.ResourceSlices().Informer(), copied(sliceStore)),
			feedFrom(feeds[1], from.ResourceClaims().Informer(), copied(claimStore)),
			feedFrom(feeds[2], from.DeviceClasses().Informer(), copied(classStore)),
			feedFrom(feeds[3], from.DeviceTaintRules().Informer(), copied(ruleStore)),
		)
	}
	api := c.client.ResourceV1()
	newResourceReflector(c.client, feeds[0], "", api.ResourceSlices(), sliceStore)
	newResourceReflector(c.client, feeds[1], "", api.ResourceClaims(""), claimStore)
	newResourceReflector(c.client, feeds[2], "", api.DeviceClasses(), classStore)
	newResourceReflector(c.client, feeds[3], "", api.DeviceTaintRules(), ruleStore)
	feeds[3].onceServed(func(ctx context.Context) error {
		_, err := api.DeviceTaintRules().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}, c.completed)
	return feeds, nil
}

// onceServed makes the feed count as read, and its resource as empty, for as long as list says that the API server does not serve it.
func (f *resourceReflector) onceServed(list func(context.Context) error, completed func()) {
	run := f.run
	f.run = func(ctx context.Context) {
		for apierrors.IsNotFound(list(ctx)) {
			f.sawEvent()
			f.read.Store(true)
			completed()
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
func storeOf[T object](s *state, known func(*snapshot.Builder) iter.Seq[T], set, remove func(*snapshot.Builder, T), trim func(T)) store[T] {
	locked := func(change func(*snapshot.Builder, T)) func(T) {
		return func(object T) {
			s.mu.Lock()
			defer s.mu.Unlock()
			change(&s.builder, object)
			s.requestPublish()
		}
	}
	return store[T]{trim: trim, set: locked(set), remove: locked(remove), known: func() []T {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Collect(known(&s.builder))
	}}
}

// copied returns the store for objects that others use, too.
func copied[T object](to store[T]) store[T] {
	trim := to.trim
	to.copy = func(object T) T {
		object = object.DeepCopyObject().(T)
		trim(object)
		return object
	}
	to.trim = nil
	return to
}

func (c *Cluster) trimSlice(s *resourcev1.ResourceSlice) {
	if !snapshot.TrimResourceSlice(s) {
		c.warnings.Log(c.options.Logger, slog.LevelWarn, "slice", "a ResourceSlice is too large: its pool counts as incomplete", "resourceslice", s.Name)
	}
}

func (c *Cluster) trimClass(class *resourcev1.DeviceClass) {
	if !snapshot.TrimDeviceClass(class) {
		c.warnings.Log(c.options.Logger, slog.LevelWarn, "class", "a DeviceClass is too large: scores do not use it", "deviceclass", class.Name)
	}
}
