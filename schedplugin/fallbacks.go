package schedplugin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// mostFallbacks is how many pods, and how many controllers, fallbacks remembers.
	mostFallbacks = 1000
	// mostSkipped is for how many attempts in a row the pods of a controller get all nodes at most.
	mostSkipped = 64
)

// fallbacks remembers for which pods none of the named nodes was usable. Such a pod gets all nodes until it is placed. Its UID identifies
// it: kube-scheduler writes a condition to the pod after the failed attempt, so that it has another resourceVersion. The next 1, 2, 4 and
// so on attempts for pods of the same controller get all nodes as well. The zero value is ready to use.
type fallbacks struct {
	mu          sync.Mutex
	pods        map[types.UID]struct{}
	controllers map[types.UID]*skips
	waiting     []*corev1.Pod // in the backoff queue since the latest attempt
}

// skips are attempts for the pods of a controller that get all nodes.
type skips struct{ left, next int }

func controllerOf(pod *corev1.Pod) types.UID {
	if c := metav1.GetControllerOfNoCopy(pod); c != nil {
		return c.UID
	}
	return ""
}

// allow reports whether nodes may be named for the pod in the attempt that begins.
func (f *fallbacks) allow(pod *corev1.Pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, failed := f.pods[pod.UID]; failed {
		return false
	}
	if len(f.controllers) > 0 {
		if s := f.controllers[controllerOf(pod)]; s != nil && s.left > 0 {
			s.left--
			return false
		}
	}
	return true
}

// failed remembers the pod, and forgets all others if they are too many: some may no longer exist.
func (f *fallbacks) failed(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pods) >= mostFallbacks || f.pods == nil {
		f.pods = map[types.UID]struct{}{}
	}
	if len(f.controllers) >= mostFallbacks || f.controllers == nil {
		f.controllers = map[types.UID]*skips{}
	}
	f.pods[pod.UID] = struct{}{}
	f.waiting = append(f.waiting, pod)
	if c := controllerOf(pod); c != "" {
		s := f.controllers[c]
		if s == nil {
			s = &skips{next: 1}
			f.controllers[c] = s
		}
		s.left, s.next = s.next, min(2*s.next, mostSkipped)
	}
}

// placed forgets the pod and, if it is on a node that was named, that naming nodes has failed for its controller.
func (f *fallbacks) placed(pod *corev1.Pod, named bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, pod.UID)
	if named && len(f.controllers) > 0 {
		delete(f.controllers, controllerOf(pod))
	}
}

// take returns the pods that wait in the backoff queue, once.
func (f *fallbacks) take() []*corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting
	f.waiting = nil
	return waiting
}
