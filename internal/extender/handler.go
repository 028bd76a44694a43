package extender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/throttle"
	"outboard.dev/outboard/snapshot"
)

// Cluster is the part of a cluster that a handler uses.
type Cluster interface {
	binder.Cluster
	// Synced returns nil once the cluster has been read. Until then the error describes what is
	// missing, and why. View is incomplete until then.
	Synced() error
	// ViewFor returns the latest view for the evaluation of the pod, which does not count against
	// itself.
	ViewFor(pod types.UID) *snapshot.View
	// Assume counts the pod on the node, with these annotations, in all views from now on. forget
	// must be called once the pod is bound, or will not be.
	Assume(pod *corev1.Pod, node string) (forget func())
	// Pod returns the trimmed pod with exactly this UID and resourceVersion, or
	// nil.
	Pod(uid types.UID, resourceVersion string) *corev1.Pod
	// LatestPod returns the trimmed pod in its latest known state, including what Bind has bound,
	// or nil.
	LatestPod(uid types.UID) *corev1.Pod
}

// Options configure a Handler.
type Options struct {
	// Profile is the profile's path, for records and metrics.
	Profile string
	Engine  *engine.Engine
	// Cluster is nil for a handler that uses only the request.
	Cluster Cluster
	// View returns a View with signals, and without nodes, if there is no Cluster. Nil: there are
	// no signals.
	View func() *snapshot.View
	// ManagedResources are the resources of which a pod must request at least one; none: any pod.
	// Bind rejects other pods, and the other verbs respond as if kube-scheduler had not called: see
	// Record.Unmanaged.
	ManagedResources []string
	// SchedulerNames are the schedulers whose pods bind accepts; none: any.
	SchedulerNames []string
	// Ledgers stores allocations. It may be nil if no policy of the profile allocates resources.
	Ledgers engine.Ledgers
	// Filtered is called with the result of each successful filter call, before the response is
	// sent. fits is true if the pod fits on a node. If it fits on none, unknown are the names of
	// the requested nodes that are nil in the request, at most 64, and why is the reason for which
	// most nodes were rejected; nil if there is none, because the pod makes a policy fail. Filtered
	// must not keep the request's Nodes. It is not called if no node of the call is in the View, or
	// the pod fits only on nodes that are not: they may be nodes that a cluster autoscaler could
	// add. Nil: not called.
	Filtered func(req engine.Request, fits bool, unknown []string, why *decision.Rejection)
	// Elsewhere returns a node about which kube-scheduler did not ask in the filter call before, on
	// which the pod fits without an eviction, and on which it is about to be tried; "" if there is
	// none. Nil: not called.
	Elsewhere func(ctx context.Context, req engine.Request) (node string)
	// ReserveMemory adds bytes to the memory that the request with this context holds until its
	// response; it may wait or fail. It is called once for a request, before its body is decoded.
	// Nil: memory is not bounded.
	ReserveMemory func(ctx context.Context, bytes int64) error
	// InFlight is the same for all Handlers of the process. Nil: the Handler has its own.
	InFlight *InFlight
	// Log keeps the decisions; required.
	Log *decision.Log
	// Metrics is required; see callmetrics.New.
	Metrics *callmetrics.Metrics
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// Handler serves the calls of one profile. It is safe for concurrent use.
type Handler struct {
	Options
	calls    calls
	nodes    requestNodes
	failures throttle.Log
}

// New returns a Handler.
func New(o Options) *Handler {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.InFlight == nil {
		o.InFlight = NewInFlight()
	}
	h := &Handler{Options: o, calls: calls{free: make(chan *call, maxCalls)}}
	if h.nodes.limit = maxNewNodes; o.Cluster == nil {
		h.nodes.limit = maxAllNodes
	}
	return h
}

// Verb returns the http.Handler of one verb, for its URL.
func (h *Handler) Verb(verb decision.Verb) http.Handler {
	serve := map[decision.Verb]func(*Handler, context.Context, *call) error{
		decision.Filter: (*Handler).filter, decision.Prioritize: (*Handler).prioritize,
		decision.Preempt: (*Handler).preempt, decision.Bind: (*Handler).bind,
	}[verb]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, fmt.Sprintf("this is the %s verb of a scheduler extender: use POST", verb), http.StatusMethodNotAllowed)
			return
		}
		c := h.calls.get(verb)
		err := h.serve(r, c, serve)
		begin(w, c.response.Len())
		_, _ = c.response.WriteTo(w) // an error means that the connection is gone
		h.finish(c, err)
		h.calls.put(c)
	})
}

// begin begins a response of this length.
func begin(w http.ResponseWriter, length int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(length))
}

// serve sets c.response in all cases. A panic outside of policies is a bug of Outboard; it fails
// only this call.
func (h *Handler) serve(r *http.Request, c *call, verb func(*Handler, context.Context, *call) error) (err error) {
	defer func() {
		if c.decodesNodes {
			c.decodesNodes = false
			h.nodes.many.Unlock()
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
			h.Logger.Error("panic in a request", "verb", c.verb, "profile", h.Profile, "panic", p, "stack", string(debug.Stack()))
		}
		switch {
		case err == nil:
		case c.verb == decision.Filter && causedByPod(err):
			// kube-scheduler ignores the error of an ignorable extender, and a pod must not choose
			// to be placed without the policies.
			c.response.Reset()
			c.rejectAll(oneLine(err))
		default:
			c.response.Reset()
			c.response.Text = appendError(c.response.Text, c.verb, oneLine(err))
		}
	}()
	if err := h.calls.read(c, r); err != nil {
		return err
	}
	if len(c.body) > maxLight {
		// Computing the memory for a large body takes long enough to allow only one at a time.
		c.reserved = true
		if err := h.reserve(r.Context(), maxReserved); err != nil {
			return err
		}
	}
	return verb(h, r.Context(), c)
}

const (
	// maxLight is the size of bodies up to which they are scanned before memory is reserved.
	maxLight = 1 << 20
	// maxReserved is more memory than decoding any body takes.
	maxReserved = 64 << 20
)

func (h *Handler) reserve(ctx context.Context, bytes int64) error {
	if h.ReserveMemory == nil {
		return nil
	}
	return h.ReserveMemory(ctx, bytes)
}

// decodeShare is how many bytes to reserve for each byte of a decoded pod: decoding produces
// garbage of several times its size.
const decodeShare = 4

// weigh reserves memory for decoding the body: bytes for the nodes or victims, and the weight of
// the pod, which is 0 if the view's copy is used.
func (h *Handler) weigh(ctx context.Context, c *call, bytes, podWeight int64) error {
	if c.reserved {
		return nil
	}
	c.reserved = true
	return h.reserve(ctx, bytes+decodeShare*podWeight)
}

// finish records, counts and logs the call.
func (h *Handler) finish(c *call, err error) {
	duration := time.Since(c.started)
	r := c.record
	if r != nil {
		r.Time, r.Duration, r.Verb, r.Profile = c.started, duration, c.verb, h.Profile
		if err != nil {
			r.Error = oneLine(err)
		}
	}
	h.Metrics.Observe(h.Profile, c.verb, duration, r, err)
	h.warnSlow(c)
	switch {
	case r == nil || c.hypothetical:
	case len(r.Top) > 0:
		c.result.Scores = h.Log.Add(r, c.result.Scores)
	default:
		h.Log.Add(r, nil)
	}
	if err == nil {
		return
	}
	attrs := []any{"verb", c.verb, "profile", h.Profile, "error", err}
	if r != nil {
		attrs = append(attrs, "pod", r.Pod.Namespace+"/"+r.Pod.Name)
	}
	if p := (*engine.PolicyError)(nil); errors.As(err, &p) && p.Stack != nil {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	h.failures.Log(h.Logger, slog.LevelWarn, kindOf(err), "call failed", attrs...)
}

// slowPolicy is half of the httpTimeout of a soft extender in deploy/: the request does not have it.
const slowPolicy = 500 * time.Millisecond

// warnSlow logs the policies that took much of the time that kube-scheduler waits.
func (h *Handler) warnSlow(c *call) {
	if c.record == nil {
		return
	}
	for _, p := range c.record.Policies {
		if p.Duration > slowPolicy {
			h.failures.Log(h.Logger, slog.LevelWarn, "slow "+p.Name, "policy is slow: calls that exceed httpTimeout fail",
				"policy", p.Name, "took", p.Duration, "verb", c.verb, "profile", h.Profile, "pod", c.record.Pod.Namespace+"/"+c.record.Pod.Name)
		}
	}
}

// kindOf identifies the cause of a failed call: the error's text without words that look like names
// and numbers.
func kindOf(err error) string {
	words := slices.DeleteFunc(strings.Fields(oneLine(err)), func(word string) bool { return strings.ContainsAny(word, "\"/0123456789") })
	return strings.Join(words, " ")
}

// WriteError responds to a call of the verb with the error, in the form that kube-scheduler reads:
// it ignores the text of a response whose status is not 200.
func WriteError(w http.ResponseWriter, verb decision.Verb, err error) {
	response := appendError(nil, verb, oneLine(err))
	begin(w, len(response))
	_, _ = w.Write(response) // an error means that the connection is gone
}

// appendError appends the response of a failed call.
//
// A HostPriorityList has no field for an error, and an empty list would be a result. So the
// response to prioritize is that to filter: kube-scheduler expects a list, logs a decoding error at
// level 5 and continues without Outboard's scores, as after any failed prioritize call. Other
// clients can read the error.
func appendError(dst []byte, verb decision.Verb, text string) []byte {
	var response any
	switch verb {
	case decision.Bind:
		response = extenderv1.ExtenderBindingResult{Error: text}
	case decision.Preempt:
		response = struct {
			NodeNameToMetaVictims map[string]*extenderv1.MetaVictims
			Error                 string
		}{map[string]*extenderv1.MetaVictims{}, text}
	default:
		response = extenderv1.ExtenderFilterResult{Error: text}
	}
	encoded, err := json.Marshal(response)
	if err != nil {
		panic(err) // of strings and an empty map
	}
	return append(dst, encoded...)
}

// maxError is the length of an error that fits in an event.
const maxError = 1024

// oneLine returns the error in a form that fits in an event. A policy's error may contain text of
// the pod, of any length.
func oneLine(err error) string {
	text := cmp.Or(strings.Join(strings.Fields(err.Error()), " "), "unknown error") // none would mean success
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}
