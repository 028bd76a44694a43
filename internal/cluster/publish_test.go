package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

func testCluster(t *testing.T, objects ...runtime.Object) (*Cluster, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	c, err := New(Options{Client: client, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// Synced does not return nil before View shows the objects: nodes that it does not show are rejected.
func TestSyncedAfterTheFirstView(t *testing.T) {
	c, _ := testCluster(t)
	c.SetNode(exampleNode(0))
	for _, f := range *c.feeds.Load() {
		f.read.Store(true)
		if c.Synced() == nil && c.View().Len() != 1 {
			t.Error("synced without nodes")
		}
	}
	c.completed()
	if err := c.Synced(); err != nil || c.View().Len() != 1 {
		t.Errorf("everything is read, and the view has %d nodes: %v", c.View().Len(), err)
	}
}

// Each change makes a new View, also if no other change follows.
func TestEachChangeIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := testCluster(t)
		c.SetComplete()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.publish(ctx)
		node, pod := exampleNode(0), examplePod(0, "p")
		signal := snapshot.NewSignal("load", nil)
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "budget"}}
		allocations := &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: snapshot.Ledger{Resource: "gpu", Node: node.Name, Pods: []snapshot.LedgerPod{{UID: "u"}}}}
		for _, change := range []struct {
			name string
			make func()
		}{
			{"a node comes", func() { c.SetNode(node) }},
			{"a pod comes", func() { c.SetPod(pod) }},
			{"a ledger comes", func() { c.SetLedger(allocations) }},
			{"the ledger is gone", func() { c.RemoveLedger(allocations) }},
			{"a signal comes", func() { c.SetSignal(signal) }},
			{"a budget comes", func() { c.change(func(b *snapshot.Builder) { b.SetDisruptionBudget(budget) }) }},
			{"the signal is gone", func() { c.DeleteSignal("load") }},
			{"the pod is gone", func() { c.RemovePod(pod) }},
			{"the node is gone", func() { c.RemoveNode(node) }},
		} {
			before := c.View()
			change.make()
			time.Sleep(time.Second)
			synctest.Wait()
			if c.View() == before {
				t.Errorf("%s: there is no new view", change.name)
			}
		}
	})
}

// A change after a pause is published immediately; many changes together are published as one View for each interval, including
// the last one.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := testCluster(t)
		c.SetNode(exampleNode(0))
		c.SetComplete()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.publish(ctx)
		start, before := time.Now(), c.View().Generation()

		time.Sleep(time.Second)
		change := func(i int) {
			pod := examplePod(0, fmt.Sprintf("p-%d", i))
			pod.UID = uid("pod", i)
			c.SetPod(pod)
		}
		change(0)
		synctest.Wait()
		if got := c.View().Generation() - before; got != 1 || time.Since(start) != time.Second {
			t.Fatalf("%d views after one change, %v later", got, time.Since(start)-time.Second)
		}
		for i := range 1000 { // 100 ms
			time.Sleep(100 * time.Microsecond)
			change(i + 1)
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if got := c.View().Generation() - before - 1; got < 15 || got > 21 {
			t.Errorf("%d views in 100 ms of changes, want one for each 5 ms", got)
		}
		if got := len(c.View().Node(exampleNodeName(0)).Pods); got != 1001 {
			t.Errorf("%d pods in the last view, want 1001", got)
		}
		after := c.View()
		time.Sleep(time.Hour)
		if c.View() != after {
			t.Error("a view was published, although nothing changed")
		}
	})
}

// A bound pod that the watch never shows as bound counts until the API server returns another state; a failed lookup has no
// effect.
func TestConfirm(t *testing.T) {
	waiting := examplePod(0, "p")
	waiting.Spec.NodeName = ""
	bound := waiting.DeepCopy()
	bound.Spec.NodeName = exampleNodeName(0)
	moved := waiting.DeepCopy()
	moved.Spec.NodeName = exampleNodeName(1)
	ended := bound.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	other := bound.DeepCopy()
	other.UID = "another"
	for name, test := range map[string]struct {
		answer *corev1.Pod
		err    error
		want   string // the node on which it counts then
	}{
		"it is bound":                        {bound, nil, exampleNodeName(0)},
		"it is not bound":                    {waiting, nil, ""},
		"it is bound elsewhere":              {moved, nil, exampleNodeName(1)},
		"it has ended":                       {ended, nil, ""},
		"it is another pod":                  {other, nil, ""},
		"the API server does not respond":    {nil, errors.New("timeout"), exampleNodeName(0)},
		"it is gone, as the API server says": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := testCluster(t)
				client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
					return action.GetSubresource() == "binding", nil, nil
				})
				var asked atomic.Int32
				client.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
					asked.Add(1)
					if test.answer == nil && test.err == nil {
						return false, nil, nil // the tracker has no pod
					}
					return true, test.answer, test.err
				})
				for i := range 2 {
					c.SetNode(exampleNode(i))
				}
				c.SetPod(waiting.DeepCopy())
				c.SetComplete()
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go c.confirm(ctx)
				if err := c.Bind(ctx, binder.Binding{Namespace: waiting.Namespace, Name: "p", UID: waiting.UID, Node: exampleNodeName(0)}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(14 * time.Second)
				if where := countedOn(c); asked.Load() != 0 || where != exampleNodeName(0) {
					t.Errorf("before the timeout: %d lookups, counted on %q", asked.Load(), where)
				}
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if where := countedOn(c); asked.Load() == 0 || where != test.want {
					t.Errorf("%d lookups, counted on %q, want %q", asked.Load(), where, test.want)
				}
			})
		})
	}
}

func countedOn(c *Cluster) string {
	where := ""
	for node := range c.View().All() {
		for range node.Pods {
			where += node.Name
		}
	}
	return where
}

// A resource that often needs a new list is not listed continuously.
func TestPauseBetweenReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{}
		ctx, cancel := context.WithCancel(t.Context())
		paused := func() time.Duration {
			start := time.Now()
			if err := f.awaitReadInterval(ctx); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		if got := paused(); got != 0 {
			t.Errorf("paused %v before the first list", got)
		}
		f.lastRead.Store(new(time.Now()))
		time.Sleep(3 * time.Second)
		if got := paused(); got != 7*time.Second {
			t.Errorf("paused %v three seconds after a list", got)
		}
		if got := paused(); got != 0 {
			t.Errorf("paused %v ten seconds after a list", got)
		}
		f.lastRead.Store(new(time.Now()))
		cancel()
		if err := f.awaitReadInterval(ctx); err == nil {
			t.Error("the pause continues after the context has ended")
		}
	})
}

func TestTransport(t *testing.T) {
	lost := errors.New("lost")
	for name, test := range map[string]struct {
		method, path string
		code         int
		err          error
		givenUp      bool
		failures     uint64
		retryAfter   string
	}{
		"answered":           {method: "GET", path: "/api/v1/pods", code: 200},
		"refused":            {method: "POST", path: "/api/v1/namespaces/n/pods/p/binding", code: 409},
		"turned away":        {method: "POST", path: "/api/v1/namespaces/n/pods/p/binding", code: 429, retryAfter: "1"},
		"not there, reading": {method: "GET", path: "/api/v1/pods", code: 503, failures: 1, retryAfter: "1"},
		"not there, binding": {method: "POST", path: "/api/v1/namespaces/n/pods/p/binding", code: 503, failures: 1},
		"connection lost":    {method: "GET", path: "/api/v1/pods", err: lost, failures: 1},
		"given up":           {method: "GET", path: "/api/v1/pods", err: lost, givenUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Uint64
			next := roundTripper(func(*http.Request) (*http.Response, error) {
				if test.err != nil {
					return nil, test.err
				}
				return &http.Response{StatusCode: test.code, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.givenUp {
				cancel()
			}
			req, err := http.NewRequestWithContext(ctx, test.method, "http://server"+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&transport{next, &failures, ledger.NewClock(nil)}).RoundTrip(req)
			if !errors.Is(err, test.err) || failures.Load() != test.failures {
				t.Errorf("error %v, %d failures, want %v, %d", err, failures.Load(), test.err, test.failures)
			}
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("Retry-After"); test.code >= 429 && got != test.retryAfter {
				t.Errorf("Retry-After is %q, want %q", got, test.retryAfter)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not the case after a minute", what)
		}
	}
}

// Superseded notifies every waiting caller of the next View, and callers that come late.
func TestSuperseded(t *testing.T) {
	c, _ := testCluster(t)
	c.SetComplete()
	first := c.View()
	for range 2 { // in the second round, first is no longer the current View
		waiting := []<-chan struct{}{c.Superseded(c.View()), c.Superseded(c.View())}
		c.Publish()
		for _, w := range waiting {
			select {
			case <-w:
				t.Fatal("the View is superseded, although nothing has changed")
			default:
			}
		}
		c.SetNode(exampleNode(int(c.View().Generation())))
		c.Publish()
		for _, w := range append(waiting, c.Superseded(first)) {
			<-w
		}
	}
}
