package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/decision"
)

// DecisionAnnotation is written to every pod that is bound by the replica that
// judged it: why it is where it is, in one line.
const DecisionAnnotation = "outboard.dev/decision"

// releaseTimeout bounds giving back what was reserved for a pod that was not
// bound, for which the caller does not wait.
const releaseTimeout = 10 * time.Second

func (h *Handler) bind(ctx context.Context, c *call) error {
	var args extenderv1.ExtenderBindingArgs
	if err := json.Unmarshal(c.body, &args); err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	if args.PodName == "" || args.PodNamespace == "" || args.PodUID == "" || args.Node == "" {
		return errors.New("the request must hold PodName, PodNamespace, PodUID and Node")
	}
	c.record = &decision.Record{
		Pod:   decision.Pod{Namespace: args.PodNamespace, Name: args.PodName, UID: string(args.PodUID)},
		Bound: args.Node,
	}
	if h.Cluster == nil {
		return errors.New("binding needs the API server, and Outboard runs without a cluster")
	}
	view, err := h.view()
	if err != nil {
		return err
	}
	c.record.Generation = view.Generation()
	node := view.Node(args.Node)
	if node == nil {
		return fmt.Errorf("node %q is not known to Outboard yet", args.Node)
	}
	pod := h.Cluster.PodByName(args.PodNamespace, args.PodName)
	if pod == nil || pod.UID != args.PodUID {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID}}
		if h.Engine.Reserves() {
			return fmt.Errorf("pod %s/%s with UID %s is not known to Outboard yet", args.PodNamespace, args.PodName, args.PodUID)
		}
	}
	reservation, err := h.Engine.Reserve(ctx, pod, node)
	if err != nil {
		return err
	}
	annotations := map[string]string{}
	if why := h.why(string(args.PodUID), args.Node); why != "" {
		annotations[DecisionAnnotation] = why
	}
	maps.Copy(annotations, reservation.Annotations)
	err = h.Cluster.Bind(ctx, Binding{
		Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID, Node: args.Node, Annotations: annotations,
	})
	if err != nil && !errors.Is(err, ErrOutcomeUnknown) {
		// The caller may be gone already; what was reserved is given back all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err = errors.Join(err, reservation.Release(ctx))
	}
	if err != nil {
		return err
	}
	c.answer = append(c.answer[:0], `{"Error":""}`...)
	return nil
}

// why sums up, for the pod's annotation, the latest decisions about it.
func (h *Handler) why(uid, node string) string {
	records := h.Log.Find(func(r *decision.Record) bool {
		return r.Pod.UID == uid && r.Profile == h.Profile && r.Error == "" && (r.Verb == string(Filter) || r.Verb == string(Prioritize))
	}, 4)
	return decision.Summary(records, node)
}
