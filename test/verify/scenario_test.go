package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
)

// tutorial is an extender in the style of tutorials: it uses the standard decoder and encoder, ignores the method, and
// dereferences the nodes as expected in its mode.
func tutorial(cacheCapable bool) http.Handler {
	decode := func(w http.ResponseWriter, r *http.Request) *extenderv1.ExtenderArgs {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return nil
		}
		return &args
	}
	send := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	suits := func(pod *corev1.Pod, node string) bool {
		return !strings.HasSuffix(node, "3") && !strings.HasSuffix(pod.Name, "-unschedulable")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/scheduler/filter", func(w http.ResponseWriter, r *http.Request) {
		args := decode(w, r)
		if args == nil {
			return
		}
		result := extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{}}
		if cacheCapable {
			names := []string{}
			for _, name := range *args.NodeNames {
				if suits(args.Pod, name) {
					names = append(names, name)
				} else {
					result.FailedNodes[name] = fmt.Sprintf("node %s does not suit pod %s", name, args.Pod.Name)
				}
			}
			result.NodeNames = &names
		} else {
			result.Nodes = &corev1.NodeList{}
			for _, node := range args.Nodes.Items {
				if suits(args.Pod, node.Name) {
					result.Nodes.Items = append(result.Nodes.Items, node)
				} else {
					result.FailedNodes[node.Name] = fmt.Sprintf("node %s does not suit pod %s", node.Name, args.Pod.Name)
				}
			}
		}
		send(w, result)
	})
	mux.HandleFunc("/scheduler/prioritize", func(w http.ResponseWriter, r *http.Request) {
		args := decode(w, r)
		if args == nil {
			return
		}
		scores := extenderv1.HostPriorityList{}
		for _, name := range askedNames(args) {
			scores = append(scores, extenderv1.HostPriority{Host: name, Score: int64(len(name) % 11)})
		}
		send(w, scores)
	})
	return recovering(mux)
}

// recovering cuts the connection on a panic as net/http does, without its log.
func recovering(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				panic(http.ErrAbortHandler)
			}
		}()
		handler.ServeHTTP(w, r)
	})
}

func TestWhatTutorialsBreak(t *testing.T) {
	for _, test := range []struct {
		cacheCapable bool
		mode         Mode
		sizes        []int
	}{{true, ModeNames, []int{20, 500}}, {false, ModeNodes, []int{20, 50}}} {
		t.Run(string(test.mode), func(t *testing.T) {
			o := quick(Options{URL: serve(t, tutorial(test.cacheCapable)) + "/scheduler/"})
			o.Sizes = test.sizes
			report := mustRun(t, o)
			if diff := cmp.Diff([]Mode{test.mode}, report.Modes); diff != "" {
				t.Errorf("modes: %s", diff)
			}
			want := []string{
				"reasons-group",    // the node's and the pod's names in the reason
				"connection-reuse", // json.Encoder, no Content-Length
				"malformed-input",  // dereferences nil
				"error-form",       // http.Error
				"method",           // accepts any method
			}
			if diff := cmp.Diff(want, broken(report)); diff != "" {
				t.Errorf("broken rules, - want + got:\n%s\n%s", diff, text(t, report))
			}
			if !report.OK() {
				t.Error("none of these is an error, and OK() is false")
			}
		})
	}
}

func TestModeIsFound(t *testing.T) {
	only := func(mode Mode) http.Handler {
		return &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			if mode != ModeBoth && (args.Nodes != nil) != (mode == ModeNodes) {
				*r = extenderv1.ExtenderFilterResult{Error: "wrong nodeCacheCapable"}
			}
		}}
	}
	for _, test := range []struct {
		name    string
		handler http.Handler
		want    []Mode
		ok      bool
	}{
		{"both", only(ModeBoth), []Mode{ModeNames, ModeNodes}, true},
		{"names", only(ModeNames), []Mode{ModeNames}, true},
		{"nodes", only(ModeNodes), []Mode{ModeNodes}, true},
		{"neither", http.NotFoundHandler(), []Mode{ModeNames}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := quick(Options{URL: serve(t, test.handler), Verbs: map[decision.Verb]string{"filter": "filter"}})
			o.Sizes, o.ImaginaryPods = []int{16}, -1
			report := mustRun(t, o)
			if diff := cmp.Diff(test.want, report.Modes); diff != "" || report.OK() != test.ok {
				t.Errorf("OK() = %t, modes %s\n%s", report.OK(), diff, text(t, report))
			}
		})
	}
}

func TestOneVerbAtItsOwnAddress(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/my_scheduler_extension/my_new_priorities/image_score", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/prioritize"
		(&extender{}).ServeHTTP(w, r)
	}))
	report := mustRun(t, quick(Options{
		URL: serve(t, mux) + "/my_scheduler_extension/my_new_priorities", Verbs: map[decision.Verb]string{"prioritize": "image_score"}, Mode: ModeNames,
	}))
	if ids := broken(report); len(ids) > 0 {
		t.Errorf("fails %v\n%s", ids, text(t, report))
	}
	if r := resultOf(t, report, "subset"); r.Outcome != NotApplicable || r.Why != "filter is not checked" {
		t.Errorf("subset: %s (%s)", r.Outcome, r.Why)
	}
	if r := resultOf(t, report, "score-range"); r.Outcome != Passed {
		t.Errorf("score-range: %s (%s)", r.Outcome, r.Why)
	}
}

// recorder keeps the requests that an extender gets.
type recorder struct {
	mu      sync.Mutex
	filter  []extenderv1.ExtenderArgs
	preempt []extenderv1.ExtenderPreemptionArgs
	bind    []extenderv1.ExtenderBindingArgs
}

func (r *recorder) extender() *extender {
	return &extender{
		filter: func(args *extenderv1.ExtenderArgs, _ *extenderv1.ExtenderFilterResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.filter = append(r.filter, *args)
		},
		preempt: func(args *extenderv1.ExtenderPreemptionArgs, _ map[string]*extenderv1.MetaVictims) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.preempt = append(r.preempt, *args)
		},
		bind: func(args *extenderv1.ExtenderBindingArgs, _ *extenderv1.ExtenderBindingResult) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.bind = append(r.bind, *args)
		},
	}
}

func TestQuestionsAreAboutWhatTheCallerGave(t *testing.T) {
	var asked recorder
	o := allVerbs(serve(t, asked.extender()))
	o.Mode = ModeNames
	o.Nodes = nodesNamed("rack-1", "rack-2")
	o.Pods = []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "uid-old"}, Spec: corev1.PodSpec{NodeName: "rack-2"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "lost", UID: "uid-lost"}, Spec: corev1.PodSpec{NodeName: "rack-9"}},
	}
	o.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	report := mustRun(t, o)
	if ids := broken(report); len(ids) > 0 {
		t.Errorf("fails %v\n%s", ids, text(t, report))
	}
	first := asked.filter[0]
	if diff := cmp.Diff([]string{"rack-1", "rack-2"}, *first.NodeNames); diff != "" {
		t.Errorf("names: %s", diff)
	}
	if p := first.Pod; p.Name != "train" || p.Namespace != "default" || p.UID == "" {
		t.Errorf("pod %s/%s with UID %q", p.Namespace, p.Name, p.UID)
	}
	want := map[string]*extenderv1.MetaVictims{"rack-2": {Pods: []*extenderv1.MetaPod{{UID: "uid-old"}}}}
	if diff := cmp.Diff(want, asked.preempt[0].NodeNameToMetaVictims); diff != "" {
		t.Errorf("candidates: %s", diff)
	}
	for _, bind := range asked.bind {
		if bind.PodNamespace != "outboard-verify" {
			t.Errorf("got a bind call for %s/%s", bind.PodNamespace, bind.PodName)
		}
	}
}

// A victim that the options do not name may still be on a real node.
func TestAddedVictimsAreJudgedByWhatIsKnown(t *testing.T) {
	add := func(uid string) http.Handler {
		return &extender{preempt: func(_ *extenderv1.ExtenderPreemptionArgs, kept map[string]*extenderv1.MetaVictims) {
			for _, victims := range kept {
				victims.Pods = append(victims.Pods, &extenderv1.MetaPod{UID: uid})
			}
		}}
	}
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}, Spec: corev1.PodSpec{NodeName: "rack-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid-b"}, Spec: corev1.PodSpec{NodeName: "rack-2"}},
	}
	for _, test := range []struct {
		name, uid string
		pods      []corev1.Pod
		want      Outcome
	}{
		{"pods are not known", "uid-b", nil, Passed},
		{"the pod is on one of two nodes", "uid-b", pods, Failed},
		{"the pod is nowhere", "uid-c", pods, Failed},
		{"the pod is on the node", "uid-b", pods[1:], Passed},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := quick(Options{URL: serve(t, add(test.uid)), Nodes: nodesNamed("rack-1", "rack-2"), Pods: test.pods})
			preempt(&o)
			if r := resultOf(t, mustRun(t, o), "preempt-known"); r.Outcome != test.want {
				t.Errorf("preempt-known: %s, want %s: %v", r.Outcome, test.want, r.Findings)
			}
		})
	}
}

// The report does not blame an extender that knows none of the imaginary nodes, and notes this.
func TestImaginaryNodesMayBeUnknown(t *testing.T) {
	for name, handler := range map[string]http.Handler{
		"Error": &extender{filter: func(_ *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r = extenderv1.ExtenderFilterResult{Error: "unknown node"}
		}},
		"rejected": &extender{filter: func(args *extenderv1.ExtenderArgs, r *extenderv1.ExtenderFilterResult) {
			*r.NodeNames = []string{}
			for _, name := range *args.NodeNames {
				r.FailedNodes[name] = "unknown node"
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := quick(Options{URL: serve(t, handler)})
			filterNames(&o)
			report := mustRun(t, o)
			if ids := broken(report); len(ids) > 0 || !report.OK() {
				t.Errorf("fails %v\n%s", ids, text(t, report))
			}
			if !slices.ContainsFunc(report.Notes, func(note string) bool {
				return strings.Contains(note, "give nodes that the extender knows")
			}) {
				t.Errorf("notes: %q", report.Notes)
			}
		})
	}
}

// The checker reads a bounded part of any response, even if it is compressed.
func TestEndlessResponsesAreCutOff(t *testing.T) {
	const much = 1 << 30
	for name, write := range map[string]func(w http.ResponseWriter) int64{
		"one string": func(w http.ResponseWriter) int64 {
			w.Header().Set("Content-Length", fmt.Sprint(much))
			n, _ := io.CopyN(w, endless('x', `{"Error":"`), much)
			return n
		},
		"compressed": func(w http.ResponseWriter) int64 {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			n, _ := io.CopyN(z, endless(' ', ""), much)
			return n / 1000 // the ratio of gzip
		},
		"status 500": func(w http.ResponseWriter) int64 {
			w.WriteHeader(http.StatusInternalServerError)
			n, _ := io.CopyN(w, endless('x', ""), much)
			return n
		},
		"empty scores": func(w http.ResponseWriter) int64 {
			n, _ := io.Copy(w, io.LimitReader(endless(',', `[`), much))
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			o := quick(Options{URL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sent.Add(write(w)) }))})
			filterNames(&o)
			report := mustRun(t, o)
			if report.OK() {
				t.Error("OK() is true")
			}
			if sent.Load() > 100<<20 {
				t.Errorf("the checker read %d bytes", sent.Load())
			}
		})
	}
}

func endless(filler byte, start string) io.Reader {
	chunk := bytes.Repeat([]byte{filler}, 64<<10)
	return io.MultiReader(strings.NewReader(start), readerFunc(func(p []byte) (int, error) { return copy(p, chunk), nil }))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRunEndsWithItsBudget(t *testing.T) {
	gate := make(chan struct{}) // never opens
	var calls atomic.Int64
	handler := &extender{first: func(_ http.ResponseWriter, r *http.Request) bool {
		if calls.Add(1) > 5 {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-gate:
			case <-r.Context().Done():
			}
			return true
		}
		return false
	}}
	o := quick(Options{URL: serve(t, handler), HTTPTimeout: time.Hour})
	filterNames(&o)
	o.Budget = 300 * time.Millisecond
	report := mustRun(t, o)
	if !slices.ContainsFunc(report.Notes, func(note string) bool { return strings.HasPrefix(note, "stopped after 300ms") }) {
		t.Errorf("notes: %q", report.Notes)
	}
	if ids := broken(report); len(ids) > 0 {
		t.Errorf("fails %v: the extender is blamed for the budget", ids)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := quick(Options{URL: serve(t, &extender{first: func(http.ResponseWriter, *http.Request) bool { cancel(); return false }})})
	if report, err := Run(ctx, o); !errors.Is(err, context.Canceled) || report != nil {
		t.Errorf("report %v, error %v", report, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{}, `URL: "": must be http://host… or https://host…`},
		{Options{URL: "ftp://x"}, `URL: "ftp://x": must be http://host… or https://host…`},
		{Options{URL: "http://u:secret@x\x7f"}, `URL: "x\x7f": not a URL: must be http://host… or https://host…`},
		{Options{URL: "http://x", Mode: "fast"}, `mode: "fast": must be names, nodes or both, or left out`},
		{Options{URL: "http://x", Sizes: []int{0}}, `sizes: 0: must be between 1 and 20000`},
		{Options{URL: "http://x", Nodes: nodesNamed("a", "a")}, `nodes: "a" is given twice`},
		{Options{URL: "http://x", Nodes: make([]corev1.Node, 1)}, `nodes: a node has no name`},
		{Options{URL: "http://x", Budget: -1}, `timeout and budget must not be negative`},
	} {
		_, err := Run(t.Context(), test.options)
		if err == nil || err.Error() != test.want {
			t.Errorf("%+v: error %v, want %s", test.options, err, test.want)
		}
	}
	two := Options{URL: "x", Mode: "y"}
	if _, err := Run(t.Context(), two); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two invalid options return %v", err)
	}
}
