package binder_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/snapshot"
)

// claimViews are the views of a cluster in which ResourceClaims come.
type claimViews struct {
	mu      sync.Mutex
	builder snapshot.Builder
	next    chan struct{}
}

func (v *claimViews) View() *snapshot.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.builder.View()
}

func (v *claimViews) Superseded(*snapshot.View) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.next
}

func (v *claimViews) come(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.builder.SetResourceClaim(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	close(v.next)
	v.next = make(chan struct{})
}

// podWithClaims names two claims, one of which was made from a template.
func podWithClaims() *corev1.Pod {
	own, made, template := "own", "made", "template"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: &own}, {Name: "b", ResourceClaimTemplateName: &template}, {Name: "not-made", ResourceClaimTemplateName: &template},
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: &made}}
	return pod
}

// TestAwaitClaims runs with a simulated clock.
func TestAwaitClaims(t *testing.T) {
	const ms, never = time.Millisecond, time.Hour
	for _, tc := range []struct {
		name             string
		own, made, gives time.Duration // when the claims come, and the caller gives up
		first, second    time.Duration // how long the first and the second call take
	}{
		{"known", 0, 0, never, 0, 0},
		{"both come", 100 * ms, 200 * ms, never, 200 * ms, 0},
		{"one comes", 100 * ms, never, never, 500 * ms, 0},
		{"none comes", never, never, never, 500 * ms, 0},
		{"the caller gives up", never, never, 50 * ms, 50 * ms, 450 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				views, awaited := &claimViews{next: make(chan struct{})}, new(binder.Awaited)
				for name, at := range map[string]time.Duration{"own": tc.own, "made": tc.made} {
					if at == 0 {
						views.come(name)
					} else if at != never {
						time.AfterFunc(at, func() { views.come(name) })
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.gives)
				defer cancel()
				started := time.Now()
				awaited.Claims(ctx, views, podWithClaims())
				first := time.Since(started)
				awaited.Claims(t.Context(), views, podWithClaims())
				if second := time.Since(started) - first; first != tc.first || second != tc.second {
					t.Errorf("the calls took %s and %s, want %s and %s", first, second, tc.first, tc.second)
				}
			})
		})
	}
}

// A caller that names thousands of claims that do not exist fills no memory, and waits for a bounded number of them.
func TestAwaitClaimsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		views, awaited := &claimViews{next: make(chan struct{})}, new(binder.Awaited)
		waited := func(pod *corev1.Pod) time.Duration {
			started := time.Now()
			awaited.Claims(t.Context(), views, pod)
			return time.Since(started)
		}
		many := podWithClaims()
		many.Spec.ResourceClaims = nil
		for i := range 10_000 {
			name := fmt.Sprintf("missing-%d", i)
			many.Spec.ResourceClaims = append(many.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		}
		first, second := waited(many), waited(podWithClaims())
		time.Sleep(time.Hour)
		if later := waited(podWithClaims()); first != 500*time.Millisecond || second != 0 || later != 500*time.Millisecond {
			t.Errorf("the calls took %s, %s and, an hour later, %s", first, second, later)
		}
	})
}
