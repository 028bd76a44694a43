package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// guarded is an API server that denies verbs, such as "patch pods/status".
type guarded struct {
	*server
	without string
}

func (g *guarded) allow(verb, resource, name string) error {
	if g.without == verb+" "+resource {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New("RBAC says no"))
	}
	return nil
}

func (g *guarded) LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if err := g.allow("get", "pods", name); err != nil {
		return nil, err
	}
	return g.server.LivePod(ctx, namespace, name, uid)
}

func (g *guarded) TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	if err := g.allow("patch", "pods/status", name); err != nil {
		return nil, err
	}
	return g.server.TouchPod(ctx, namespace, name, uid)
}

func (g *guarded) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	if o.ResourceVersion != "" {
		if err := g.allow("update", "ledgers.outboard.dev", o.Name); err != nil {
			return nil, err
		}
	}
	return g.server.PutLedger(ctx, o)
}

func (g *guarded) DeleteLedger(ctx context.Context, o *ledger.Object) error {
	if err := g.allow("delete", "ledgers.outboard.dev", o.Name); err != nil {
		return err
	}
	return g.server.DeleteLedger(ctx, o)
}

// keeping is a Keeper with the API, its log and its metrics.
type keeping struct {
	*ledger.Keeper
	cache   *cache
	sweeper ledger.Sweeper
	log     bytes.Buffer
	metrics *prometheus.Registry
}

func keep(t *testing.T, api ledger.API, s *server, change ...func(*ledger.Options)) *keeping {
	t.Helper()
	k := &keeping{cache: newCache(s), metrics: prometheus.NewRegistry()}
	o := ledger.Options{
		API: api, Cache: k.cache, ReclaimAfter: reclaimAfter, RetryPause: time.Microsecond,
		Logger: slog.New(slog.NewTextHandler(&k.log, nil)), Registerer: k.metrics,
	}
	for _, f := range change {
		f(&o)
	}
	k.Keeper = ledger.New(o)
	k.sweeper = k.NewSweeper()
	return k
}

// If the permission to remove an allocation or a ledger is missing, the log has it once, and a metric and
// a warning show it until the permission is granted. Then the allocation is removed.
func TestReclaimsThatAreRefused(t *testing.T) {
	for _, tc := range []struct {
		without string
		deleted bool // the pod, before the first sweep
	}{
		{"patch pods/status", false},
		{"get pods", false},
		{"update ledgers.outboard.dev", false},
		{"update ledgers.outboard.dev", true},
		{"delete ledgers.outboard.dev", true},
	} {
		t.Run(tc.without, func(t *testing.T) {
			w := newWorld(t, 1)
			api := &guarded{server: w.server}
			k := keep(t, api, w.server)
			pod := w.server.addPod("p")
			if _, err := k.Allocate(t.Context(), gpuOnA, pod, "a", choose(w.capacity[gpuOnA], 3)); err != nil {
				t.Fatal(err)
			}
			if tc.deleted {
				delete(w.server.pods, "p")
			}
			now := time.Now()
			sweeps := func(n int) {
				for range n {
					k.cache.look()
					k.sweeper.Sweep(t.Context(), now)
					now = now.Add(2 * reclaimAfter)
				}
			}
			stand := func(count string, logged int, warnings string) {
				t.Helper()
				if got := strings.Count(k.log.String(), "a permission is missing"); got != logged {
					t.Errorf("logged %d times, want %d:\n%s", got, logged, k.log.String())
				}
				if got := strings.Join(k.Warnings(), "\n"); !strings.HasPrefix(got, warnings) || (got == "") != (warnings == "") {
					t.Errorf("got warnings %q, want %q", got, warnings)
				}
				expected := "# HELP outboard_ledger_forbidden_deletions Unneeded allocations and ledgers that a missing permission keeps.\n" +
					"# TYPE outboard_ledger_forbidden_deletions gauge\noutboard_ledger_forbidden_deletions " + count + "\n"
				if err := testutil.GatherAndCompare(k.metrics, strings.NewReader(expected), "outboard_ledger_forbidden_deletions"); err != nil {
					t.Error(err)
				}
			}
			stand("0", 0, "")
			api.without = tc.without
			sweeps(10)
			stand("1", 1, "ledgers: cannot delete unneeded allocations or ledgers (1): grant the permission \""+tc.without+"\": ")
			if w.server.ledgers[ledger.Name(gpuOnA)] == nil {
				t.Fatal("the ledger does not exist")
			}
			api.without = ""
			sweeps(10)
			stand("0", 1, "")
			if w.server.ledgers[ledger.Name(gpuOnA)] != nil {
				t.Error("the ledger of a deleted node still exists")
			}
			reason := "reclaimed"
			if tc.deleted {
				reason = "finished"
			}
			expected := "# HELP outboard_ledger_released_allocations_total Allocations released in the background, by reason (finished, reclaimed).\n" +
				"# TYPE outboard_ledger_released_allocations_total counter\noutboard_ledger_released_allocations_total{reason=\"" + reason + "\"} 1\n"
			if err := testutil.GatherAndCompare(k.metrics, strings.NewReader(expected), "outboard_ledger_released_allocations_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

// unserved is an API server without the resource.
type unserved struct {
	*server
	gone          bool
	asked         atomic.Int64
	read, created error
}

func (u *unserved) GetLedger(ctx context.Context, name string) (*ledger.Object, error) {
	if u.asked.Add(1); u.gone {
		return nil, u.read
	}
	return u.server.GetLedger(ctx, name)
}

func (u *unserved) PutLedger(ctx context.Context, o *ledger.Object) (*ledger.Object, error) {
	u.asked.Add(1)
	switch {
	case u.gone && o.ResourceVersion == "":
		return nil, u.created
	case u.gone:
		return nil, u.read
	}
	return u.server.PutLedger(ctx, o)
}

// While the API server does not have the resource, an allocation fails immediately and for certain, with
// an error that names the solution; when it has the resource again, allocations succeed.
func TestAllocationsWithoutTheResource(t *testing.T) {
	nowhere := apierrors.NewGenericServerResponse(http.StatusNotFound, "post", ledger.Resource.GroupResource(), "", "404 page not found", 0, true)
	for name, api := range map[string]*unserved{
		"nothing is served there":      {read: nowhere, created: nowhere},
		"no object is found":           {read: notFound("l"), created: notFound("l")},
		"the definition is terminated": {read: notFound("l"), created: apierrors.NewMethodNotSupported(ledger.Resource.GroupResource(), "create")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			api.server = w.server
			k := keep(t, api, w.server)
			allocation := func(uid types.UID) error {
				_, err := k.Allocate(t.Context(), gpuOnA, w.server.addPod(uid), "a", choose(w.capacity[gpuOnA], 3))
				return err
			}
			if err := allocation("before"); err != nil { // so that the Keeper has a version of the ledger
				t.Fatal(err)
			}
			clear(w.server.ledgers)
			api.gone = true
			api.asked.Store(0)
			err := allocation("during")
			if !errors.Is(err, ledger.ErrNotServed) || !strings.Contains(err.Error(), "kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml") || strings.Contains(err.Error(), "not known") {
				t.Errorf("got error %v", err)
			}
			if asked := api.asked.Load(); asked > 3 {
				t.Errorf("got %d requests for one allocation", asked)
			}
			api.gone = false
			if err := allocation("after"); err != nil {
				t.Errorf("when the resource is back: %v", err)
			}
			if held := w.server.ledgers[ledger.Name(gpuOnA)].Spec.Pods; len(held) != 1 || held[0].UID != "after" {
				t.Errorf("the ledger holds %v", held)
			}
		})
	}
}

// notBefore chooses as choose does, for an allocation that is later than the time.
func notBefore(choose func(*snapshot.Ledger, time.Time) (policy.Allocation, error), at time.Time) func(*snapshot.Ledger, time.Time) (policy.Allocation, error) {
	return func(l *snapshot.Ledger, now time.Time) (policy.Allocation, error) {
		c, err := choose(l, now)
		c.NotBefore = at
		return c, err
	}
}

// An allocation is never earlier than its pod, nor than the time that choose returns, whatever this
// process's clock shows.
func TestAllocationsOfAClockThatIsBehind(t *testing.T) {
	w := newWorld(t, 1)
	created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	k := keep(t, w.server, w.server, func(o *ledger.Options) { o.Now = func() time.Time { return created.Add(-time.Hour) } })
	for i, tc := range []struct{ created, notBefore, want time.Time }{
		{created, time.Time{}, created},
		{created.Add(-time.Hour), time.Time{}, created.Add(time.Microsecond)}, // the previous allocation has the time created
		{created, created.Add(time.Minute), created.Add(time.Minute + time.Microsecond)},
	} {
		pod := w.server.addPod(types.UID(rune('a' + i)))
		pod.CreationTimestamp = metav1.Time{Time: tc.created}
		held, err := k.Allocate(t.Context(), gpuOnA, pod, "a", notBefore(choose(w.capacity[gpuOnA], 1), tc.notBefore))
		if err != nil || !held.At.Equal(tc.want) {
			t.Errorf("allocation %d has time %v, want %v (%v)", i, held.At, tc.want, err)
		}
	}
}
