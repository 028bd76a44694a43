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
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// feed keeps the state up to date with one resource. It counts as read once the state has had
// everything that the API server had at one moment.
type feed struct {
	resource string
	run      func(context.Context) // until it ends
	read     atomic.Bool
	done     func() // after each complete list
	// lastEvent and lastRead are the times of the last event and of the last complete list. They
	// are not numbers, so that they have monotonic time: what has passed since then does not depend
	// on changes of the wall clock.
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

// lister is the part of a typed client that a feed uses.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newFeed returns a feed that writes a resource into the store: from an informer, if the Cluster
// has informers and the resource has a version, and else from the API server. fieldSelector may be
// empty.
func newFeed[T object, L runtime.Object](c *Cluster, resource schema.GroupVersionResource, fieldSelector string, from lister[L], to store[T]) *feed {
	f := &feed{
		resource: resource.Resource, done: c.completed, failed: c.metrics.watchErrors.WithLabelValues(resource.Resource).Inc,
		failures: &c.failures, logger: c.options.Logger,
	}
	f.sawEvent()
	to.feed, to.known = f, map[identity]struct{}{}
	if c.options.Informers != nil && resource.Version != "" {
		informer, err := c.options.Informers.ForResource(resource)
		if err != nil {
			panic(err) // a factory has all resources of Kubernetes
		}
		f.informed, f.run = true, to.follow(informer.Informer())
		return f
	}
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
	f.run = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, c.client), example, to, cache.ReflectorOptions{
		Name:            "outboard",
		TypeDescription: f.resource,
		Backoff:         &backoff,
	}).RunWithContext
	return f
}

// setRead records that the state has the complete resource.
func (f *feed) setRead() {
	f.lastRead.Store(new(time.Now()))
	f.read.Store(true)
	f.done()
}

// resume continues a watch where an earlier one has ended, or returns an error
// that makes the Reflector list everything again: if the API server was unreachable
// in between, etcd may have been restored from a backup. resourceVersions do not show
// that: the requested one may exist again with other contents, and a watch from one
// that does not exist yet blocks without an error.
func resume[L runtime.Object](ctx context.Context, f *feed, from lister[L], opts metav1.ListOptions) (watch.Interface, error) {
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

func startWatch[L runtime.Object](ctx context.Context, f *feed, from lister[L], opts metav1.ListOptions) (w watch.Interface, err error) {
	err = f.request(ctx, func(ctx context.Context) (err error) {
		w, err = from.Watch(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// request sends a list or watch request, and records its outcome. While connections break,
// client-go repeats the request for ten seconds, and then returns an empty watch without an error.
// So the transport reports each attempt without a response.
func (f *feed) request(ctx context.Context, send func(context.Context) error) error {
	last := attempt{report: func(err error) { _ = f.observe(ctx, err) }}
	err := send(context.WithValue(ctx, attemptKey{}, &last))
	if last.err != nil {
		return cmp.Or(err, last.err) // observed already
	}
	return f.observe(ctx, err)
}

// awaitReadInterval waits until the resource may be listed again.
func (f *feed) awaitReadInterval(ctx context.Context) error {
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
func (f *feed) observe(ctx context.Context, err error) error {
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

// describeError returns what a failed request means, and a hint for the operator; "" if there is
// none.
func (f *feed) describeError(err error) (what, hint string) {
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
func (f *feed) warning() string {
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

// withoutQuery returns the error of a request with the address of the server instead of the whole
// URL.
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

func (f *feed) sawEvent() { f.lastEvent.Store(new(time.Now())) }

// age returns the time since the last event of the resource.
func (f *feed) age() time.Duration { return time.Since(*f.lastEvent.Load()) }
