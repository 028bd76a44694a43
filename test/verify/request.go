package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// request is one call, ready to be sent any number of times. It is not written to
// after it is made.
type request struct {
	verb   decision.Verb
	mode   Mode // names or nodes
	path   string
	method string // "" is POST
	what   string // the request in words; never what is in the pod
	body   []byte

	names   []string                       // the nodes asked about, in order
	nodes   map[string]*corev1.Node        // what was sent of them; nil: the response's objects are not kept
	victims map[string]*extenderv1.Victims // preempt's candidates
}

func (q *request) httpMethod() string {
	if q.method == "" {
		return http.MethodPost
	}
	return q.method
}

func (q *request) reader() io.Reader {
	if q.body == nil {
		return nil
	}
	return bytes.NewReader(q.body)
}

// responseLimit is the size, in bytes, that no response needs: 1 MiB, and for each
// node more than its name and a long reason; in nodes mode half as much again as
// was sent.
func (q *request) responseLimit() int64 {
	limit := int64(1<<20 + 1024*len(q.names))
	if q.mode == ModeNodes && q.verb == decision.Filter {
		limit += int64(len(q.body)) * 3 / 2
	}
	return limit
}

// sent describes the request, for the report.
func (q *request) sent() string {
	text := q.httpMethod() + " " + q.path + ": " + q.what
	if q.verb != decision.Bind {
		text += ", " + string(q.mode) + " mode"
	}
	return printable(text)
}

// variant returns the same request with another body.
func (q *request) variant(what string, body []byte) *request {
	v := *q
	v.what, v.body = what, body
	return &v
}

// askAbout makes a filter or prioritize request.
func askAbout(verb decision.Verb, path string, mode Mode, pod *corev1.Pod, nodes []*corev1.Node, what string) *request {
	q := &request{verb: verb, mode: mode, path: path, what: what, names: namesOf(nodes)}
	args := extenderv1.ExtenderArgs{Pod: pod}
	if mode == ModeNodes {
		args.Nodes = &corev1.NodeList{Items: make([]corev1.Node, len(nodes))}
		for i, node := range nodes {
			args.Nodes.Items[i] = *node
		}
		if len(nodes) <= sampleSize {
			q.nodes = make(map[string]*corev1.Node, len(nodes))
			for _, node := range nodes {
				q.nodes[node.Name] = node
			}
		}
	} else {
		args.NodeNames = &q.names
	}
	q.body = encode(args)
	return q
}

// askPreempt offers the pods on the nodes as victims.
func askPreempt(path string, mode Mode, c *fixtures, what string) *request {
	q := &request{verb: decision.Preempt, mode: mode, path: path, what: what, victims: make(map[string]*extenderv1.Victims)}
	for _, node := range c.nodes {
		if pods := c.victimsOn(node.Name); len(pods) > 0 && len(q.victims) < 4 {
			q.names = append(q.names, node.Name)
			q.victims[node.Name] = &extenderv1.Victims{Pods: pods, NumPDBViolations: int64(len(q.victims) % 2)}
		}
	}
	q.body = encode(preemptArgs(mode, c.pod, q.victims))
	return q
}

func preemptArgs(mode Mode, pod *corev1.Pod, victims map[string]*extenderv1.Victims) extenderv1.ExtenderPreemptionArgs {
	if mode == ModeNodes {
		return extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToVictims: victims}
	}
	args := extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims)}
	for name, v := range victims {
		meta := &extenderv1.MetaVictims{NumPDBViolations: v.NumPDBViolations}
		for _, pod := range v.Pods {
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
		args.NodeNameToMetaVictims[name] = meta
	}
	return args
}

// askBind asks to bind a pod that does not exist.
func askBind(path, node string) *request {
	return &request{verb: decision.Bind, path: path, what: "a pod that does not exist", body: encode(extenderv1.ExtenderBindingArgs{
		PodName: "no-such-pod", PodNamespace: imaginaryNamespace, PodUID: "outboard-verify-no-such-pod", Node: node,
	})}
}

// encode returns the JSON of an object that can always be encoded: one that was decoded, or made
// here.
func encode(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("verify: encode request: %v", err))
	}
	return body
}

func namesOf(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return names
}

// spelling is the same request in another JSON encoding.
type spelling struct {
	what string
	body []byte
}

// spellings writes the request in ways that mean the same.
func (q *request) spellings() []spelling {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(q.body, &fields); err != nil {
		return nil
	}
	keys := slices.Sorted(maps.Keys(fields))
	backwards := slices.Clone(keys)
	slices.Reverse(backwards)

	same := func(key string) string { return key }
	lower := func(key string) string { return strings.ToLower(key[:1]) + key[1:] }
	var spaced bytes.Buffer
	spaced.WriteString("\r\n\t ")
	_ = json.Indent(&spaced, q.body, "  ", "\t")
	spaced.WriteString(" \n\n")
	unknown := []byte(`{"FutureField":{"Pod":null,"NodeNames":[null,["}"]],"\"":1.5e3},`)
	all := []spelling{
		{"keys in alphabetical order", object(fields, keys, same)},
		{"keys in reverse order", object(fields, backwards, same)},
		{"lower-case keys, as in the first version of this protocol", object(fields, keys, lower)},
		{"unknown keys beside the known ones", append(unknown, object(fields, keys, same)[1:]...)},
		{"spaces and line breaks", spaced.Bytes()},
	}
	if escaped := q.escapedNames(); escaped != nil {
		all = append(all, spelling{"escaped characters in the names", escaped})
	}
	return all
}

// escapedNames writes the first letter of each name as \u00xx; nil where that is
// not possible.
func (q *request) escapedNames() []byte {
	if q.mode != ModeNames || q.verb != decision.Filter && q.verb != decision.Prioritize {
		return nil
	}
	body := slices.Clone(q.body)
	for _, name := range q.names {
		if name[0] >= 0x20 && name[0] < 0x7f && name[0] != '"' && name[0] != '\\' {
			body = bytes.Replace(body, encode(name), fmt.Appendf(nil, `"\u%04x%s`, name[0], encode(name)[2:]), 1)
		}
	}
	return body
}

func object(fields map[string]json.RawMessage, keys []string, spell func(string) string) []byte {
	body := []byte{'{'}
	for i, key := range keys {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(append(body, encode(spell(key))...), ':'), fields[key]...)
	}
	return append(body, '}')
}
