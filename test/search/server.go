package search

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
)

// errLost is what a sender learns that gives up.
var errLost = errors.New("no response")

// verb is what a request asks of the API server.
type verb int

const (
	getPod verb = iota
	touchPod
	bindPod
	annotatePod // only with the mutation AnnotationsAfterBinding
	getLedger
	putLedger
)

// request is a request to the API server, with its response once it has arrived. It is immutable: both arrive in copies.
type request struct {
	verb    verb
	object  int // the index of the pod or ledger
	number  int // of a LivePod or TouchPod; 0: it is neither
	binding binder.Binding
	put     *ledger.Object
	arrived bool
	pod     *corev1.Pod    // the response; nil: gone
	ledger  *ledger.Object // the response
	err     error          // the response
}

func (r *request) reads() bool { return r.verb == getPod || r.verb == getLedger }

func (r *request) text(s *Scope) string {
	switch r.verb {
	case getPod:
		return "get pod " + s.pod(r.object)
	case touchPod:
		return "change pod " + s.pod(r.object)
	case bindPod:
		text := fmt.Sprintf("bind pod %s to %s", s.pod(r.object), r.binding.Node)
		if r.binding.ResourceVersion != "" {
			text += " if its version is " + r.binding.ResourceVersion
		}
		return text
	case annotatePod:
		return "annotate pod " + s.pod(r.object)
	case getLedger:
		return "get the ledger of " + s.ledger(r.object)
	}
	holders := ""
	for i := range r.put.Spec.Pods {
		holders += " " + r.put.Spec.Pods[i].Name
	}
	if holders == "" {
		holders = " nobody"
	}
	return fmt.Sprintf("put the ledger of %s with allocations of%s if its version is %q", s.ledger(r.object), holders, r.put.ResourceVersion)
}

// outcome describes the response.
func (r *request) outcome() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.verb == getLedger || r.verb == putLedger:
		return "version " + r.ledger.ResourceVersion
	case r.verb == bindPod || r.verb == annotatePod:
		return "ok"
	case r.pod == nil:
		return "gone"
	case r.pod.Spec.NodeName != "":
		return fmt.Sprintf("version %s, on %s", r.pod.ResourceVersion, r.pod.Spec.NodeName)
	}
	return "version " + r.pod.ResourceVersion
}

var (
	pods    = corev1.Resource("pods")
	ledgers = ledger.Resource.GroupResource()
)

// serve has the request arrive at the API server. It changes the World, and returns the request with its response.
func (w *World) serve(r request) *request {
	r.arrived = true
	switch r.verb {
	case getPod:
		r.pod = w.pods[r.object]
	case getLedger:
		if r.ledger = w.ledgers[r.object]; r.ledger == nil {
			r.err = apierrors.NewNotFound(ledgers, ledger.Name(w.scope.keys[r.object]))
		}
	case touchPod:
		if pod := w.pods[r.object]; pod != nil && w.scope.Mutation != ReleaseWithoutTouch {
			w.setPod(r.object, annotated(pod, cluster.ReleaseAnnotation, "now"))
		}
		r.pod = w.pods[r.object]
	case bindPod, annotatePod:
		r.err = w.bind(r)
	case putLedger:
		r.ledger, r.err = w.put(r)
	}
	return &r
}

// annotated returns a copy of the pod with the annotation.
func annotated(pod *corev1.Pod, key, value string) *corev1.Pod {
	changed := *pod
	changed.Annotations = map[string]string{key: value}
	for k, v := range pod.Annotations {
		if k != key {
			changed.Annotations[k] = v
		}
	}
	return &changed
}

// bind is what the API server does with a Binding.
func (w *World) bind(r request) error {
	pod, b := w.pods[r.object], r.binding
	switch {
	case pod == nil && w.holds(b.Name):
		return apierrors.NewConflict(pods, b.Name, errors.New("its UID is another one"))
	case pod == nil:
		return apierrors.NewNotFound(pods, b.Name)
	case r.verb == annotatePod:
	case pod.Spec.NodeName != "":
		return apierrors.NewConflict(pods, b.Name, fmt.Errorf("it is bound to %s", pod.Spec.NodeName))
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(pods, b.Name, fmt.Errorf("its version is %s", pod.ResourceVersion))
	}
	changed := *pod
	changed.Spec.NodeName = b.Node
	if r.verb == annotatePod || w.scope.Mutation != AnnotationsAfterBinding {
		for key, value := range b.Annotations {
			changed = *annotated(&changed, key, value)
		}
	}
	w.setPod(r.object, &changed)
	return nil
}

// holds reports whether the API server has a pod with the name.
func (w *World) holds(name string) bool {
	return slices.ContainsFunc(w.pods, func(pod *corev1.Pod) bool { return pod != nil && pod.Name == name })
}

// put is what the API server does with a ledger. It does not have the validation rules of the CRD, which would hide what the search is to
// find.
func (w *World) put(r request) (*ledger.Object, error) {
	current := w.ledgers[r.object]
	switch {
	case w.scope.Mutation == PoolWithoutVersion && r.put.Spec.Node == "":
	case current == nil && r.put.ResourceVersion != "":
		return nil, apierrors.NewNotFound(ledgers, r.put.Name)
	case current != nil && r.put.ResourceVersion == "":
		return nil, apierrors.NewAlreadyExists(ledgers, r.put.Name)
	case current != nil && r.put.ResourceVersion != current.ResourceVersion:
		return nil, apierrors.NewConflict(ledgers, r.put.Name, fmt.Errorf("its version is %s", current.ResourceVersion))
	}
	stored := r.put.DeepCopyObject().(*ledger.Object)
	stored.ObjectMeta = metav1.ObjectMeta{Name: r.put.Name, UID: "ledger", ResourceVersion: w.version(), Generation: int64(w.versions)}
	w.ledgers[r.object] = stored
	for i := range w.replicas {
		rep := &w.replicas[i]
		rep.ledgerEvents = append(rep.ledgerEvents, event[*ledger.Object]{r.object, stored})
	}
	return stored, nil
}

// setPod stores a changed pod; nil: it is deleted. The watches will show it.
func (w *World) setPod(p int, pod *corev1.Pod) {
	if pod != nil {
		pod.ResourceVersion = w.version()
	}
	w.pods[p] = pod
	if pod != nil && pod.Spec.NodeName != "" {
		w.was[p] = pod
	}
	if pod == nil && w.scope.Mutation == DeletionNotShown {
		return
	}
	for i := range w.replicas {
		rep := &w.replicas[i]
		rep.podEvents = append(rep.podEvents, event[*corev1.Pod]{p, pod})
	}
}

// replace replaces the device of the node. The watches will show it.
func (w *World) replace(n int) {
	w.replacements++
	w.nodes[n] = w.scope.newNode(n, w.replacements)
	for i := range w.replicas {
		rep := &w.replicas[i]
		rep.nodeEvents = append(rep.nodeEvents, event[*corev1.Node]{n, w.nodes[n]})
	}
}

// delete deletes the pod, or, if it is on a node, has it terminate.
func (w *World) delete(p int) {
	pod := w.pods[p]
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
	case pod.Spec.NodeName == "":
		w.setPod(p, nil)
	default:
		changed := *pod
		changed.DeletionTimestamp = &metav1.Time{Time: epoch}
		w.setPod(p, &changed)
	}
}

func (w *World) version() string {
	w.versions++
	return strconv.Itoa(w.versions)
}

// futile reports whether the request will have no effect whenever it arrives: versions do not return, and a pod that is bound or gone stays so.
func (w *World) futile(r *request) bool {
	switch r.verb {
	case getPod, getLedger:
		return true
	case touchPod, annotatePod:
		return w.pods[r.object] == nil || w.scope.Mutation == ReleaseWithoutTouch
	case bindPod:
		pod := w.pods[r.object]
		return pod == nil || pod.Spec.NodeName != "" ||
			r.binding.ResourceVersion != "" && r.binding.ResourceVersion != pod.ResourceVersion
	}
	current := w.ledgers[r.object]
	return current == nil && r.put.ResourceVersion != "" || current != nil && r.put.ResourceVersion != current.ResourceVersion
}
