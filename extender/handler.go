package extender

import (
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

	"outboard.dev/outboard/binding"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/extender/wire"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/throttle"
)

// Cluster is what a handler needs of a cluster.
type Cluster interface {
	// View returns what is true now. It is never nil, and means nothing while Synced returns an error.
	View() *snapshot.View
	// Superseded returns a channel that is closed once View returns another View than this one.
	Superseded(view *snapshot.View) <-chan struct{}
	// Synced returns nil once the cluster has been read. Until then the error says what is missing, and why.
	Synced() error
	// Pod returns the trimmed pod with exactly this UID and resourceVersion, or
	// nil.
	Pod(uid types.UID, resourceVersion string) *corev1.Pod
	// PodByName returns the trimmed pod as last seen, or nil.
	PodByName(namespace, name string) *corev1.Pod
	// PodByUID returns the trimmed pod as last seen, or nil. It may be behind what
	// Bind has done.
	PodByUID(uid types.UID) *corev1.Pod
	// LivePod asks the API server for the pod; nil if it is gone.
	LivePod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// TouchPod gives the pod a new resourceVersion, and returns it as it is then; nil
	// if it is gone. Bindings that name an earlier one are refused from then on.
	TouchPod(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error)
	// Throttle waits until a Binding may be sent, and returns the context to give to
	// Bind. It fails early rather than wait for long.
	Throttle(ctx context.Context) (context.Context, error)
	// Bind binds the pod. Nil means that it is bound to the node, now or since
	// earlier. An error that is [binding.ErrOutcomeUnknown] leaves open whether it
	// is; any other means that this call has not bound it and will not; one that
	// is [binding.ErrPodChanged], because the pod has another resourceVersion by now.
	Bind(ctx context.Context, b binding.Binding) error
}

// Options are the parts of a Handler.
type Options struct {
	// Profile is the profile's path, for records and metrics.
	Profile string
	Engine  *engine.Engine
	// Fine sends totals as they are instead of levels 0..10.
	Fine bool
	// Cluster is nil for a handler that judges from the request alone.
	Cluster Cluster
	// View returns what is known from outside when there is no Cluster: a View
	// without nodes. Nil: nothing is.
	View func() *snapshot.View
	// ManagedResources are those of which a pod must name one; none: any pod. Another pod is not
	// bound, and the other verbs answer as if kube-scheduler had not called: see Record.Unmanaged.
	ManagedResources []string
	// SchedulerNames are the schedulers whose pods are bound; none: any.
	SchedulerNames []string
	// Ledgers is where claims are kept. Nil is for profiles that hand out nothing.
	Ledgers engine.Ledgers
	// Filtered is told what became of each filter call that was answered: fits says whether the pod fits on a node. For a
	// pod that fits nowhere, unknown are the names of the nodes asked that are nil in the request, 64 at most. The request's Nodes must
	// not be kept. It is called before the answer is sent. Nil: nobody is told.
	Filtered func(req engine.Request, fits bool, unknown []string)
	// Reserve counts so many bytes more as held by the request with this context, until it is answered, and may wait or
	// refuse. It is called once for a request, before what is made of its body is. Nil: nothing is bounded.
	Reserve func(ctx context.Context, bytes int64) error
	// InFlight is shared by all Handlers of the process. Nil: the Handler has its own.
	InFlight *InFlight
	// Log keeps the decisions; required.
	Log *decision.Log
	// Metrics is required; see NewMetrics.
	Metrics *Metrics
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// Handler answers the calls of one profile. It may be used by any number of
// goroutines.
type Handler struct {
	Options
	calls     calls
	nodes     requestNodes
	prescores prescores
	failures  throttle.Log
}

// New returns a Handler.
func New(o Options) *Handler {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.InFlight == nil {
		o.InFlight = NewInFlight()
	}
	h := &Handler{Options: o, nodes: requestNodes{many: make(chan struct{}, 1)}}
	if h.nodes.limit = maxNewNodes; o.Cluster == nil {
		h.nodes.limit = maxAllNodes
	}
	return h
}

// Verb returns the http.Handler of one verb, to be mounted at its URL.
func (h *Handler) Verb(verb decision.Verb) http.Handler {
	answer := map[decision.Verb]func(*Handler, context.Context, *call) error{
		decision.Filter: (*Handler).filter, decision.Prioritize: (*Handler).prioritize,
		decision.Preempt: (*Handler).preempt, decision.Bind: (*Handler).bind,
	}[verb]
	metrics := h.Metrics.of(h.Profile, verb)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, fmt.Sprintf("this is the %s verb of a scheduler extender: use POST", verb), http.StatusMethodNotAllowed)
			return
		}
		c := h.calls.get()
		c.verb, c.started = verb, time.Now()
		err := h.answer(r, c, answer)
		header := w.Header()
		header["Content-Type"] = contentType
		header.Set("Content-Length", strconv.Itoa(c.answer.Len()))
		_, _ = c.answer.WriteTo(w) // the connection is gone if this fails; there is nobody to tell
		h.finish(c, metrics, err)
		if verb == decision.Filter && err == nil {
			_ = http.NewResponseController(w).Flush() // kube-scheduler goes on meanwhile
			h.prescore(r.Context(), c)
		}
		h.calls.put(c)
	})
}

var contentType = []string{"application/json"}

// answer sets c.answer, whatever happens. A panic outside of policies is ours;
// it fails this call and no other.
func (h *Handler) answer(r *http.Request, c *call, verb func(*Handler, context.Context, *call) error) (err error) {
	defer func() {
		if c.decodesNodes {
			c.decodesNodes = false
			h.nodes.end()
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
			h.Logger.Error("panic in a request", "verb", c.verb, "profile", h.Profile, "panic", p, "stack", string(debug.Stack()))
		}
		if err != nil {
			c.answer.Reset()
			c.answer.Text = appendError(c.answer.Text, c.verb, oneLine(err))
		}
	}()
	if err := h.calls.read(c, r); err != nil {
		return err
	}
	if len(c.body) > maxLight {
		// Finding out what it is made of takes long enough to be done for one at a time.
		c.reserved = true
		if err := h.reserve(r.Context(), maxReserved); err != nil {
			return err
		}
	}
	return verb(h, r.Context(), c)
}

const (
	// maxLight is the size of bodies up to which they are scanned before anything is reserved.
	maxLight = 1 << 20
	// maxReserved is more than anything that is made of a body takes at a time.
	maxReserved = 64 << 20
)

func (h *Handler) reserve(ctx context.Context, bytes int64) error {
	if h.Reserve == nil {
		return nil
	}
	return h.Reserve(ctx, bytes)
}

// decodeShare is how much more than its memory decoding a pod costs: it takes a multiple of a scan's time, and what it leaves is
// garbage.
const decodeShare = 4

// weigh reserves what is about to be made of the body: so many bytes for the nodes or
// victims, and what decoding the pod costs if it has to be decoded.
func (h *Handler) weigh(ctx context.Context, c *call, bytes int64) error {
	if c.reserved {
		return nil
	}
	c.reserved = true
	return h.reserve(ctx, bytes+decodeShare*c.podWeight)
}

// finish records, counts and logs the call.
func (h *Handler) finish(c *call, metrics *verbMetrics, err error) {
	duration := time.Since(c.started)
	if r := c.record; r != nil {
		r.Time, r.Duration, r.Verb, r.Profile = c.started, duration, c.verb, h.Profile
		if err != nil {
			r.Error = oneLine(err)
		}
		if len(r.Top) > 0 {
			c.result.Scores = h.Log.Add(r.Bounded(), c.result.Scores)
		} else {
			h.Log.Add(r.Bounded(), nil)
		}
	}
	metrics.observe(duration, c.record, err)
	if err == nil {
		return
	}
	attrs := []any{"verb", c.verb, "profile", h.Profile, "error", err}
	if c.record != nil {
		attrs = append(attrs, "pod", c.record.Pod.Namespace+"/"+c.record.Pod.Name)
	}
	if p := (*engine.PolicyError)(nil); errors.As(err, &p) && p.Stack != nil {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	h.failures.Log(h.Logger, slog.LevelWarn, kindOf(err), "call failed", attrs...)
}

// kindOf tells causes of failed calls apart: by the error's text without words that look like names and numbers.
func kindOf(err error) string {
	words := slices.DeleteFunc(strings.Fields(oneLine(err)), func(word string) bool { return strings.ContainsAny(word, "\"/0123456789") })
	return strings.Join(words, " ")
}

// WriteError answers a call of the verb with the error, in the form in which kube-scheduler takes it in: an answer that is not
// 200 shows it no text.
func WriteError(w http.ResponseWriter, verb decision.Verb, err error) {
	answer := appendError(nil, verb, oneLine(err))
	header := w.Header()
	header["Content-Type"] = contentType
	header.Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) // the connection is gone if this fails; there is nobody to tell
}

// appendError appends the answer of a call that failed.
func appendError(dst []byte, verb decision.Verb, text string) []byte {
	var answer any
	switch verb {
	case decision.Bind:
		answer = extenderv1.ExtenderBindingResult{Error: text}
	case decision.Preempt:
		answer = struct {
			NodeNameToMetaVictims map[string]*extenderv1.MetaVictims
			Error                 string
		}{map[string]*extenderv1.MetaVictims{}, text}
	default:
		return wire.AppendError(dst, text)
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		panic(err) // of strings and an empty map
	}
	return append(dst, encoded...)
}

// maxError is the length of an error as an event can show it.
const maxError = 1024

// oneLine is the error as an event can show it. A policy's error may repeat what a pod
// says, of any length.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}
