package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"outboard.dev/outboard/signal"
)

const (
	// pageSize bounds the part of a list that is in memory at a time.
	pageSize = 250
	// watchTime is the requested time of a watch: the shortest possible.
	watchTime = time.Second
	// manyEvents is more than usually happens in a second, and less than an API server can send in
	// one.
	manyEvents = 1000
	// maxNodes and maxPods bound what is kept of another cluster: several times what Kubernetes
	// supports.
	maxNodes = 50_000
	maxPods  = 1_000_000
)

// mirror keeps a V of each object of a kind.
type mirror[V any] struct {
	kind  string
	most  int // objects
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// keep returns what to keep of an object; false: nothing.
	keep func(runtime.Object) (V, bool)

	kept map[types.UID]V
	// version is the resourceVersion of kept; "" before the first list.
	version string
}

// catchUp brings the mirror up to date. After an error, kept is still the state at some moment, and
// the next call continues from there.
func (m *mirror[V]) catchUp(ctx context.Context) error {
	if m.version != "" {
		err := m.follow(ctx)
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
		// The API server no longer has the changes since then.
	}
	return m.listAll(ctx)
}

func (m *mirror[V]) listAll(ctx context.Context) error {
	listed := &mirror[V]{kind: m.kind, most: m.most, kept: map[types.UID]V{}}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := m.list(ctx, options)
		if err != nil {
			return fmt.Errorf("listing %s: %w", m.kind, err)
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			if value, ok := m.keep(o); ok {
				listed.kept[object.GetUID()] = value
			}
			return listed.bounded()
		})
		if err != nil {
			return err
		}
		if options.Continue = about.GetContinue(); options.Continue == "" {
			m.kept, m.version = listed.kept, about.GetResourceVersion()
			return nil
		}
	}
}

func (m *mirror[V]) bounded() error {
	if len(m.kept) > m.most {
		return fmt.Errorf("the cluster has more than %d %s", m.most, m.kind)
	}
	return nil
}

// follow applies the changes since the version, until the API server ends the watch. The API server
// first sends all earlier changes, so that afterwards only changes of that second can be missing,
// unless there were so many that it may not have sent them all. (A bookmark would show that, but
// the API server sends none if nothing has changed.)
func (m *mirror[V]) follow(ctx context.Context) error {
	for {
		n, err := m.followOnce(ctx)
		if err != nil {
			return fmt.Errorf("watching %s: %w", m.kind, err)
		}
		if n < manyEvents {
			return nil
		}
	}
}

func (m *mirror[V]) followOnce(ctx context.Context) (count int, err error) {
	begin := time.Now()
	events, err := m.watch(ctx, metav1.ListOptions{ResourceVersion: m.version, TimeoutSeconds: new(int64(watchTime / time.Second))})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return count, apierrors.FromObject(event.Object)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return count, err
		}
		if value, ok := m.keep(event.Object); ok && event.Type != watch.Deleted {
			m.kept[object.GetUID()] = value
		} else {
			delete(m.kept, object.GetUID())
		}
		m.version = object.GetResourceVersion()
		if err := m.bounded(); err != nil {
			return count, err
		}
		count++
	}
	switch {
	case ctx.Err() != nil:
		return count, context.Cause(ctx)
	case time.Since(begin) < watchTime:
		// client-go does not distinguish a broken connection from the end of a watch.
		return count, errEndedEarly
	}
	return count, nil
}

var errEndedEarly = errors.New("the connection was lost")

// limit bounds the responses to lists. A watch is read event by event, each bounded by client-go.
type limit struct {
	next  http.RoundTripper
	bytes atomic.Int64
}

func (l *limit) wrap(next http.RoundTripper) http.RoundTripper {
	l.next = next
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *limit) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && !req.URL.Query().Has("watch") {
		resp.Body = limitedBody{signal.Limits{Bytes: l.bytes.Load()}.Reader(resp.Body), resp.Body}
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the underlying transport.
func (l *limit) WrappedRoundTripper() http.RoundTripper { return l.next }

// limitedBody is a response up to the limit.
type limitedBody struct {
	io.Reader
	io.Closer
}
