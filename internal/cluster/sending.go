package cluster

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/binder"
)

// sending is a Binding from its request to its outcome. It is a value without client, clock or goroutine: next returns the following state,
// and Bind performs the request of each state.
//
//	postBinding ── accepted, and the watch has shown the pod ──────────────► end: bound
//	            ── accepted before the watch has shown the pod ────────────► readPod
//	            ── not sent, or rejected ──────────────────────────────────► end: not bound
//	            ── a conflict, or no response that determines the outcome ─► readPod
//	readPod     ── the Binding was accepted, or the pod is on the node ────► end: bound
//	            ── gone, being deleted, on another node, or a conflict ────► end: not bound
//	            ── not bound, or it cannot be read ────────────────────────► end: the outcome is unknown
//
// testdata/sending.txt has a history of each transition.
type sending struct {
	binding  binder.Binding
	request  sendRequest
	accepted bool        // the API server has accepted the Binding
	err      error       // of the last request
	pod      *corev1.Pod // in the end, the pod as it is bound; nil: it is not bound, or gone already
	failure  *BindError  // in the end; nil: the pod is bound
}

// sendRequest is what a sending needs next.
type sendRequest string

const (
	postBinding sendRequest = ""
	readPod     sendRequest = "readPod"
	ended       sendRequest = "ended"
)

// sendResponse is the response to a request.
type sendResponse struct {
	sent bool        // to postBinding: the Binding may have left this process
	pod  *corev1.Pod // to postBinding, as the watch shows it; to readPod, as the API server has it; nil: not there
	err  error
}

// next returns the state after the response to the request.
func (s sending) next(r sendResponse) sending {
	asked, posted := s.request, s.err
	s.err = r.err
	switch asked {
	case postBinding:
		switch s.accepted = r.err == nil; {
		case s.accepted && r.pod != nil:
			return s.end(asBound(r.pod, s.binding), nil)
		case s.accepted:
			s.request = readPod
		case !r.sent:
			return s.end(nil, notSent(s.binding, r.err))
		case rejected(r.err):
			failure := fail(s.binding, notBound(s.binding), r.err)
			failure.Gone = apierrors.IsNotFound(r.err)
			return s.end(nil, failure)
		default:
			s.request = readPod
		}
		return s
	case readPod:
		switch {
		case s.accepted && r.err != nil:
			unread := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.binding.Namespace, Name: s.binding.Name, UID: s.binding.UID}}
			return s.end(asBound(&unread, s.binding), nil)
		case s.accepted:
			return s.end(r.pod, nil)
		}
		if failure := classify(s.binding, posted, r.pod, r.err); failure != nil {
			return s.end(nil, failure)
		}
		return s.end(r.pod, nil)
	}
	panic("cluster: a response to a Binding whose outcome is known")
}

func (s sending) end(pod *corev1.Pod, failure *BindError) sending {
	s.request, s.pod, s.failure = ended, pod, failure
	return s
}

// outcome is that of a sending at its end.
func (s sending) outcome() string {
	switch {
	case s.failure != nil:
		return s.failure.outcome()
	case s.accepted:
		return outcomeSuccess
	}
	return outcomeAlreadyBound
}

// classify returns the outcome of a Binding that ended with err, given the pod as read from the API
// server after that. Nil: the pod is bound to the node.
func classify(b binder.Binding, err error, pod *corev1.Pod, lookupErr error) *BindError {
	unknown := func(text string, err error) *BindError {
		failure := fail(b, fmt.Sprintf("it is unknown whether %s was bound to node %q%s", describe(b), b.Node, text), err)
		failure.Unknown = true
		return failure
	}
	bound, cannot := binder.AlreadyBound(b.Namespace, b.Name, b.UID, b.Node, pod)
	switch {
	case lookupErr != nil:
		return unknown("", fmt.Errorf("%w; reading the pod: %w", err, lookupErr))
	case bound:
		return nil
	case cannot != nil:
		failure := fail(b, cannot.Error(), nil)
		if pod != nil {
			failure.BoundTo = pod.Spec.NodeName
		}
		failure.Gone = failure.BoundTo == ""
		return failure
	case apierrors.IsConflict(err):
		failure := fail(b, notBound(b), err)
		failure.Changed = b.ResourceVersion != "" && pod.ResourceVersion != b.ResourceVersion
		return failure
	default:
		return unknown("; it is not yet", err)
	}
}

func notSent(b binder.Binding, err error) *BindError {
	failure := fail(b, notBound(b)+": the Binding was not sent", err)
	failure.NotSent = true
	return failure
}

func notBound(b binder.Binding) string {
	return fmt.Sprintf("%s was not bound to node %q", describe(b), b.Node)
}

func fail(b binder.Binding, text string, err error) *BindError {
	return &BindError{Binding: b, Err: err, text: text}
}

func describe(b binder.Binding) string { return "pod " + b.Namespace + "/" + b.Name }

// asBound returns the pod as the Binding has changed it; its resourceVersion is unknown.
func asBound(pod *corev1.Pod, b binder.Binding) *corev1.Pod {
	bound := *pod
	bound.ResourceVersion = ""
	bound.Spec.NodeName = b.Node
	bound.Status.NominatedNodeName = ""
	bound.Annotations = make(map[string]string, len(pod.Annotations)+len(b.Annotations))
	maps.Copy(bound.Annotations, pod.Annotations)
	maps.Copy(bound.Annotations, b.Annotations)
	return &bound
}
