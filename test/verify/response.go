package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// result is a decoded response to one verb.
type result interface {
	// verdict is the result for each node, without differences that have no meaning (the
	// order of a map, the text of a reason).
	verdict(q *request) verdict
	// rejection is the response's Error, "" when there is none or the verb has none.
	rejection() string
}

// verdict maps the name of a node to its result.
type verdict map[string]string

// difference names one node about which two verdicts differ, "" if none.
func (v verdict) difference(other verdict) string {
	names := slices.Sorted(maps.Keys(v))
	for name := range other {
		if _, found := v[name]; !found {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if v[name] != other[name] {
			return fmt.Sprintf("%s: first %s, then %s", name, orDefault(v[name], "nothing"), orDefault(other[name], "nothing"))
		}
	}
	return ""
}

const wholeRequest = "the request"

// filterResult has the structure of extenderv1.ExtenderFilterResult; a malicious
// response takes less memory in it.
type filterResult struct {
	Nodes                      nodeList
	NodeNames                  bounded[*[]string]
	FailedNodes                bounded[extenderv1.FailedNodesMap]
	FailedAndUnresolvableNodes bounded[extenderv1.FailedNodesMap]
	Error                      string
}

// bounded is a part of a response whose size depends on the number of nodes of the
// request, and not on the size of these nodes.
type bounded[T any] struct{ value T }

func (b *bounded[T]) UnmarshalJSON(data []byte) error {
	if len(data) > 8<<20 {
		return errTooLarge
	}
	return json.Unmarshal(data, &b.value)
}

func (r *filterResult) rejection() string { return r.Error }

// passed returns the names of the nodes that pass, as kube-scheduler would read
// them in the mode asked; inMode is false when the response is in the other mode.
func (r *filterResult) passed(mode Mode) (names []string, inMode bool) {
	if mode == ModeNodes {
		return r.Nodes.names, r.Nodes.present || r.NodeNames.value == nil
	}
	if r.NodeNames.value == nil {
		return nil, !r.Nodes.present
	}
	return *r.NodeNames.value, true
}

func (r *filterResult) verdict(q *request) verdict {
	if r.Error != "" {
		return verdict{wholeRequest: "refused"}
	}
	v := make(verdict)
	for name := range r.FailedNodes.value {
		v[name] = "fails"
	}
	for name := range r.FailedAndUnresolvableNodes.value {
		v[name] = "fails, unresolvable"
	}
	names, _ := r.passed(q.mode)
	for _, name := range names {
		v[name] = "passes"
	}
	return v
}

// nodeList has the shape of corev1.NodeList. max and keep are set before decoding.
type nodeList struct {
	max  int  // more nodes are an error
	keep bool // keep the objects, not only their names

	present bool
	names   []string
	nodes   []*corev1.Node
}

func (l *nodeList) UnmarshalJSON(data []byte) error {
	*l = nodeList{max: l.max, keep: l.keep}
	if string(data) == "null" {
		return nil
	}
	l.present = true
	list := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           nodeItems `json:"items"`
	}{Items: nodeItems{list: l}}
	return json.Unmarshal(data, &list)
}

// nodeItems decodes one node at a time, so that ten million empty ones are not
// held at once.
type nodeItems struct{ list *nodeList }

func (i *nodeItems) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil {
		return err
	} else if token != json.Delim('[') {
		return fmt.Errorf("json: Nodes.items is not a list")
	}
	for decoder.More() {
		if len(i.list.names) >= i.list.max {
			return errTooMany
		}
		var node corev1.Node
		if err := decoder.Decode(&node); err != nil {
			return err
		}
		i.list.names = append(i.list.names, node.Name)
		if i.list.keep {
			i.list.nodes = append(i.list.nodes, &node)
		}
	}
	return nil
}

type scoreResult extenderv1.HostPriorityList

func (r scoreResult) rejection() string { return "" }

func (r scoreResult) verdict(*request) verdict {
	v := make(verdict)
	for _, s := range r {
		v[s.Host] = strings.TrimPrefix(v[s.Host]+" and ", " and ") + "score " + strconv.FormatInt(s.Score, 10)
	}
	return v
}

// preemptResult is extenderv1.ExtenderPreemptionResult, and the field that
// kube-scheduler does not read.
type preemptResult struct {
	NodeNameToMetaVictims map[string]*extenderv1.MetaVictims
	NodeNameToVictims     json.RawMessage
}

func (r *preemptResult) rejection() string { return "" }

func (r *preemptResult) verdict(*request) verdict {
	v := make(verdict)
	for name, victims := range r.NodeNameToMetaVictims {
		uids := slices.Sorted(maps.Keys(uidsOf(victims)))
		v[name] = "victims " + strings.Join(uids, " ")
	}
	return v
}

func uidsOf(victims *extenderv1.MetaVictims) map[string]bool {
	uids := make(map[string]bool)
	if victims == nil {
		return uids
	}
	for _, pod := range victims.Pods {
		if pod != nil {
			uids[pod.UID] = true
		}
	}
	return uids
}

type bindResult extenderv1.ExtenderBindingResult

func (r *bindResult) rejection() string { return r.Error }

func (r *bindResult) verdict(*request) verdict {
	if r.Error != "" {
		return verdict{wholeRequest: "refused"}
	}
	return verdict{wholeRequest: "bound"}
}

// decode reads the value as kube-scheduler does: with encoding/json, into the type
// of the verb.
func (q *request) decode(value json.RawMessage) (result, error) {
	switch q.verb {
	case decision.Filter:
		r := &filterResult{Nodes: nodeList{max: 2*len(q.names) + 100, keep: q.nodes != nil}}
		return r, json.Unmarshal(value, r)
	case decision.Prioritize:
		var r scoreResult
		return &r, json.Unmarshal(value, &r)
	case decision.Preempt:
		r := &preemptResult{}
		return r, json.Unmarshal(value, r)
	default:
		r := &bindResult{}
		return r, json.Unmarshal(value, r)
	}
}
