package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// backoff is how long to wait before the API server is asked again after a
// failure: short, because a scheduler waits for what it says.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.25, Steps: 10, Cap: 4 * time.Second}

// feed follows one resource.
type feed struct {
	resource  string
	reflector *cache.Reflector
	read      atomic.Bool           // the resource was read completely once
	lastEvent atomic.Int64          // when the API server last said something about it; Unix nanoseconds
	lastError atomic.Pointer[error] // of the last request, nil if it succeeded
	failed    func()                // counts a failed request
}

// lister is the part of a typed client that a feed needs.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// sink is where a feed's objects go: the ReflectorStore of its Reflector.
type sink[T runtime.Object] struct {
	feed *feed
	// trim writes to the parts of an object, and is called once for each, before
	// share: after that, the parts may be those of an object in use.
	trim func(T)
	// share makes an object use the parts of others. It writes to none of them.
	share   func(T)
	set     func(T)
	remove  func(T)
	replace func([]T)
	done    func() // after replace
}

// newFeed returns a feed that writes into the sink. fieldSelector may be empty.
// client is what the lister was made from.
func newFeed[T runtime.Object, L runtime.Object](client any, resource, fieldSelector string, from lister[L], to sink[T], failed func()) *feed {
	f := &feed{resource: resource, failed: failed}
	f.lastEvent.Store(time.Now().UnixNano())
	to.feed = f
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = fieldSelector
			list, err := from.List(ctx, opts)
			if err == nil {
				err = meta.EachListItem(list, func(object runtime.Object) error {
					return to.change(object, to.trim)
				})
			}
			return list, f.observe(err)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = fieldSelector
			if err := checkHistory(ctx, from, opts); err != nil {
				return nil, f.observe(err)
			}
			w, err := from.Watch(ctx, opts)
			return w, f.observe(err)
		},
	}
	var example T
	f.reflector = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), example, to, cache.ReflectorOptions{
		Name:            "outboard",
		TypeDescription: resource,
		Backoff:         &backoff,
	})
	return f
}

// checkHistory returns an error if the watch would begin at a resourceVersion
// that the API server has not reached: it was restored from a backup, and would
// be silent until it gets there. client-go understands the error, and reads
// everything anew.
func checkHistory[L runtime.Object](ctx context.Context, from lister[L], opts metav1.ListOptions) error {
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		return nil
	}
	list, err := from.List(ctx, metav1.ListOptions{FieldSelector: opts.FieldSelector, Limit: 1})
	if err != nil {
		return err
	}
	listMeta, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	present := listMeta.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(present, opts.ResourceVersion); err != nil || order >= 0 {
		return nil // an API server whose versions have no order is left to client-go
	}
	tooLarge := apierrors.NewTimeoutError(fmt.Sprintf("the API server is at resourceVersion %s, before %s, which was seen already; reading everything anew", present, opts.ResourceVersion), 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return tooLarge
}

// observe records the outcome of a request, and returns it.
func (f *feed) observe(err error) error {
	if err == nil {
		f.lastError.Store(nil)
		f.heard()
		return nil
	}
	f.lastError.Store(&err)
	f.failed()
	return err
}

func (f *feed) heard() { f.lastEvent.Store(time.Now().UnixNano()) }

// age is the time since the API server last said something about the resource.
func (f *feed) age() time.Duration { return time.Since(time.Unix(0, f.lastEvent.Load())) }

func (s sink[T]) change(object any, apply ...func(T)) error {
	typed, ok := object.(T)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.feed.resource, object)
	}
	s.feed.heard()
	for _, f := range apply {
		f(typed)
	}
	return nil
}

// Add is called by the Reflector for an object the watch shows first.
func (s sink[T]) Add(object any) error { return s.change(object, s.trim, s.share, s.set) }

// Update is called by the Reflector for an object that has changed.
func (s sink[T]) Update(object any) error { return s.change(object, s.trim, s.share, s.set) }

// Delete is called by the Reflector for an object that is gone.
func (s sink[T]) Delete(object any) error { return s.change(object, s.remove) }

// Transformer makes the Reflector prepare the objects it collects from the watch
// before it calls Replace.
func (s sink[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return object, s.change(object, s.trim, s.share) }
}

// Replace is called by the Reflector with all there is. The objects come from
// the Transformer, or from a list that was trimmed as it came.
func (s sink[T]) Replace(objects []any, _ string) error {
	s.feed.heard()
	typed := make([]T, 0, len(objects))
	for _, object := range objects {
		if err := s.change(object, s.share, func(o T) { typed = append(typed, o) }); err != nil {
			return err
		}
	}
	s.replace(typed)
	s.feed.read.Store(true)
	s.done()
	return nil
}

// Bookmark is called by the Reflector when the API server has nothing new to
// say, about once a minute.
func (s sink[T]) Bookmark(string) error {
	s.feed.heard()
	return nil
}

// Resync does nothing: there is no second store to compare with.
func (s sink[T]) Resync() error { return nil }
