package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// extender passes every rule, except for what its hooks change. It rejects nodes
// whose name ends in 3 for every pod, and all nodes for a pod with a node selector.
type extender struct {
	filter     func(args *extenderv1.ExtenderArgs, result *extenderv1.ExtenderFilterResult)
	prioritize func(args *extenderv1.ExtenderArgs, scores *extenderv1.HostPriorityList)
	preempt    func(args *extenderv1.ExtenderPreemptionArgs, kept map[string]*extenderv1.MetaVictims)
	bind       func(args *extenderv1.ExtenderBindingArgs, result *extenderv1.ExtenderBindingResult)
	// reply writes the response as JSON; first gets every request before anything else, and returns true if it has handled it.
	reply func(w http.ResponseWriter, body []byte)
	first func(w http.ResponseWriter, r *http.Request) bool
}

func (e *extender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.first != nil && e.first(w, r) {
		return
	}
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var answer any
	switch r.URL.Path {
	case "/filter":
		answer = e.answerFilter(body)
	case "/prioritize":
		answer = e.answerPrioritize(body)
	case "/preempt":
		answer = e.answerPreempt(body)
	case "/bind":
		answer = e.answerBind(body)
	default:
		http.NotFound(w, r)
		return
	}
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	if e.reply != nil {
		e.reply(w, data)
		return
	}
	writeExactly(w, data)
}

func writeExactly(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func (e *extender) answerFilter(body []byte) any {
	var args extenderv1.ExtenderArgs
	result := &extenderv1.ExtenderFilterResult{}
	if err := json.Unmarshal(body, &args); err != nil {
		result.Error = "the request is not JSON of an ExtenderArgs: " + err.Error()
		return result
	}
	if args.Pod == nil || (args.Nodes == nil) == (args.NodeNames == nil) {
		result.Error = "the request needs a pod, and either nodes or names"
		return result
	}
	result.FailedNodes = make(extenderv1.FailedNodesMap)
	fits := func(name string) bool {
		if len(args.Pod.Spec.NodeSelector) > 0 || strings.HasSuffix(name, "3") {
			result.FailedNodes[name] = "no room"
			return false
		}
		return true
	}
	if args.NodeNames != nil {
		names := []string{}
		for _, name := range *args.NodeNames {
			if fits(name) {
				names = append(names, name)
			}
		}
		result.NodeNames = &names
	} else {
		result.Nodes = &corev1.NodeList{Items: []corev1.Node{}}
		for _, node := range args.Nodes.Items {
			if fits(node.Name) {
				result.Nodes.Items = append(result.Nodes.Items, node)
			}
		}
	}
	if e.filter != nil {
		e.filter(&args, result)
	}
	return result
}

func askedNames(args *extenderv1.ExtenderArgs) (names []string) {
	if args.NodeNames != nil {
		names = append(names, *args.NodeNames...)
	}
	if args.Nodes != nil {
		for _, node := range args.Nodes.Items {
			names = append(names, node.Name)
		}
	}
	return names
}

func (e *extender) answerPrioritize(body []byte) any {
	var args extenderv1.ExtenderArgs
	scores := extenderv1.HostPriorityList{}
	if err := json.Unmarshal(body, &args); err != nil || args.Pod == nil {
		return scores
	}
	seen := make(map[string]bool)
	for _, name := range askedNames(&args) {
		if !seen[name] {
			scores = append(scores, extenderv1.HostPriority{Host: name, Score: int64(len(name) % 11)})
		}
		seen[name] = true
	}
	if e.prioritize != nil {
		e.prioritize(&args, &scores)
	}
	return scores
}

func (e *extender) answerPreempt(body []byte) any {
	var args extenderv1.ExtenderPreemptionArgs
	result := &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims)}
	if err := json.Unmarshal(body, &args); err != nil {
		return result
	}
	for name, victims := range args.NodeNameToMetaVictims {
		if victims != nil {
			result.NodeNameToMetaVictims[name] = victims
		}
	}
	for name, victims := range args.NodeNameToVictims {
		if victims == nil {
			continue
		}
		meta := &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, pod := range victims.Pods {
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
		result.NodeNameToMetaVictims[name] = meta
	}
	if e.preempt != nil && len(result.NodeNameToMetaVictims) > 0 {
		e.preempt(&args, result.NodeNameToMetaVictims)
	}
	return result
}

func (e *extender) answerBind(body []byte) any {
	var args extenderv1.ExtenderBindingArgs
	result := &extenderv1.ExtenderBindingResult{}
	if err := json.Unmarshal(body, &args); err != nil || args.PodName == "" {
		result.Error = "the request is not JSON of an ExtenderBindingArgs"
		return result
	}
	result.Error = fmt.Sprintf("pod %q not found", args.PodName)
	if e.bind != nil {
		e.bind(&args, result)
	}
	return result
}

// nodesNamed returns nodes of real size with the names.
func nodesNamed(names ...string) (nodes []corev1.Node) {
	template := imaginaryNodeObject()
	for _, name := range names {
		nodes = append(nodes, *named(template, name))
	}
	return nodes
}

// serve starts the handler on loopback until the test ends.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server.URL
}

// quick makes requests small and few, and sets timeouts that are long enough for a busy machine.
func quick(o Options) Options {
	o.Sizes = []int{20, 50}
	o.ImaginaryPods = 6
	if o.HTTPTimeout == 0 {
		o.HTTPTimeout = 10 * time.Minute
	}
	o.Budget = time.Hour
	return o
}

func allVerbs(url string) Options {
	return quick(Options{
		URL: url, Verbs: map[decision.Verb]string{"filter": "filter", "prioritize": "prioritize", "preempt": "preempt", "bind": "bind"}, Mode: ModeBoth,
	})
}

func mustRun(t *testing.T, o Options) *Report {
	t.Helper()
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// broken returns the ids of the broken rules, in the order of the report. It omits encrypted, because most tests serve plain
// HTTP.
func broken(report *Report) (ids []string) {
	for _, result := range report.Results {
		if result.Outcome == Failed && result.ID != "encrypted" {
			ids = append(ids, result.ID)
		}
	}
	return ids
}

func resultOf(t *testing.T, report *Report, id string) Result {
	t.Helper()
	i := slices.IndexFunc(report.Results, func(r Result) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("no rule %q", id)
	}
	return report.Results[i]
}

func text(t *testing.T, report *Report) string {
	t.Helper()
	var b strings.Builder
	if err := report.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
