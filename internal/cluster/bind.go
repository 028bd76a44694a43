package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/binder"
)

// BindError is the error of [Cluster.Bind]. errors.Is finds [binder.ErrOutcomeUnknown] in it if the
// pod may or may not be bound to the node, now or later, so that its allocation must be kept. If
// not, this call has not bound the pod and will not; an earlier call whose outcome was unknown
// still may. errors.Is finds [binder.ErrPodChanged] if the resourceVersion of the pod is another
// one than that of the Binding.
type BindError struct {
	Outcome string // as in the metric
	changed bool
	text    string // for an operator
	err     error  // the cause; nil if text says all
}

// Error implements error.
func (e *BindError) Error() string {
	if e.err == nil {
		return e.text
	}
	return e.text + ": " + e.err.Error()
}

// Unwrap returns the cause.
func (e *BindError) Unwrap() error { return e.err }

// Is reports whether the error is one of the errors that decide about an allocation.
func (e *BindError) Is(target error) bool {
	return target == binder.ErrOutcomeUnknown && e.Outcome == outcomeUnknown || target == binder.ErrPodChanged && e.changed
}

// Outcomes of Bind, in metrics.
const (
	outcomeSuccess        = "success"
	outcomeAlreadyBound   = "already_bound" // to the requested node
	outcomeBoundElsewhere = "bound_elsewhere"
	outcomeNotFound       = "not_found" // or the pod is being deleted and was never bound
	outcomeRejected       = "rejected"
	outcomeNotSent        = "not_sent"  // the Binding has not left this process: there was no connection
	outcomeThrottled      = "throttled" // by Throttle, before Bind
	outcomeUnknown        = "unknown"
)

// outcomes returns all of them.
func outcomes() []string {
	return []string{
		outcomeSuccess, outcomeAlreadyBound, outcomeBoundElsewhere, outcomeNotFound, outcomeRejected, outcomeNotSent, outcomeThrottled, outcomeUnknown,
	}
}

// Bind binds the pod to the node, with the annotations. Nil means that the pod is bound to that
// node, by this call or an earlier one, and that the View counts it there. An error is a
// *[BindError].
//
// Bind sends one Binding. It sends it again only if the API server has rejected it with 429, as
// often as ctx allows. A Binding that has not left this process has no effect. If the response is
// lost or does not determine the outcome, or the pod is bound already, Bind reads the pod from the
// API server once, even if ctx has ended: it may then return up to [Options.LookupTimeout] later.
// With a context of Throttle, Bind sends the Binding unless ctx has ended before, and waits for its
// response for up to [Options.BindTimeout], even if ctx ends meanwhile.
func (c *Cluster) Bind(ctx context.Context, b binder.Binding) error {
	start := time.Now()
	s := c.bind(ctx, b)
	c.metrics.binds.WithLabelValues(s.outcome()).Inc()
	c.metrics.bindSeconds.WithLabelValues(s.outcome()).Observe(time.Since(start).Seconds())
	if s.Failure != nil {
		return s.Failure
	}
	return nil
}

// bind returns the end of sending the Binding.
func (c *Cluster) bind(ctx context.Context, b binder.Binding) Sending {
	s := Sending{Binding: b}
	if err := ctx.Err(); err != nil {
		return s.end(nil, notBound(b, outcomeNotSent, ": the Binding was not sent", err))
	}
	number := c.BeginRequest(b.UID)
	defer func() { c.EndRequest(b.UID, number, s.Pod, time.Now()) }()
	for s.Request != Ended {
		var r SendResponse
		switch s.Request {
		case PostBinding:
			r.Sent, r.Err = c.post(ctx, b)
			r.Pod = c.PodByUID(b.UID)
		case ReadPod:
			r.Pod, r.Err = c.lookup(context.WithoutCancel(ctx), b.Namespace, b.Name, b.UID)
		}
		s = s.Next(r)
	}
	if s.accepted && s.err != nil {
		c.options.Logger.Warn("bound a pod that the watch does not show yet; until then, its annotations count and its resource requests do not",
			"pod", b.Namespace+"/"+b.Name, "node", b.Node, "error", s.err)
	}
	return s
}

// post sends the Binding. sent is false if it certainly did not leave this process.
func (c *Cluster) post(ctx context.Context, b binder.Binding) (sent bool, err error) {
	var d sendTracker
	if c.options.Client != nil { // whose transport is not tracked
		d.mark()
	}
	if permitted(ctx) {
		// The Binding is sent: wait for the response even if the caller gives up.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.BindTimeout)
	defer cancel()
	err = c.client.CoreV1().Pods(b.Namespace).Bind(d.watch(ctx), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion, Annotations: b.Annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.Node},
	}, metav1.CreateOptions{})
	at := d.sent.Load()
	if err != nil && at != nil && ctx.Err() != nil {
		err = fmt.Errorf("the API server did not respond within %v: %w", time.Since(*at).Round(100*time.Millisecond), err)
	}
	return at != nil, c.denials.observe(writeBinding, err)
}

// rejected reports whether the API server has responded, and the Binding had and
// will have no effect. A conflict does not count, because the pod may be bound to
// this node.
func rejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict:
		return false
	default:
		return 400 <= code && code < 500
	}
}

// lookup reads the pod from the API server. Nil if it does not exist.
func (c *Cluster) lookup(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.LookupTimeout)
	defer cancel()
	pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if pod.UID != uid {
		return nil, nil
	}
	trimPod(pod)
	return pod, nil
}

// LivePod reads the pod from the API server, not from the cache. Nil if it does not exist. If the
// pod is on a node, Views count it there from then on, even if the watch does not show that yet.
func (c *Cluster) LivePod(ctx context.Context, namespace, name string, uid types.UID) (pod *corev1.Pod, err error) {
	number := c.BeginRequest(uid)
	defer func() { c.EndRequest(uid, number, pod, time.Now()) }()
	return c.lookup(ctx, namespace, name, uid)
}
