package wakeup

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxWaiting bounds how many pods are remembered: with 5,000 nodes, one takes about 1 KiB.
	maxWaiting = 10_000
	// firstBackoff and maxBackoff bound how long a pod is left alone after it was woken.
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// patience is how long the fate of a pod that was woken is awaited before the next is.
	patience = time.Second
)

// id is a pod that waits because of one profile.
type id struct {
	profile string
	uid     types.UID
}

// judgement is by what a pod was judged.
type judgement struct {
	generation uint64 // of the View
	engine     *engine.Engine
}

// waiting is a pod that waits. It never changes; what is known anew is another one.
type waiting struct {
	id
	namespace, name string
	priority        int32
	created         time.Time

	since  time.Time // when it was first rejected
	asked  time.Time // when kube-scheduler asked last
	nodes  nodes
	judged judgement // says that it fits nowhere
	wakes  int       // how often it was woken
	vain   int       // how often since it was last left alone for long
	woken  time.Time // when it was last
	next   time.Time // not to be woken before
}

// nodes are the nodes that kube-scheduler asked about.
//
// When a node is deleted, another one may get its row, and is then taken for one asked about. A new node makes
// kube-scheduler try all pods, so that does not last.
type nodes struct {
	rows  []uint64 // a bit for each row of the View
	names []string // of those that were not in the View
}

func nodesOf(req engine.Request, unknown []string) nodes {
	n := nodes{rows: make([]uint64, (req.View.Rows()+63)/64), names: unknown}
	for _, node := range req.Nodes {
		switch {
		case node == nil:
		case node.Row() < 0:
			n.names = append(n.names, node.Name)
		default:
			n.rows[node.Row()/64] |= 1 << (node.Row() % 64)
		}
	}
	return n
}

// in appends those of the nodes that are in the view.
func (n nodes) in(view *snapshot.View, dst []*snapshot.Node) []*snapshot.Node {
	for i, bits := range n.rows {
		for row := i * 64; bits != 0; row, bits = row+1, bits>>1 {
			if bits&1 == 0 {
				continue
			}
			if node := view.At(row); node != nil {
				dst = append(dst, node)
			}
		}
	}
	for _, name := range n.names {
		if node := view.Node(name); node != nil {
			dst = append(dst, node)
		}
	}
	return dst
}

// wake is a pod that was woken and whose fate is not known yet.
type wake struct {
	id
	at   time.Time
	fits bool // a filter call has let it pass; now it is to be bound
}

// queue is the pods that wait, and the one that is being woken. It has no clock; its owner guards it.
type queue struct {
	pods    map[id]*waiting
	current *wake
}

// rejected takes that the pod fits on none of the nodes. known is false if there is no room to remember it; vain says that it
// was being woken.
func (q *queue) rejected(i id, pod *corev1.Pod, n nodes, j judgement, now time.Time) (known, vain bool) {
	if vain = q.current != nil && q.current.id == i; vain {
		vain = !q.current.fits
		q.current = nil
	}
	next := waiting{id: i, namespace: pod.Namespace, name: pod.Name, created: pod.CreationTimestamp.Time, since: now}
	if before := q.pods[i]; before != nil {
		next = *before
		if slices.Equal(n.rows, before.nodes.rows) {
			n.rows = before.nodes.rows // one copy is enough
		}
	} else if len(q.pods) >= maxWaiting {
		return false, vain
	}
	if next.priority = 0; pod.Spec.Priority != nil {
		next.priority = *pod.Spec.Priority
	}
	next.asked, next.nodes, next.judged = now, n, j
	q.pods[i] = &next
	return true, vain
}

// passed takes that the pod fits on a node. It returns whether the pod was being woken.
func (q *queue) passed(i id) (woken bool) {
	delete(q.pods, i)
	if q.current == nil || q.current.id != i || q.current.fits {
		return false
	}
	q.current.fits = true
	return true
}

// judgedAgain takes that the pod still fits nowhere, unless something newer is known about it.
func (q *queue) judgedAgain(w *waiting, j judgement) {
	if q.pods[w.id] == w {
		next := *w
		next.judged = j
		q.pods[w.id] = &next
	}
}

// forget drops the pod, unless something newer is known about it.
func (q *queue) forget(w *waiting) {
	if q.pods[w.id] == w {
		delete(q.pods, w.id)
	}
}

// wake makes the pod the one that is being woken. It returns false if something newer is known about it.
func (q *queue) wake(w *waiting, now time.Time) bool {
	if q.pods[w.id] != w {
		return false
	}
	next := *w
	if now.Sub(w.woken) > 2*backoff(w.vain) {
		next.vain = 0
	}
	next.wakes++
	next.vain++
	next.woken, next.next = now, now.Add(backoff(next.vain))
	q.pods[w.id] = &next
	q.current = &wake{id: w.id, at: now}
	return true
}

// backoff is how long a pod that was woken in vain so often is left alone.
func backoff(vain int) time.Duration {
	return min(firstBackoff<<min(max(vain-1, 0), 20), maxBackoff)
}

// due returns the pods that may be woken, the most urgent first, and when the next of the others may be; zero if there are
// none.
func (q *queue) due(now time.Time) (pods []*waiting, next time.Time) {
	for _, w := range q.pods {
		if !w.next.After(now) {
			pods = append(pods, w)
		} else if next.IsZero() || w.next.Before(next) {
			next = w.next
		}
	}
	slices.SortFunc(pods, func(a, b *waiting) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.vain, b.vain), a.created.Compare(b.created),
			cmp.Compare(a.uid, b.uid), cmp.Compare(a.profile, b.profile))
	})
	return pods, next
}
