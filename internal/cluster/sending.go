package cluster

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/binder"
)

// Sending is a Binding from its request to its outcome. It is a value without client, clock or
// goroutine: Next returns the following state, and Bind performs the request of each state.
//
//	PostBinding ── accepted, and the watch has shown the pod ──────────────► end: bound
//	            ── accepted before the watch has shown the pod ────────────► ReadPod
//	            ── not sent, or rejected ──────────────────────────────────► end: not bound
//	            ── a conflict, or no response that determines the outcome ─► readPod
//	ReadPod     ── the Binding was accepted, or the pod is on the node ────► end: bound
//	            ── gone, being deleted, on another node, or a conflict ────► end: not bound
//	            ── not bound, or it cannot be read ────────────────────────► end: the outcome is unknown
//
// testdata/sending.txt has a history of each transition.
type Sending struct {
	Binding  binder.Binding
	Request  SendRequest
	accepted bool        // the API server has accepted the Binding
	err      error       // of the last request
	Pod      *corev1.Pod // in the end, the pod as it is bound; nil: it is not bound, or gone already
	Failure  *BindError  // in the end; nil: the pod is bound
}

// SendRequest is what a sending needs next.
type SendRequest string

const (
	PostBinding SendRequest = ""
	ReadPod     SendRequest = "readPod"
	Ended       SendRequest = "ended"
)

// SendResponse is the response to a request.
type SendResponse struct {
	Sent bool        // to PostBinding: the Binding may have left this process
	Pod  *corev1.Pod // to PostBinding, as the watch shows it; to ReadPod, as the API server has it; nil: not there
	Err  error
}

// next returns the state after the response to the request.
func (s Sending) Next(r SendResponse) Sending {
	asked, posted := s.Request, s.err
	s.err = r.Err
	switch asked {
	case PostBinding:
		switch s.accepted = r.Err == nil; {
		case s.accepted && r.Pod != nil:
			return s.end(asBound(r.Pod, s.Binding), nil)
		case s.accepted:
			s.Request = ReadPod
		case !r.Sent:
			return s.end(nil, notBound(s.Binding, outcomeNotSent, ": the Binding was not sent", r.Err))
		case apierrors.IsNotFound(r.Err):
			return s.end(nil, notBound(s.Binding, outcomeNotFound, "", r.Err))
		case rejected(r.Err):
			return s.end(nil, notBound(s.Binding, outcomeRejected, "", r.Err))
		default:
			s.Request = ReadPod
		}
		return s
	case ReadPod:
		switch {
		case s.accepted && r.Err != nil:
			unread := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Binding.Namespace, Name: s.Binding.Name, UID: s.Binding.UID}}
			return s.end(asBound(&unread, s.Binding), nil)
		case s.accepted:
			return s.end(r.Pod, nil)
		}
		if failure := classify(s.Binding, posted, r.Pod, r.Err); failure != nil {
			return s.end(nil, failure)
		}
		return s.end(r.Pod, nil)
	}
	panic("cluster: a response to a Binding whose outcome is known")
}

func (s Sending) end(pod *corev1.Pod, failure *BindError) Sending {
	s.Request, s.Pod, s.Failure = Ended, pod, failure
	return s
}

// outcome is that of a sending at its end.
func (s Sending) outcome() string {
	switch {
	case s.Failure != nil:
		return s.Failure.Outcome
	case s.accepted:
		return outcomeSuccess
	}
	return outcomeAlreadyBound
}

// classify returns the outcome of a Binding that ended with err, given the pod as read from the API
// server after that. Nil: the pod is bound to the node.
func classify(b binder.Binding, err error, pod *corev1.Pod, lookupErr error) *BindError {
	unknown := func(text string, err error) *BindError {
		text = fmt.Sprintf("it is unknown whether pod %s/%s was bound to node %q%s", b.Namespace, b.Name, b.Node, text)
		return &BindError{Outcome: outcomeUnknown, text: text, err: err}
	}
	bound, cannot := binder.AlreadyBound(b.Namespace, b.Name, b.UID, b.Node, pod)
	switch {
	case lookupErr != nil:
		return unknown("", fmt.Errorf("%w; reading the pod: %w", err, lookupErr))
	case bound:
		return nil
	case cannot != nil && pod != nil && pod.Spec.NodeName != "":
		return &BindError{Outcome: outcomeBoundElsewhere, text: cannot.Error()}
	case cannot != nil:
		return &BindError{Outcome: outcomeNotFound, text: cannot.Error()}
	case apierrors.IsConflict(err):
		failure := notBound(b, outcomeRejected, "", err)
		failure.changed = b.ResourceVersion != "" && pod.ResourceVersion != b.ResourceVersion
		return failure
	default:
		return unknown("; it is not yet", err)
	}
}

func notBound(b binder.Binding, outcome, why string, err error) *BindError {
	return &BindError{Outcome: outcome, text: fmt.Sprintf("pod %s/%s was not bound to node %q%s", b.Namespace, b.Name, b.Node, why), err: err}
}

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
