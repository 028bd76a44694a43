package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// Each extender violates one rule; the report must name only this rule.
var brokenExtenders = []struct {
	rule    string
	how     string
	options func(*Options) // default: filter alone, in names mode
	make    func() http.Handler
	detail  string // in the report
}{
	{rule: "responses", how: "cuts the connection", make: func() http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}},
	{rule: "responses", how: "cuts the connection in the middle of the response", make: func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write([]byte(`{"NodeNames":[`))
			panic(http.ErrAbortHandler)
		})
	}},
	{rule: "in-time", how: "never answers", options: impatient, detail: "a longer --timeout", make: func() http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
	}},
	{rule: "bounded", how: "answers without end", make: func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			chunk := []byte(strings.Repeat(`"node",`, 10_000))
			_, _ = w.Write([]byte(`{"NodeNames":[`))
			for err := error(nil); err == nil; {
				_, err = w.Write(chunk)
			}
		})
	}},
	{rule: "bounded", how: "answers with many more nodes than asked", options: nodes, make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, _ []byte) {
			writeExactly(w, []byte(`{"Nodes":{"items":[{}`+strings.Repeat(`,{}`, 100_000)+`]}}`))
		}}
	}},
	{rule: "status-200", how: "answers 503", make: func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "cache not synced", http.StatusServiceUnavailable)
		})
	}},
	{rule: "no-redirect", how: "sends calls on", make: func() http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/filter", http.RedirectHandler("/v1/filter", http.StatusTemporaryRedirect))
		mux.Handle("/v1/", http.StripPrefix("/v1", &extender{}))
		return mux
	}},
	{rule: "json", how: "answers in text", make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, _ []byte) { writeExactly(w, []byte("ok")) }}
	}},
	{rule: "no-error", how: "does not know its nodes", options: func(o *Options) { o.Nodes = nodesNamed("a", "b") }, make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r = extenderv1.ExtenderFilterResult{Error: `node "a" not found`}
		}}
	}},

	{rule: "mode", how: "answers names with nodes", make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			r.Nodes, r.NodeNames = &corev1.NodeList{Items: make([]corev1.Node, 1)}, nil
		}}
	}},
	{rule: "mode", how: "answers nodes with names", options: nodes, make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			names := askedNames(args)
			r.Nodes, r.NodeNames = nil, &names
		}}
	}},
	{rule: "subset", how: "adds a node of its own", make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r.NodeNames = append(*r.NodeNames, "gpu-1")
		}}
	}},
	{rule: "order", how: "sorts backwards", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) { slices.Reverse(*r.NodeNames) }}
	}},
	{rule: "no-duplicates", how: "repeats the first node", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if len(*r.NodeNames) > 0 {
				*r.NodeNames = append(*r.NodeNames, (*r.NodeNames)[0])
			}
		}}
	}},
	{rule: "reasons", how: "rejects without a word", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) { r.FailedNodes = nil }}
	}},
	{rule: "reasons", how: "answers {}", make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r = extenderv1.ExtenderFilterResult{}
		}}
	}},
	{rule: "reasons-group", how: "writes the node's name into the reason", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			for name := range r.FailedNodes {
				r.FailedNodes[name] = "no room on " + name
			}
		}}
	}},
	{rule: "failed-known", how: "lists a node of its own as failed", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			r.FailedNodes["gpu-1"] = "no room"
		}}
	}},
	{rule: "failed-disjoint", how: "uses both maps", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			r.FailedAndUnresolvableNodes = r.FailedNodes
		}}
	}},
	{rule: "failed-not-passed", how: "passes and fails a node", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			for _, name := range *r.NodeNames {
				r.FailedNodes[name] = "no room"
			}
		}}
	}},
	{rule: "nodes-unchanged", how: "drops a field its libraries do not know", options: nodes, make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			for i := range r.Nodes.Items {
				r.Nodes.Items[i].Status.DeclaredFeatures = nil
			}
		}}
	}},
	{rule: "score-range", how: "scores up to 100", options: prioritize, make: scored(func(s *extenderv1.HostPriorityList) { add(s, 90) })},
	{rule: "score-known", how: "scores a node of its own", options: prioritize, make: func() http.Handler {
		return &extender{prioritize: func(_ *extenderv1.ExtenderArgs, s *extenderv1.HostPriorityList) {
			*s = append(*s, extenderv1.HostPriority{Host: "gpu-1", Score: 1})
		}}
	}},
	{rule: "score-once", how: "scores a node twice", options: prioritize, make: scored(func(s *extenderv1.HostPriorityList) { *s = append(*s, slices.MinFunc(*s, byHost)) })},
	{rule: "score-all", how: "leaves a node out", options: prioritize, make: scored(func(s *extenderv1.HostPriorityList) {
		*s = slices.DeleteFunc(*s, func(h extenderv1.HostPriority) bool { return strings.HasSuffix(h.Host, "-0") })
	})},

	{rule: "preempt-form", how: "answers with NodeNameToVictims", options: preempt, make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, body []byte) {
			writeExactly(w, bytes.ReplaceAll(body, []byte("NodeNameToMetaVictims"), []byte("NodeNameToVictims")))
		}}
	}},
	{rule: "preempt-null", how: "drops a node by null", options: preempt, make: preempted(func(kept map[string]*extenderv1.MetaVictims, name string) { kept[name] = nil })},
	{rule: "preempt-nodes", how: "adds a node of its own", options: preempt, make: func() http.Handler {
		return &extender{preempt: func(_ *extenderv1.ExtenderPreemptionArgs, kept map[string]*extenderv1.MetaVictims) {
			kept["gpu-1"] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "x"}}}
		}}
	}},
	{rule: "preempt-not-empty", how: "keeps a node without victims", options: preempt, make: preempted(func(kept map[string]*extenderv1.MetaVictims, name string) {
		kept[name] = &extenderv1.MetaVictims{}
	})},
	{rule: "preempt-known", how: "adds a pod of another node", options: preempt, make: preempted(func(kept map[string]*extenderv1.MetaVictims, name string) {
		kept[name].Pods = append(kept[name].Pods, kept["outboard-verify-node-1"].Pods[0])
	})},
	{rule: "preempt-untrimmed", how: "spares a victim", options: preempt, make: preempted(func(kept map[string]*extenderv1.MetaVictims, name string) {
		kept[name].Pods = kept[name].Pods[:1]
	})},
	{rule: "preempt-pdb", how: "forgets the budgets", options: preempt, make: func() http.Handler {
		return &extender{preempt: func(_ *extenderv1.ExtenderPreemptionArgs, kept map[string]*extenderv1.MetaVictims) {
			for name := range kept {
				kept[name].NumPDBViolations = 0
			}
		}}
	}},

	{rule: "bind-unknown-pod", how: "reports everything as bound", options: bind, make: func() http.Handler {
		return &extender{bind: func(_ *extenderv1.ExtenderBindingArgs, r *extenderv1.ExtenderBindingResult) { r.Error = "" }}
	}},

	{rule: "same-response", how: "throws dice", make: func() http.Handler {
		var calls atomic.Int64
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if len(*r.NodeNames) > 1 && calls.Add(1)%2 == 0 {
				*r.NodeNames = (*r.NodeNames)[1:]
			}
		}}
	}},
	{rule: "order-independent", how: "passes the first half", make: func() http.Handler {
		return &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r.NodeNames = (*r.NodeNames)[:(len(*r.NodeNames)+1)/2]
		}}
	}},
	{rule: "no-side-effects", how: "reserves while it filters", make: func() http.Handler {
		// Each pod gets one of four places on each node; another call for the same pod changes nothing.
		var mu sync.Mutex
		reserved := make(map[types.UID]bool)
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			mu.Lock()
			defer mu.Unlock()
			if len(*r.NodeNames) == 0 {
				return
			}
			if reserved[args.Pod.UID] = true; len(reserved) > 4 {
				for _, name := range *r.NodeNames {
					r.FailedNodes[name] = "no room"
				}
				*r.NodeNames = []string{}
			}
		}}
	}},

	{rule: "connection-reuse", how: "sends answers in chunks", options: func(o *Options) { filterNames(o); o.Sizes = []int{500} }, make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, body []byte) {
			_, _ = w.Write(body)
			_ = http.NewResponseController(w).Flush()
		}}
	}},
	{rule: "concurrent", how: "answers one caller with another's request", make: func() http.Handler {
		// The request stays in memory that the next one overwrites.
		var mu sync.Mutex
		var current []byte
		e := &extender{}
		return &extender{first: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/filter" || r.Method != http.MethodPost {
				return false
			}
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			current = body
			mu.Unlock()
			time.Sleep(2 * time.Millisecond) // the duration of the handler
			mu.Lock()
			answer, _ := json.Marshal(e.answerFilter(current))
			mu.Unlock()
			writeExactly(w, answer)
			return true
		}}
	}},
	{rule: "large-request", how: "has a body limit", options: nodes, make: func() http.Handler {
		return &extender{first: func(w http.ResponseWriter, r *http.Request) bool {
			if r.ContentLength <= 400_000 {
				return false
			}
			http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
			return true
		}}
	}},
	{rule: "large-request", how: "is busy with long lists", detail: "the extender is busy; the same request with ", make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if len(*args.NodeNames) > 90 {
				*r = extenderv1.ExtenderFilterResult{Error: "server busy: requests hold the memory"}
			}
		}}
	}, options: func(o *Options) { filterNames(o); o.Sizes = []int{20, 100}; o.Nodes = nodesNamed(manyNames(100)...) }},

	{rule: "json-forms", how: "looks for keys as kube-scheduler writes them", make: func() http.Handler {
		return &extender{first: func(w http.ResponseWriter, r *http.Request) bool {
			return refuseBody(w, r, func(body []byte) bool {
				return json.Valid(body) && bytes.Contains(body, []byte(`"pod":`))
			})
		}}
	}},
	{rule: "malformed-input", how: "panics without a pod", make: func() http.Handler {
		return &extender{first: func(_ http.ResponseWriter, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"Pod":null`)) && !bytes.Contains(body, []byte("Future")) {
				panic(http.ErrAbortHandler)
			}
			return false
		}}
	}},
	{rule: "malformed-input", how: "answers with its own nodes when asked about none", make: func() http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if len(*args.NodeNames) == 0 {
				*r.NodeNames = []string{"gpu-1"}
			}
		}}
	}},
	{rule: "malformed-rejected", how: "takes what it cannot read for an empty request", make: func() http.Handler {
		return &extender{first: func(w http.ResponseWriter, r *http.Request) bool {
			return answerBody(w, r, func(body []byte) []byte {
				if json.Unmarshal(body, &extenderv1.ExtenderArgs{}) == nil {
					return nil
				}
				return []byte(`{"NodeNames":[]}`)
			})
		}}
	}},
	{rule: "error-form", how: "answers 400", make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, body []byte) {
			if bytes.Contains(body, []byte(`"Error":"the request`)) {
				w.WriteHeader(http.StatusBadRequest)
			}
			writeExactly(w, body)
		}}
	}},
	{rule: "error-form", how: "answers in text", make: func() http.Handler {
		return &extender{reply: func(w http.ResponseWriter, body []byte) {
			if bytes.Contains(body, []byte(`"Error":"the request`)) {
				body = []byte("bad request")
			}
			writeExactly(w, body)
		}}
	}},
	{rule: "method", how: "answers GET", make: func() http.Handler {
		return &extender{first: func(_ http.ResponseWriter, r *http.Request) bool {
			r.Method = http.MethodPost
			return false
		}}
	}},
	{rule: "unknown-path", how: "answers on every path", make: func() http.Handler {
		return &extender{first: func(_ http.ResponseWriter, r *http.Request) bool {
			r.URL.Path = "/filter"
			return false
		}}
	}},
	{rule: "survives", how: "is stuck after a bad request", make: func() http.Handler {
		var stuck atomic.Bool
		return &extender{
			first: func(w http.ResponseWriter, r *http.Request) bool {
				if stuck.Load() {
					http.Error(w, "poisoned", http.StatusInternalServerError)
				}
				return stuck.Load()
			},
			reply: func(w http.ResponseWriter, body []byte) {
				stuck.Store(bytes.Contains(body, []byte(`"Error":"the request`)))
				writeExactly(w, body)
			},
		}
	}},
	{rule: "survives", how: "remembers names it was asked about", make: func() http.Handler {
		var confused atomic.Bool
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if slices.Contains(*args.NodeNames, "outboard-verify-unknown") {
				confused.Store(true)
			} else if confused.Load() && len(*r.NodeNames) > 0 {
				*r.NodeNames = (*r.NodeNames)[1:]
			}
		}}
	}},
}

// only returns the options with this verb only.
func only(verb decision.Verb) func(*Options) {
	return func(o *Options) {
		o.Verbs, o.Mode = map[decision.Verb]string{verb: string(verb)}, ModeNames
	}
}

func filterNames(o *Options) { only(decision.Filter)(o) }
func impatient(o *Options)   { filterNames(o); o.HTTPTimeout = 50 * time.Millisecond }
func nodes(o *Options)       { filterNames(o); o.Mode = ModeNodes }
func prioritize(o *Options)  { only(decision.Prioritize)(o) }
func preempt(o *Options)     { only(decision.Preempt)(o) }
func bind(o *Options)        { only(decision.Bind)(o) }

func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	return names
}

// scored edits the scores of more than one node.
func scored(edit func(*extenderv1.HostPriorityList)) func() http.Handler {
	return func() http.Handler {
		return &extender{prioritize: func(_ *extenderv1.ExtenderArgs, s *extenderv1.HostPriorityList) {
			if len(*s) > 1 {
				edit(s)
			}
		}}
	}
}

func add(s *extenderv1.HostPriorityList, points int64) {
	for i := range *s {
		(*s)[i].Score += points
	}
}

func byHost(a, b extenderv1.HostPriority) int { return strings.Compare(a.Host, b.Host) }

// preempted edits one candidate, the same one each time.
func preempted(edit func(kept map[string]*extenderv1.MetaVictims, name string)) func() http.Handler {
	return func() http.Handler {
		return &extender{preempt: func(_ *extenderv1.ExtenderPreemptionArgs, kept map[string]*extenderv1.MetaVictims) {
			edit(kept, "outboard-verify-node-0")
		}}
	}
}

// refuseBody rejects, in the form of the verb, the bodies for which refuse returns true.
func refuseBody(w http.ResponseWriter, r *http.Request, refuse func([]byte) bool) bool {
	return answerBody(w, r, func(body []byte) []byte {
		switch {
		case !refuse(body):
			return nil
		case r.URL.Path == "/prioritize":
			return []byte("[]")
		default:
			return []byte(`{"Error":"not understood"}`)
		}
	})
}

// answerBody returns the answer to the body; nil: the usual one.
func answerBody(w http.ResponseWriter, r *http.Request, answer func([]byte) []byte) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	data := answer(body)
	if r.Method != http.MethodPost || data == nil {
		return false
	}
	writeExactly(w, data)
	return true
}

func TestEachBrokenExtenderIsReportedForItsRule(t *testing.T) {
	for _, test := range brokenExtenders {
		t.Run(test.rule+"/"+strings.ReplaceAll(test.how, " ", "-"), func(t *testing.T) {
			t.Parallel()
			o := quick(Options{URL: serve(t, test.make())})
			filterNames(&o)
			if test.options != nil {
				test.options(&o)
			}
			report := mustRun(t, o)
			if diff := cmp.Diff([]string{test.rule}, broken(report)); diff != "" {
				t.Errorf("broken rules, - want + got:\n%s\n%s", diff, text(t, report))
			}
			if out := text(t, report); !strings.Contains(out, test.detail) {
				t.Errorf("got\n%s\nwant %q", out, test.detail)
			}
			if want := resultOf(t, report, test.rule).Severity != SeverityError; report.OK() != want {
				t.Errorf("OK() = %t", report.OK())
			}
		})
	}
}
