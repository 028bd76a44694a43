package binder_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// watched is an API server whose pod "earlier" must be bound before the other one.
type watched struct {
	*apiServer
	earlier atomic.Pointer[corev1.Pod] // nil: gone
	assumed string                     // the node on which the earlier pod counts because this process binds it
	next    chan struct{}              // closed when there is another View
}

func (w *watched) PodByUID(uid types.UID) *corev1.Pod {
	if uid == "earlier" {
		return w.earlier.Load()
	}
	return w.apiServer.PodByUID(uid)
}

func (w *watched) Assumed(uid types.UID) string {
	if uid == "earlier" {
		return w.assumed
	}
	return ""
}

func (w *watched) Superseded(*snapshot.View) <-chan struct{} { return w.next }

// TestBindWaitsForEarlierPods runs with a simulated clock.
func TestBindWaitsForEarlierPods(t *testing.T) {
	const never = time.Hour
	for _, tc := range []struct {
		name     string
		binds    bool           // this process binds the earlier pod
		after    time.Duration  // until change
		change   func(*watched) // what happens to the earlier pod
		cancel   time.Duration  // when the caller's context ends
		stall    time.Duration
		from, to time.Duration // when the Binding is sent; or when Bind returns an error
		fails    bool
	}{
		{"gone already", false, 0, func(w *watched) { w.earlier.Store(nil) }, never, 0, 0, 0, false},
		{"bound by another replica", false, 100 * time.Millisecond, (*watched).bindEarlier, never, 0, 100 * time.Millisecond, 100 * time.Millisecond, false},
		{"gone meanwhile", false, 100 * time.Millisecond, func(w *watched) { w.earlier.Store(nil); close(w.next) }, never,
			0, 100 * time.Millisecond, 100 * time.Millisecond, false},
		{"never bound by another replica", false, never, nil, never, 0, 100*time.Millisecond + 1, time.Second, false},
		{"bound by this process", true, 900 * time.Millisecond, (*watched).bindEarlier, never, 0, 900 * time.Millisecond, 900 * time.Millisecond, false},
		{"never bound by this process", true, never, nil, never, 0, 900*time.Millisecond + 1, 3 * time.Second, true},
		{"bound late by this process", true, 9 * time.Second, (*watched).bindEarlier, never, 10 * time.Second, 9 * time.Second, 9 * time.Second, false},
		{"the caller gives up", true, never, nil, 50 * time.Millisecond, 0, 50 * time.Millisecond, 50 * time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched()
				if tc.binds {
					w.assume()
				}
				switch {
				case tc.after == 0:
					tc.change(w)
				case tc.change != nil:
					time.AfterFunc(tc.after, func() { tc.change(w) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.cancel)
				defer cancel()
				at, err := w.bindAfterEarlier(t, ctx, new(binder.Awaited), tc.stall)
				if at < tc.from || at > tc.to || (err != nil) != tc.fails {
					t.Errorf("after %s: %v; want %s to %s, an error: %t", at, err, tc.from, tc.to, tc.fails)
				}
				if held := w.allocated(); tc.fails && held != "" {
					t.Errorf("the pod that is not bound holds an allocation: %s", held)
				}
			})
		})
	}
}

// A pod that this process binds is not gone if the watch does not show it yet.
func TestBindWaitsForAPodThatTheWatchDoesNotShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		w.assume()
		w.earlier.Store(nil)
		time.AfterFunc(900*time.Millisecond, w.bindEarlier)
		if at, err := w.bindAfterEarlier(t, t.Context(), new(binder.Awaited), 0); at != 900*time.Millisecond || err != nil {
			t.Errorf("bound after %s: %v", at, err)
		}
	})
}

// crowded is an API server of which there is a new View each millisecond.
type crowded struct {
	*watched
	looks atomic.Int64
}

func (c *crowded) PodByUID(uid types.UID) *corev1.Pod {
	if uid == "earlier" {
		c.looks.Add(1)
	}
	return c.watched.PodByUID(uid)
}

func (c *crowded) Superseded(*snapshot.View) <-chan struct{} {
	next := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { close(next) })
	return next
}

// A pod that waits for another one does not look at each View while this process binds the other one.
func TestWaitingCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 1900 * time.Millisecond
		w := newWatched()
		w.assume()
		c, earlier := &crowded{watched: w}, new(binder.Awaited)
		first := newWatched()
		first.pod.UID = "earlier"
		first.onBind = func(binder.Binding) error {
			time.Sleep(takes)
			w.bindEarlier()
			return nil
		}
		e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: &oneUnit{}}}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			b := binder.Binder{Engine: e, Cluster: first, Ledgers: first, Awaited: earlier, Why: func(*corev1.Pod, string) string { return "" }}
			_, _ = b.Bind(t.Context(), first.pod.DeepCopy(), binder.Target{View: first.view, Node: first.view.Node("a")})
		}()
		synctest.Wait()
		at, err := bindAfterEarlier(t, t.Context(), w, c, earlier, 0)
		if looks := c.looks.Load(); at != takes || err != nil || looks > 5 {
			t.Errorf("bound after %s, after %d looks (%v), want %s and a few", at, looks, err, takes)
		}
	})
}

func newWatched() *watched {
	w := &watched{apiServer: newAPIServer(), next: make(chan struct{})}
	w.earlier.Store(earlierPod())
	return w
}

func earlierPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "earlier", UID: "earlier"}}
}

// assume lets this process bind the earlier pod: the View counts it on the node, although it is not bound.
func (w *watched) assume() {
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	b.AssumePod(earlierPod(), "a")
	w.assumed, w.view = "a", b.View()
}

func (w *watched) bindEarlier() {
	bound := earlierPod()
	bound.Spec.NodeName = "a"
	w.earlier.Store(bound)
	close(w.next)
}

// bindAfterEarlier binds the pod to node a, and returns after which time the Binding was sent, or Bind failed without one.
func (w *watched) bindAfterEarlier(t *testing.T, ctx context.Context, earlier *binder.Awaited, stall time.Duration) (at time.Duration, err error) {
	t.Helper()
	return bindAfterEarlier(t, ctx, w, w, earlier, stall)
}

// bindAfterEarlier is that of w in a cluster that is w, or has more.
func bindAfterEarlier(t *testing.T, ctx context.Context, w *watched, in binder.Cluster, earlier *binder.Awaited, stall time.Duration) (at time.Duration, err error) {
	t.Helper()
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneUnit", Policy: &oneUnit{after: []types.UID{"earlier"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	started, sent := time.Now(), false
	w.onBind = func(b binder.Binding) error {
		at, sent = time.Since(started), true
		return w.receive(b)
	}
	b := binder.Binder{Engine: e, Cluster: in, Ledgers: w, Awaited: earlier, Why: func(*corev1.Pod, string) string { return "" }, StallTimeout: stall}
	if _, err = b.Bind(ctx, w.pod.DeepCopy(), binder.Target{View: w.view, Node: w.view.Node("a")}); !sent {
		at = time.Since(started)
	}
	return at, err
}
