package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

func heap() int64 {
	for range 3 { // the second and third also free what finalizers and pools retain
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// many repeats an element of a list.
func many(n int, element string) string { return strings.Repeat(element+",", n-1) + element }

// distinct are n short names that no node has.
func distinct(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// podWith is a pod that no earlier request has, with something in its spec.
func podWith(i int, spec string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"n","name":"p","uid":"u%d","resourceVersion":"1"},"spec":{%s}}`, i, spec)
}

// hostile are bodies that would take a lot of memory for their size. Each has its own pod.
var hostile = map[string]struct {
	verb string
	body func(i int) string
}{
	"victims without anything": {"preempt", func(i int) string {
		return `{"Pod":` + podWith(i, ``) + `,"NodeNameToVictims":{"good":{"Pods":[` + many(800_000, `{}`) + `]}}}`
	}},
	"victims with containers": {"preempt", func(i int) string {
		return `{"Pod":` + podWith(i, ``) + `,"NodeNameToVictims":{"good":{"Pods":[` + many(4000, podWith(1, `"containers":[`+many(50, `{}`)+`]`)) + `]}}}`
	}},
	"victims on many nodes": {"preempt", func(i int) string {
		var b strings.Builder
		for n := range 30_000 {
			fmt.Fprintf(&b, `"%x":{"Pods":[{"UID":"%x"}]},`, n, n)
		}
		return `{"Pod":` + podWith(i, ``) + `,"NodeNameToMetaVictims":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}},
	"a pod of very many containers": {"filter", func(i int) string {
		return `{"Pod":` + podWith(i, `"containers":[`+many(333_333, `{}`)+`]`) + `,"NodeNames":["good"]}`
	}},
	"a pod of many containers": {"filter", func(i int) string {
		return `{"Pod":` + podWith(i, `"containers":[`+many(6_000, `{}`)+`]`) + `,"NodeNames":["good"]}`
	}},
	"a preempting pod of many containers": {"preempt", func(i int) string {
		return `{"Pod":` + podWith(i, `"containers":[`+many(6_000, `{}`)+`]`) + `,"NodeNameToMetaVictims":{}}`
	}},
	"a long pod name": {"filter", func(int) string {
		return `{"Pod":{"metadata":{"name":"` + strings.Repeat("x", 4<<20) + `"}},"NodeNames":["good"]}`
	}},
	"long names in a bind call": {"bind", func(int) string {
		long := strings.Repeat("x", 1<<20)
		return `{"PodName":"` + long + `","PodNamespace":"` + long + `","PodUID":"` + long + `","Node":"` + long + `"}`
	}},
	"a long node name": {"filter", func(i int) string {
		return `{"Pod":` + podWith(i, ``) + `,"NodeNames":["good","` + strings.Repeat("x", 4<<20) + `"]}`
	}},
	"a policy's error that repeats an annotation": {"filter", func(int) string {
		return `{"Pod":{"metadata":{"name":"p","annotations":{"error":"` + strings.Repeat("x ", 1<<20) + `"}}},"NodeNames":["good"]}`
	}},
	"unknown nodes": {"filter", func(i int) string {
		return `{"Pod":` + podWith(i, ``) + `,"NodeNames":[` + distinct(65_000) + `]}`
	}},
	"new nodes of many conditions": {"filter", func(i int) string {
		return `{"Pod":` + podWith(i, ``) + `,"Nodes":{"items":[{"metadata":{"name":"` + fmt.Sprint("new", i) + `"},"status":{"conditions":[` + many(6_000, `{}`) + `]}}]}}`
	}},
}

// The handler retains almost nothing of any calls, however many.
func TestMemoryOfRequestsIsFreed(t *testing.T) {
	for name, attack := range hostile {
		t.Run(name, func(t *testing.T) {
			h, _ := handlerOf(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}},
				func(_ *engine.Options, o *extender.Options) { o.Log = decision.NewLog(0) })
			here(t, h, attack.verb, attack.body(0)) // allocates now what exists at most once
			before := heap()
			const calls = 10
			for i := range calls {
				here(t, h, attack.verb, attack.body(i))
			}
			if kept := heap() - before; kept > calls<<20 {
				t.Errorf("the handler retains %d MiB", kept>>20)
			}
			runtime.KeepAlive(h)
		})
	}
}

// Decoding a body does not take hundreds of times its size, except for bodies that are small anyway.
func TestMemoryOfBodiesIsBounded(t *testing.T) {
	for name, attack := range hostile {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}})
			body := attack.body(0)
			if took := allocated(func() { s.post(t, attack.verb, body) }); took > 64<<20 {
				t.Errorf("the handler allocates %d MiB for a body of %d KiB", took>>20, len(body)>>10)
			}
		})
	}
}

// The handler allocates memory for a body only when the body begins to arrive, whatever size a client announces.
func TestAnnouncedBodyTakesNoMemory(t *testing.T) {
	handler, err := newHandler(manyNodes(3), 0)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, "/filter", strings.NewReader(`{"Pod":`))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 50 << 20
	if took := allocated(func() { handler.ServeHTTP(nowhere{http.Header{}}, req) }); took > 1<<20 {
		t.Errorf("the handler allocates %d MiB for 7 bytes", took>>20)
	}
}

// A request reserves memory once, before its body is decoded, and a usual request reserves little.
func TestReserve(t *testing.T) {
	var reserved []int64
	var refuse error
	s := serve(t, &fakeCluster{view: view(threeNodes), pods: []*corev1.Pod{somePod()}}, func(_ *engine.Options, o *extender.Options) {
		o.ReserveMemory = func(_ context.Context, bytes int64) error {
			reserved = append(reserved, bytes)
			return refuse
		}
	})
	usual, err := json.Marshal(usualPod())
	if err != nil {
		t.Fatal(err)
	}
	known := encode(t, somePod())
	for _, tt := range []struct {
		name, verb, body string
		least, most      int64
	}{
		{"a pod that is known", "filter", `{"Pod":` + known + `,"NodeNames":["good","better"]}`, 2 * 384, 2 * 384},
		{"500 names and a usual pod", "filter", `{"Pod":` + string(usual) + `,"NodeNames":[` + distinct(500) + `]}`, 500 * 384, 1 << 20},
		{"many containers", "prioritize", hostile["a pod of many containers"].body(0), 4 * 6_000 << 10, 4 * 8 << 20},
		{"a victim that is a whole pod", "preempt", `{"Pod":` + known + `,"NodeNameToVictims":{"good":{"Pods":[` + string(usual) + `]}}}`, 384, 384},
		{"a large body", "filter", hostile["a long pod name"].body(0), 64 << 20, 64 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reserved, refuse = nil, nil
			s.post(t, tt.verb, tt.body)
			if len(reserved) != 1 || reserved[0] < tt.least || reserved[0] > tt.most {
				t.Errorf("the handler reserves %d bytes, want %d to %d, once", reserved, tt.least, tt.most)
			}
			refuse = errors.New("no memory")
			if got := decode[struct{ Error string }](t, s.post(t, tt.verb, tt.body)); got.Error != "no memory" {
				t.Errorf("without memory: got Error %q", got.Error)
			}
		})
	}
}

// A request beyond a limit gets an error that names the limit.
func TestErrorsNameTheLimit(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	long := strings.Repeat("x", 254)
	for _, tt := range []struct{ verb, body, want string }{
		{"filter", `{"Pod":{"metadata":{"name":"` + long + `"}},"NodeNames":["good"]}`, "Pod.metadata.name: the value has 254 bytes, the limit is 253"},
		{"filter", `{"Pod":{"metadata":{"name":"p"}},"NodeNames":["` + long + `"]}`, "NodeNames[0]: the name has 254 bytes, the limit is 253"},
		{"filter", hostile["a pod of very many containers"].body(0), "decoding the pod: decoding it may take 427670881 bytes of memory, the limit is 8388608"},
		{"filter", `{"Pod":{"metadata":{"name":"p","annotations":{"x":"` + strings.Repeat("x", 3<<20) + `"}}},"NodeNames":["good"]}`, "decoding the pod: it has 3145776 bytes of JSON, the limit is 3145728"},
		{"filter", `{"Pod":` + podWith(0, `"overhead":{"a":"1e-9999"}`) + `,"NodeNames":["good"]}`, "decoding the pod: a resource quantity has a negative exponent of more than 3 digits"},
		{"preempt", hostile["victims without anything"].body(0), `NodeNameToVictims["good"].Pods[4096]: more than 4096 victims on one node`},
		{"bind", `{"PodName":"` + long + `","PodNamespace":"n","PodUID":"u","Node":"good"}`, "PodName has 254 bytes, the limit is 253"},
		{"bind", `{"PodName":"p","PodNamespace":"n","PodUID":"` + long + `","Node":"good"}`, "PodUID has 254 bytes, the limit is 128"},
		{"bind", `{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"good","x":"` + strings.Repeat("x", 16<<10) + `"}`, "the limit for a bind call is 16384"},
	} {
		if got := failure(t, s.post(t, tt.verb, tt.body)); !strings.Contains(got, tt.want) {
			t.Errorf("%s of %.80s…: got %q, want %q", tt.verb, tt.body, got, tt.want)
		}
	}
	// The maximum is accepted.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: long[:253], Namespace: long[:63]}}
	got := decode[extenderv1.ExtenderFilterResult](t, s.post(t, "filter", encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: names("good", long[:253])})))
	if got.Error != "" {
		t.Errorf("names of maximum length: got Error %s", got.Error)
	}
}

// Requests with many unknown nodes are decoded one after the other, and all get a response.
func TestManyNewNodesAtOnce(t *testing.T) {
	s := serve(t, &fakeCluster{view: view(threeNodes)})
	list := corev1.NodeList{}
	for i := range 600 {
		n := labelled(fmt.Sprintf("new-%03d", i))
		n.Annotations = map[string]string{"long": strings.Repeat("x", 8<<10)}
		list.Items = append(list.Items, *n)
	}
	body := encode(t, extenderv1.ExtenderArgs{Pod: somePod(), Nodes: &list})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			res, err := http.Post(s.URL+"/filter", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			var answer extenderv1.ExtenderFilterResult
			if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Error != "" || len(answer.Nodes.Items) != len(list.Items) {
				t.Errorf("error %v, response with the error %q", err, answer.Error)
			}
		})
	}
	all.Wait()
}

// A caller cannot fill the log: it has a few lines for each cause.
func TestFailuresDoNotFillTheLog(t *testing.T) {
	var log lockedBuffer
	synctest.Test(t, func(t *testing.T) { // in which no time passes, after which there would be more lines
		h, _ := handlerOf(t, &fakeCluster{view: view(threeNodes)}, func(_ *engine.Options, o *extender.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		for i := range 300 {
			here(t, h, "filter", `{"Pod":`)
			here(t, h, "bind", fmt.Sprintf(`{"PodName":"p%d","PodNamespace":"default","PodUID":"u","Node":"good"}`, i))
		}
		here(t, h, "filter", encode(t, extenderv1.ExtenderArgs{Pod: somePod("error", "x"), NodeNames: names("good")}))
	})
	lines := log.String()
	for text, want := range map[string]int{"does not exist": 10, "verb=filter": 11, "policy Labels": 1} {
		if got := strings.Count(lines, text); got != want {
			t.Errorf("%d lines with %q, want %d:\n%s", got, text, want, lines)
		}
	}
}

// A policy that takes much of the time for which kube-scheduler waits is named in the log, and in the error when kube-scheduler gives up.
func TestSlowPolicyIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		want  []string
	}{
		"slow":     {400 * time.Millisecond, []string{"policy is slow", "policy=Policy took=800ms"}},
		"too slow": {4 * time.Second, []string{"policy is slow", "policy=Policy took=8s", "error=\"policy Policy had taken 8.0 s: context deadline exceeded"}},
		"fast":     {time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			synctest.Test(t, func(t *testing.T) {
				h, _ := handlerOf(t, &fakeCluster{view: view(threeNodes)}, with(sleeps(tt.takes), nil, nil), func(e *engine.Options, o *extender.Options) {
					e.Clock, o.Logger = time.Now, slog.New(slog.NewTextHandler(&log, nil))
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				body := encode(t, extenderv1.ExtenderArgs{Pod: somePod(), NodeNames: names("good", "better")})
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/filter", strings.NewReader(body)))
			})
			for _, text := range tt.want {
				if !strings.Contains(log.String(), text) {
					t.Errorf("the log does not have %q:\n%s", text, log.String())
				}
			}
			if tt.want == nil && log.String() != "" {
				t.Errorf("the log has %s", log.String())
			}
		})
	}
}

// sleeps is a policy that takes this long for each node.
type sleeps time.Duration

func (s sleeps) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return s, nil
}

func (s sleeps) Filter(*snapshot.Node) policy.Verdict {
	time.Sleep(time.Duration(s))
	return policy.Verdict{}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
