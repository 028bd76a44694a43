package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"

	"outboard.dev/outboard/snapshot"
)

// informerFeeds returns the feeds of nodes, pods and disruption budgets that another component of the process watches
// already. Objects are shared, and parts that trimming changes are copied; parts that it removes are not copied. Nodes share the names of
// equal images, which are most of what is copied.
func (c *Cluster) informerFeeds() ([]*resourceReflector, error) {
	from := c.options.Informers
	var images templates[string, []string]
	feeds := []*resourceReflector{c.feed("nodes"), c.feed("pods"), c.feed("poddisruptionbudgets")}
	return feeds, firstError(
		feedFrom(feeds[0], from.Core().V1().Nodes().Informer(), store[*corev1.Node]{
			copy: func(node *corev1.Node) *corev1.Node {
				trimmed := snapshot.TrimmedNode(node)
				internImages(&images, trimmed)
				images.sweep(c.images)
				return trimmed
			},
			set: c.state.setNode, remove: c.state.removeNode, done: c.completed,
		}),
		feedFrom(feeds[1], from.Core().V1().Pods().Informer(), store[*corev1.Pod]{
			copy: trimmedPod, set: c.state.setPod, remove: c.state.removePod, done: c.completed,
		}),
		feedFrom(feeds[2], from.Policy().V1().PodDisruptionBudgets().Informer(), store[*policyv1.PodDisruptionBudget]{
			set: c.setBudget, remove: c.state.removeBudget, done: c.completed,
		}),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// feedFrom makes f write what the informer shows into the store. The owner of the informer runs it.
func feedFrom[T object](f *resourceReflector, informer cache.SharedIndexInformer, to store[T]) error {
	to.reflector, f.informed = f, true
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { _ = to.change(object, to.setCopy) },
		UpdateFunc: func(former, object any) {
			// Informers know objects by name. After a gap in the watch, an update may be from one object to another one of that name.
			if former, ok := former.(T); ok && former.GetUID() != object.(T).GetUID() {
				to.remove(former)
			}
			_ = to.change(object, to.setCopy)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			_ = to.change(object, to.remove)
		},
	})
	if err != nil {
		return fmt.Errorf("cluster: watching %s: %w", f.resource, err)
	}
	f.run = func(ctx context.Context) {
		if cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			f.read.Store(true)
			to.done()
		}
		<-ctx.Done()
		_ = informer.RemoveEventHandler(handler)
	}
	return nil
}

// setCopy stores a copy of an object that others use, too.
func (s store[T]) setCopy(object T) {
	if s.copy != nil {
		object = s.copy(object)
	}
	s.set(object)
}
