package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"outboard.dev/outboard/internal/ledger"
)

// backoff is the backoff of list and watch requests. It is short, because
// scheduling depends on them.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.25, Steps: 10, Cap: 2 * time.Second}

// readInterval is the minimum time between two complete lists of a resource, which
// are expensive for the API server.
const readInterval = 10 * time.Second

// resourceReflector lists and watches one resource.
type resourceReflector struct {
	resource string
	run      func(context.Context) // until it ends
	read     atomic.Bool           // the resource was listed completely once
	// lastEvent and lastRead are the times of the last event and of the last complete list. They are not numbers, so that they have
	// monotonic time: what has passed since then does not depend on changes of the wall clock.
	lastEvent, lastRead atomic.Pointer[time.Time]
	informed            bool                  // by an informer, which drops bookmarks: lastEvent is only the time of the last change
	lastError           atomic.Pointer[error] // of the last request, nil if it succeeded
	failures            *atomic.Uint64        // requests without a response of the API server
	since               atomic.Uint64         // value of failures when the resource was last listed completely
	failed              func()                // counts a failed request
	logger              *slog.Logger
}

// object is an object of a resource.
type object interface {
	runtime.Object
	metav1.Object
}

// lister is the part of a typed client that a resourceReflector uses.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// store receives the objects: it is the ReflectorStore of the Reflector.
type store[T object] struct {
	reflector *resourceReflector
	// trim changes the parts of an object. It is called once for each object, before intern: after
	// intern, an object may share its parts.
	trim func(T)
	// intern makes an object share parts with others. It is called once for each object. Nil: nothing is shared.
	intern func(T)
	// copy returns what to store of an object that others use, too. Nil: the object itself.
	copy   func(T) T
	set    func(T)
	remove func(T)
	known  func() []T // what was set and not removed
	done   func()     // after the complete list
}

// newResourceReflector makes f watch a resource and write into the store. fieldSelector may be
// empty. client is the client from which the lister was made.
func newResourceReflector[T object, L runtime.Object](client any, f *resourceReflector, fieldSelector string, from lister[L], to store[T]) *resourceReflector {
	f.sawEvent()
	to.reflector = f
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = fieldSelector
			if err := f.awaitReadInterval(ctx); err != nil {
				return nil, err
			}
			var list L
			err := f.request(ctx, func(ctx context.Context) (err error) {
				list, err = from.List(ctx, opts)
				f.since.Store(f.failures.Load())
				if err != nil {
					return err
				}
				return meta.EachListItem(list, func(object runtime.Object) error {
					return to.change(object, to.trim, to.intern)
				})
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = fieldSelector
			if opts.SendInitialEvents == nil {
				return resume(ctx, f, from, opts)
			}
			if err := f.awaitReadInterval(ctx); err != nil {
				return nil, err
			}
			opts.ResourceVersion = "" // the current state of everything
			w, err := startWatch(ctx, f, from, opts)
			f.since.Store(f.failures.Load())
			return w, err
		},
	}
	var example T
	f.run = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), example, to, cache.ReflectorOptions{
		Name:            "outboard",
		TypeDescription: f.resource,
		Backoff:         &backoff,
	}).RunWithContext
	return f
}

// resume continues a watch where an earlier one has ended, or returns an error
// that makes the Reflector list everything again: if the API server was unreachable
// in between, etcd may have been restored from a backup. resourceVersions do not show
// that: the requested one may exist again with other contents, and a watch from one
// that does not exist yet blocks without an error.
func resume[L runtime.Object](ctx context.Context, f *resourceReflector, from lister[L], opts metav1.ListOptions) (watch.Interface, error) {
	w, err := startWatch(ctx, f, from, opts)
	if err != nil {
		return nil, err
	}
	if f.failures.Load() != f.since.Load() {
		w.Stop()
		return nil, apierrors.NewResourceExpired("the API server was unreachable, so the resource is listed again")
	}
	return w, nil
}

func startWatch[L runtime.Object](ctx context.Context, f *resourceReflector, from lister[L], opts metav1.ListOptions) (w watch.Interface, err error) {
	err = f.request(ctx, func(ctx context.Context) (err error) {
		w, err = from.Watch(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// request sends a list or watch request, and records its outcome. While connections break, client-go
// repeats the request for ten seconds, and then returns an empty watch without an error. So the
// transport reports each attempt without a response.
func (f *resourceReflector) request(ctx context.Context, send func(context.Context) error) error {
	last := attempt{report: func(err error) { _ = f.observe(ctx, err) }}
	err := send(context.WithValue(ctx, attemptKey{}, &last))
	if last.err != nil {
		return cmp.Or(err, last.err) // observed already
	}
	return f.observe(ctx, err)
}

// awaitReadInterval waits until the resource may be listed again.
func (f *resourceReflector) awaitReadInterval(ctx context.Context) error {
	last := f.lastRead.Load()
	if last == nil {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(last.Add(readInterval))):
		return nil
	}
}

// observe records the outcome of a request with the context, and returns it.
func (f *resourceReflector) observe(ctx context.Context, err error) error {
	if err == nil {
		f.sawEvent()
		if f.lastError.Swap(nil) != nil {
			f.logger.Info("the API server responds again", "resource", f.resource)
		}
		return nil
	}
	if ctx.Err() != nil {
		return err // the request was canceled, and says nothing about the API server
	}
	f.failed()
	what, hint := f.describeError(err)
	if before := f.lastError.Swap(&err); before != nil {
		if said, _ := f.describeError(*before); said == what {
			return err
		}
	}
	args := []any{"resource", f.resource, "error", withoutQuery(err)}
	if hint != "" {
		args = append(args, "hint", hint)
	}
	f.logger.Warn(what, args...)
	return err
}

// describeError returns what a failed request means, and a hint for the operator; "" if there is none.
func (f *resourceReflector) describeError(err error) (what, hint string) {
	resource := f.resource
	if resource == ledger.Resource.Resource {
		resource = ledger.Resource.GroupResource().String()
	}
	switch {
	case apierrors.IsForbidden(err):
		return "the API server denies reading a resource", "grant the verbs list and watch on " + resource
	case (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)) && f.resource == ledger.Resource.Resource:
		return "the API server does not serve a resource", "kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml"
	case apierrors.IsNotFound(err):
		return "the API server does not serve a resource", ""
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials", credentialsHint
	}
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		return "the certificate of the API server is not accepted", "see server and certificate-authority in clientConnection.kubeconfig"
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code/100 == 4 {
		return "the API server rejects a request", ""
	}
	return "the API server does not respond", ""
}

// warning returns why the last request failed, as a line for the operator; "" if it succeeded.
func (f *resourceReflector) warning() string {
	err := f.lastError.Load()
	if err == nil {
		return ""
	}
	what, hint := f.describeError(*err)
	if hint != "" {
		hint = "; " + hint
	}
	return fmt.Sprintf("%s (%s: %v%s)", f.resource, what, withoutQuery(*err), hint)
}

// withoutQuery returns the error of a request with the address of the server instead of the whole URL.
func withoutQuery(err error) error {
	request := (*url.Error)(nil)
	if !errors.As(err, &request) {
		return err
	}
	u, parseErr := url.Parse(request.URL)
	if parseErr != nil {
		return err
	}
	return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, request.Err)
}

// reported drops the records of client-go about failed requests: observe has logged the first of them with its meaning, and
// client-go logs each retry.
type reported struct{ slog.Handler }

func (r reported) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == "Failed to watch" {
		return nil
	}
	return r.Handler.Handle(ctx, record)
}

func (r reported) WithAttrs(attrs []slog.Attr) slog.Handler {
	return reported{r.Handler.WithAttrs(attrs)}
}

func (r reported) WithGroup(name string) slog.Handler { return reported{r.Handler.WithGroup(name)} }

func (f *resourceReflector) sawEvent() { f.lastEvent.Store(new(time.Now())) }

// age returns the time since the last event of the resource.
func (f *resourceReflector) age() time.Duration { return time.Since(*f.lastEvent.Load()) }

func (s store[T]) change(object any, apply ...func(T)) error {
	typed, ok := object.(T)
	if !ok {
		return fmt.Errorf("%s: got a %T", s.reflector.resource, object)
	}
	s.reflector.sawEvent()
	for _, f := range apply {
		if f != nil {
			f(typed)
		}
	}
	return nil
}

// Add is called by the Reflector for a new object.
func (s store[T]) Add(object any) error { return s.change(object, s.trim, s.intern, s.set) }

// Update is called by the Reflector for an object that has changed.
func (s store[T]) Update(object any) error { return s.change(object, s.trim, s.intern, s.set) }

// Delete is called by the Reflector for an object that is gone.
func (s store[T]) Delete(object any) error { return s.change(object, s.remove) }

// Transformer makes the Reflector prepare objects of the watch before it calls Replace.
func (s store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return object, s.change(object, s.trim, s.intern) }
}

// Replace is called by the Reflector with the complete list. The objects are prepared already, by
// the Transformer or while they were listed.
func (s store[T]) Replace(objects []any, _ string) error {
	s.reflector.sawEvent()
	typed := make([]T, 0, len(objects))
	for _, object := range objects {
		if err := s.change(object, func(o T) { typed = append(typed, o) }); err != nil {
			return err
		}
	}
	replace(typed, s.known, s.set, s.remove)
	s.reflector.lastRead.Store(new(time.Now()))
	s.reflector.read.Store(true)
	s.done()
	return nil
}

// replace sets the listed objects, and removes the known ones that are not listed.
func replace[T object](listed []T, known func() []T, set, remove func(T)) {
	type identity struct {
		namespace, name string
		uid             types.UID
	}
	of := func(o T) identity { return identity{o.GetNamespace(), o.GetName(), o.GetUID()} }
	there := make(map[identity]struct{}, len(listed))
	for _, o := range listed {
		there[of(o)] = struct{}{}
		set(o)
	}
	for _, o := range known() {
		if _, ok := there[of(o)]; !ok {
			remove(o)
		}
	}
}

// Bookmark is called by the Reflector about once a minute while nothing changes.
func (s store[T]) Bookmark(string) error {
	s.reflector.sawEvent()
	return nil
}

// Resync does nothing: there is no second store to compare with.
func (s store[T]) Resync() error { return nil }
