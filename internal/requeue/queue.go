package requeue

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

const (
	// maxPending bounds the number of pods in the queue: with 5,000 nodes, one takes about 1 KiB.
	maxPending = 10_000
	// firstBackoff and maxBackoff bound the time between two requeues of a pod.
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// maxWait is how long the Requeuer waits for the outcome of a requeue before the next.
	maxWait = time.Second
)

// id is a pod that one profile rejected.
type id struct {
	profile string
	uid     types.UID
}

// evaluation identifies what a pod was evaluated with.
type evaluation struct {
	freed  uint64 // of the View
	engine *engine.Engine
}

// pendingPod is a pod that fits on no node. It is immutable: every change replaces it.
type pendingPod struct {
	id
	namespace, name string
	priority        int32
	created         time.Time

	Status
	nodes     nodes
	samples   int        // how many of the size of the call all nodes make; 0: it was for all that pass
	tried     []string   // the nodes to which the Requeuer has nominated the pod
	evaluated evaluation // the last one, by which it fits on no node
	failures  int        // requeues since the backoff last started again
	notBefore time.Time  // the end of the backoff
}

// nodes are the nodes that kube-scheduler asked about.
//
// Rows are reused: a new node in the row of a deleted one counts as asked about. At worst it makes
// the pod be retried although kube-scheduler itself excludes that node; the call of this retry
// names the nodes anew.
type nodes struct {
	rows  []uint64 // a bit for each row of the View
	names []string // of the nodes that were not in the View
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

func (n nodes) len() int {
	count := len(n.names)
	for _, row := range n.rows {
		count += bits.OnesCount64(row)
	}
	return count
}

// in appends the nodes that are in the view.
func (n nodes) in(view *snapshot.View, dst []*snapshot.Node) []*snapshot.Node {
	for i, set := range n.rows {
		for ; set != 0; set &= set - 1 {
			if node := view.At(i*64 + bits.TrailingZeros64(set)); node != nil {
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

// requeuedPod is a pod that was requeued and whose outcome is not known yet.
type requeuedPod struct {
	id
	at   time.Time
	fits bool // a filter call has found a node; the pod is about to be bound
}

// queue holds the pending pods, and the one being requeued. It has no clock; its owner synchronizes
// access. What always holds: by its last evaluation, a pending pod fits on none of its nodes; and
// at most one pod is being requeued.
type queue struct {
	pods    map[id]*pendingPod
	current *requeuedPod
	version uint64 // counts the changes of what Status returns
}

// rejected records that the pod fits on none of the nodes. added is false if the queue is full;
// wasRequeued reports whether the pod was being requeued and no node had fit since.
func (q *queue) rejected(i id, pod *corev1.Pod, n nodes, samples int, main decision.Rejection, e evaluation, now time.Time) (added, wasRequeued bool) {
	if wasRequeued = q.current != nil && q.current.id == i; wasRequeued {
		wasRequeued = !q.current.fits
		q.current = nil
	}
	next := pendingPod{id: i, namespace: pod.Namespace, name: pod.Name, created: pod.CreationTimestamp.Time, Status: Status{Since: now}}
	if before := q.pods[i]; before != nil {
		next = *before
		if slices.Equal(n.rows, before.nodes.rows) {
			n.rows = before.nodes.rows // share the memory
		}
	} else if len(q.pods) >= maxPending {
		return false, wasRequeued
	}
	next.priority = corev1helpers.PodPriority(pod)
	next.LastCall, next.Nodes, next.Rejection = now, n.len(), main
	next.nodes, next.evaluated, next.samples = n, e, samples
	if after := now.Add(firstBackoff); samples > 0 && next.notBefore.Before(after) {
		next.notBefore = after // when the attempt fails, kube-scheduler removes a nomination
	}
	q.pods[i] = &next
	q.version++
	return true, wasRequeued
}

// passed records that the pod fits on a node. It reports whether the pod was being requeued.
func (q *queue) passed(i id) (wasRequeued bool) {
	q.delete(i)
	if q.current == nil || q.current.id != i || q.current.fits {
		return false
	}
	q.current.fits = true
	return true
}

// stillRejected records that the pod still fits on no node, unless the pod has changed in the queue
// since.
func (q *queue) stillRejected(p *pendingPod, e evaluation) {
	if q.pods[p.id] == p {
		next := *p
		next.evaluated = e
		q.pods[p.id] = &next
	}
}

// remove removes the pod, unless it has changed in the queue since.
func (q *queue) remove(p *pendingPod) {
	if q.pods[p.id] == p {
		q.delete(p.id)
	}
}

func (q *queue) delete(i id) {
	if _, ok := q.pods[i]; ok {
		delete(q.pods, i)
		q.version++
	}
}

// requeue makes the pod the one being requeued, nominated to the node; "": to none. It returns false
// if the pod has changed in the queue since.
func (q *queue) requeue(p *pendingPod, node string, now time.Time) bool {
	if q.pods[p.id] != p {
		return false
	}
	next := *p
	if now.Sub(p.LastRequeued) > 2*backoff(p.failures) {
		next.failures = 0
	}
	if now.Sub(p.LastRequeued) > 2*maxBackoff {
		next.tried = nil
	}
	next.Requeues++
	if node != "" && p.samples > 0 && !slices.Contains(p.tried, node) {
		next.tried = append(slices.Clip(next.tried), node)
	} else {
		next.failures++
	}
	next.LastRequeued, next.notBefore = now, now.Add(backoff(next.failures))
	q.pods[p.id] = &next
	q.version++
	q.current = &requeuedPod{id: p.id, at: now}
	return true
}

// backoff returns the time until a pod may be requeued again after this many failures.
func backoff(failures int) time.Duration {
	return min(firstBackoff<<min(max(failures-1, 0), 20), maxBackoff)
}

// due returns the pods whose backoff has ended, the most urgent first, and when the next backoff of
// the others ends; zero if there are no others.
func (q *queue) due(now time.Time) (pods []*pendingPod, next time.Time) {
	for _, p := range q.pods {
		if !p.notBefore.After(now) {
			pods = append(pods, p)
		} else if next.IsZero() || p.notBefore.Before(next) {
			next = p.notBefore
		}
	}
	slices.SortFunc(pods, func(a, b *pendingPod) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.failures, b.failures), a.created.Compare(b.created),
			cmp.Compare(a.uid, b.uid), cmp.Compare(a.profile, b.profile))
	})
	return pods, next
}
