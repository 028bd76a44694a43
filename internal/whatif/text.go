package whatif

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxNamed is how many pods a text names.
const maxNamed = 5

// String returns the change as the end of a sentence that begins with "It would fit".
func (r *Remedy) String() string {
	switch r.Kind {
	case Request:
		return r.request()
	case End:
		return r.end() + r.preemption()
	case Nodes:
		return r.onNodes() + r.change()
	}
	return string(r.Kind)
}

func (r *Remedy) request() string {
	if r.Annotation != "" {
		return fmt.Sprintf("with the annotation %s: %s instead of %s, on %s", r.Annotation, annotated(r.To), r.From, r.Node)
	}
	amount := func(q *resource.Quantity) string {
		text := q.String()
		if strings.Contains(string(r.Resource), "/") { // extended resources are whole numbers: 3000, not 3k
			text = strconv.FormatInt(q.Value(), 10)
		}
		return strings.TrimSpace(text + " " + r.Unit)
	}
	text := fmt.Sprintf("with %s of %s instead of %s, on %s", amount(r.To), r.Resource, amount(r.From), r.Node)
	if r.Next != nil && strings.Contains(string(r.Resource), "/") {
		text += fmt.Sprintf(" (with %s it would not)", amount(r.Next))
	}
	return text
}

// annotated returns the value of an annotation: 4Gi, or 3000, which a Quantity writes as 3k.
func annotated(q *resource.Quantity) string {
	if q.Format == resource.BinarySI {
		return q.String()
	}
	return strconv.FormatInt(q.Value(), 10)
}

// end names the pods that end.
func (r *Remedy) end() string {
	var names []string
	for i, h := range r.End {
		if i == maxNamed {
			names = append(names, "…")
			break
		}
		name := h.Namespace + "/" + h.Name
		if until := h.TerminatingUntil; until != nil {
			name += " (terminating until " + until.UTC().Format(time.RFC3339) + ")"
		}
		names = append(names, name)
	}
	if len(r.End) == 1 {
		return fmt.Sprintf("if pod %s on %s ended", names[0], r.Node)
	}
	return fmt.Sprintf("if %d pods on %s ended: %s", len(r.End), r.Node, strings.Join(names, ", "))
}

func (r *Remedy) preemption() string {
	switch r.Preemption {
	case Possible:
		return "; preemption can evict " + them(len(r.End))
	case Unnecessary:
		return ""
	case PriorityNotLower:
		if len(r.End) == 1 {
			return "; preemption cannot evict it, because its priority is not lower"
		}
		return "; preemption cannot evict them, because the priority of some is not lower"
	case NeverPreempts:
		return "; the pod never preempts (preemptionPolicy: Never)"
	case ViolatesBudget:
		return "; preemption evicts " + them(len(r.End)) + " only if nothing else helps, because of a PodDisruptionBudget"
	case LacksNothing:
		return "; kube-scheduler up to 1.37 does not evict " + them(len(r.End)) + ", because the node has enough of all resources that it counts"
	}
	return "; kube-scheduler does not consider the node for preemption"
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

func (r *Remedy) onNodes() string {
	text := fmt.Sprintf("on %d nodes", r.Nodes)
	if r.Nodes == 1 {
		text = "on node " + r.Node
	}
	return text
}

func (r *Remedy) change() string {
	switch r.Change.Type {
	case Tolerate:
		return " if it tolerated the taint " + r.Change.Of
	case DropSelector:
		return " if its nodeSelector did not require " + r.Change.Of
	}
	if r.Nodes == 1 {
		return " if that were not cordoned"
	}
	return " if these were not cordoned"
}

// MarshalJSON implements json.Marshaler: the fields, and text, which is String.
func (r Remedy) MarshalJSON() ([]byte, error) {
	type fields Remedy
	return json.Marshal(struct {
		fields
		Text string `json:"text"`
	}{fields(r), r.String()})
}
