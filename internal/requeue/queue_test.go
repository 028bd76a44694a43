package requeue

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
)

// A result for a pod is ignored if the queue entry of the pod has changed since: the pod has passed, or was rejected again.
func TestNewerResultWins(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	p := id{"/", "p"}
	for name, happens := range map[string]func(*queue){
		"passed": func(q *queue) { q.passed(p) },
		"rejected": func(q *queue) {
			q.rejected(p, pod, nodes{rows: []uint64{2}}, 0, decision.Rejection{}, evaluation{freed: 2}, now)
		},
	} {
		q := &queue{pods: map[id]*pendingPod{}}
		q.rejected(p, pod, nodes{rows: []uint64{1}}, 0, decision.Rejection{}, evaluation{freed: 1}, now)
		found, _ := q.due(now)
		happens(q)
		newer := q.pods[p]
		if q.requeue(found[0], "", now) || q.current != nil {
			t.Errorf("%s in the meantime, but the pod was requeued", name)
		}
		q.stillRejected(found[0], evaluation{freed: 3})
		q.remove(found[0])
		if q.pods[p] != newer {
			t.Errorf("%s in the meantime, but the queue lost that", name)
		}
	}
}

func TestBackoffIsBounded(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: firstBackoff, 1: firstBackoff, 2: 2 * firstBackoff, 9: 256 * time.Second, 10: maxBackoff, 1 << 40: maxBackoff} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures: got %v, want %v", failures, got, want)
		}
	}
}
