package wakeup

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What was found out about a pod counts for nothing when something newer is known about it: it has passed in the meantime, or
// was rejected once more.
func TestNewerKnowledgeWins(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	p := id{"/", "p"}
	for name, happens := range map[string]func(*queue){
		"passed":   func(q *queue) { q.passed(p) },
		"rejected": func(q *queue) { q.rejected(p, pod, nodes{rows: []uint64{2}}, judgement{generation: 2}, now) },
	} {
		q := &queue{pods: map[id]*waiting{}}
		q.rejected(p, pod, nodes{rows: []uint64{1}}, judgement{generation: 1}, now)
		found, _ := q.due(now)
		happens(q)
		newer := q.pods[p]
		if q.wake(found[0], now) || q.current != nil {
			t.Errorf("%s in the meantime, and woken", name)
		}
		q.judgedAgain(found[0], judgement{generation: 3})
		q.forget(found[0])
		if q.pods[p] != newer {
			t.Errorf("%s in the meantime, and that was forgotten", name)
		}
	}
}

func TestBackoffIsBounded(t *testing.T) {
	for vain, want := range map[int]time.Duration{0: firstBackoff, 1: firstBackoff, 2: 2 * firstBackoff, 9: 256 * time.Second, 10: maxBackoff, 1 << 40: maxBackoff} {
		if got := backoff(vain); got != want {
			t.Errorf("after %d times in vain: %v, want %v", vain, got, want)
		}
	}
}
