package schedplugin

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// A pod counts from its reservation until the reservation is reverted, or the pod is bound and a View shows it or the pod is gone. An
// attempt ends all reservations that are over if there is a new View, and otherwise a few attempts together do.
func TestReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		for i := range 3 {
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
		}
		var rs reservations
		cluster := map[types.UID]*corev1.Pod{}
		counted := map[types.UID]int{} // by pod
		reserved := map[types.UID]string{}
		bound := map[types.UID]bool{}
		number := 0
		some := func() types.UID {
			return rapid.SampledFrom(slices.Sorted(maps.Keys(reserved))).Draw(t, "pod")
		}
		over := func(uid types.UID, view *snapshot.View) bool {
			node := view.Node(reserved[uid])
			return bound[uid] && (cluster[uid] == nil || node == nil || node.Has(uid))
		}
		check := func() {
			t.Helper()
			for uid := range reserved {
				if counted[uid] != 1 || rs.of(uid) == nil {
					t.Fatalf("pod %s counts %d times", uid, counted[uid])
				}
			}
			if len(counted) != len(reserved) || len(rs.byUID) != len(reserved) {
				t.Fatalf("%d pods count and %d are reserved, want %d", len(counted), len(rs.byUID), len(reserved))
			}
		}
		attempt := func(view *snapshot.View) {
			rs.endShown(view, func(uid types.UID) *corev1.Pod { return cluster[uid] })
			maps.DeleteFunc(reserved, func(uid types.UID, _ string) bool { return over(uid, view) })
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 1, 20}).Draw(t, "pods") {
					number++
					pod := numbered(number, "")
					uid := pod.UID
					if len(reserved) > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
						uid = some()
					}
					node := fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))
					cluster[uid], reserved[uid], bound[uid] = pod, node, false
					counted[uid]++
					rs.add(&reservation{uid: uid, node: node, known: true, end: func() {
						if counted[uid]--; counted[uid] == 0 {
							delete(counted, uid)
						}
					}})
				}
			},
			"revert": func(t *rapid.T) {
				if len(reserved) > 0 {
					uid := some()
					rs.end(uid)
					delete(reserved, uid)
				}
			},
			"bind": func(t *rapid.T) {
				for range min(len(reserved), rapid.SampledFrom([]int{1, 1, 20}).Draw(t, "pods")) {
					uid := some()
					rs.setBound(uid)
					bound[uid] = true
				}
			},
			"delete": func(t *rapid.T) {
				if len(reserved) > 0 {
					delete(cluster, some())
				}
			},
			"show": func(t *rapid.T) {
				if len(reserved) > 0 {
					uid := some()
					pod := podNamed(string(uid), nil)
					pod.Spec.NodeName = reserved[uid]
					b.SetPod(pod)
				}
			},
			"delete node": func(*rapid.T) { b.DeleteNode("n1") },
			"attempt with a new View": func(*rapid.T) {
				number++
				b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", Labels: map[string]string{"number": fmt.Sprint(number)}}})
				attempt(b.View())
			},
			"attempts with the same View": func(*rapid.T) {
				view := b.View()
				for range len(rs.bound) / checkedBound {
					rs.endShown(view, func(uid types.UID) *corev1.Pod { return cluster[uid] })
				}
				attempt(view)
			},
		})
	})
}

// A pod that no View shows on its node some seconds after it was bound is on another node.
func TestBoundPodsCountForAWhile(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	ended := 0
	var rs reservations
	rs.add(&reservation{uid: "p", node: "n", end: func() { ended++ }})
	rs.setBound("p")
	for _, age := range []time.Duration{shownTimeout / 2, 2 * shownTimeout} {
		rs.of("p").bound = time.Now().Add(-age)
		if rs.endShown(b.View(), nil); (ended == 1) != (age > shownTimeout) {
			t.Errorf("the reservation was ended %d times after %v", ended, age)
		}
	}
}
