package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
)

// bindServer is an API server that accepts every Binding.
type bindServer struct {
	*httptest.Server
	bindings, lookups atomic.Int32
	onBinding         func() // if not nil, called before the response
}

func newBindServer(t *testing.T) *bindServer {
	b := &bindServer{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/binding") {
			b.lookups.Add(1)
			name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
			_ = json.NewDecoder(r.Body).Decode(&pod) // the annotations of a patch
			pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = "default", name, types.UID(name), "1"
			_ = json.NewEncoder(w).Encode(&pod)
			return
		}
		b.bindings.Add(1)
		if b.onBinding != nil {
			b.onBinding()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bindServer) cluster(t *testing.T, o cluster.Options) *cluster.Cluster {
	o.Config = &rest.Config{Host: b.URL}
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func bindingTo(node, pod string) binder.Binding {
	return binder.Binding{Namespace: "default", Name: pod, UID: types.UID(pod), Node: node}
}

// bindError returns the error of Bind, which must be a *BindError.
func bindError(t testing.TB, err error) *cluster.BindError {
	t.Helper()
	var bindErr *cluster.BindError
	if !errors.As(err, &bindErr) {
		t.Fatalf("got error %v from Bind", err)
	}
	if errors.Is(err, binder.ErrOutcomeUnknown) != (bindErr.Outcome == "unknown") {
		t.Errorf("the outcome is %s: %v", bindErr.Outcome, err)
	}
	return bindErr
}

// A Binding that has not left this process certainly has no effect, so the outcome is known without a lookup.
func TestBindingThatIsNotSent(t *testing.T) {
	check := func(t *testing.T, err error) {
		t.Helper()
		failure := bindError(t, err)
		if failure.Outcome != "not_sent" || !strings.Contains(err.Error(), `was not bound to node "n": the Binding was not sent: `) {
			t.Errorf("%s: %v", failure.Outcome, err)
		}
	}
	t.Run("because no connection could be made", func(t *testing.T) {
		api := newBindServer(t)
		c := api.cluster(t, cluster.Options{})
		api.Close()
		check(t, c.Bind(t.Context(), bindingTo("n", "first")))
	})
	t.Run("but not when the answer is what is missing", func(t *testing.T) {
		api := newBindServer(t)
		api.onBinding = func() { panic(http.ErrAbortHandler) } // the connection ends
		failure := bindError(t, api.cluster(t, cluster.Options{}).Bind(t.Context(), bindingTo("n", "first")))
		if failure.Outcome != "unknown" {
			t.Errorf("%s: %v", failure.Outcome, failure)
		}
	})
}

// Throttle delays a Binding only once, and fails immediately if the delay would be too long.
func TestThrottle(t *testing.T) {
	api := newBindServer(t)
	c := api.cluster(t, cluster.Options{QPS: 0.001, Burst: 2})
	for i := range 2 {
		ctx, err := c.Throttle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Throttle(ctx); again != ctx || err != nil {
			t.Errorf("with its own context: %v", err)
		}
		if err := c.Bind(ctx, bindingTo("n", fmt.Sprint("p", i))); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Throttle(t.Context()); !errors.Is(err, cluster.ErrThrottled) || !strings.Contains(err.Error(), "the limit of 0.001 Bindings per second") {
		t.Errorf("third call: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Throttle(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended: %v", err)
	}
	unlimited := newBindServer(t).cluster(t, cluster.Options{QPS: -1})
	for range 100 {
		if _, err := unlimited.Throttle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
