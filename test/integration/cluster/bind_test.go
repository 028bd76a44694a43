package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

// One write sets nodeName and adds the annotations to those of the pod.
func TestBindWritesAnnotationsWithTheNodeName(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "write", "1")
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	pod := createPod(t, client, controlplane.PodSpec{Name: "write", Annotations: map[string]string{"mine": "1", "device": "none"}})
	versions, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", "write").String(), ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer versions.Stop()
	if err := c.Bind(t.Context(), bindingOf(pod, "write-1", "device", "gpu-3")); err != nil {
		t.Fatal(err)
	}
	event := <-versions.ResultChan()
	bound, ok := event.Object.(*corev1.Pod)
	if !ok || event.Type != watch.Modified {
		t.Fatalf("the first change is %v", event)
	}
	if bound.Spec.NodeName != "write-1" || bound.Annotations["device"] != "gpu-3" || bound.Annotations["mine"] != "1" {
		t.Errorf("the first change has node %q and annotations %v", bound.Spec.NodeName, bound.Annotations)
	}
}

// gate is a transport that holds back watch events while it is closed.
type gate struct {
	next http.RoundTripper
	mu   sync.RWMutex // held for writing while the gate is closed
}

func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") != "" {
		resp.Body = &gatedBody{resp.Body, g}
	}
	return resp, err
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.mu.RLock()
	defer b.gate.mu.RUnlock()
	return n, err
}

func withTransport(config *rest.Config, wrap func(http.RoundTripper) http.RoundTripper) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(wrap)
	return config
}

// A bound pod counts on its node when Bind returns, regardless of the watch.
func TestBoundPodIsCountedAtOnce(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "once", "1")
	var g *gate
	c := synced(t, cluster.Options{Config: withTransport(cp.AdminConfig(), func(next http.RoundTripper) http.RoundTripper {
		g = &gate{next: next}
		return g
	})})
	known := createPod(t, client, controlplane.PodSpec{Name: "once-known", CPU: "2", Annotations: map[string]string{"mine": "1"}})
	await(t, "pod", func() error {
		if c.PodByName("default", "once-known") == nil {
			return errors.New("is not known")
		}
		return nil
	})
	g.mu.Lock()
	opened := sync.OnceFunc(g.mu.Unlock)
	defer opened()
	unknown := createPod(t, client, controlplane.PodSpec{Name: "once-unknown", CPU: "3"})
	for _, pod := range []*corev1.Pod{known, unknown} {
		if err := c.Bind(t.Context(), bindingOf(pod, "once-1", "device", "gpu-1")); err != nil {
			t.Fatal(err)
		}
	}
	if got := show(c, "once"); got != "once-1[once-known once-unknown]" {
		t.Fatalf("got view %q", got)
	}
	for i, pod := range c.View().Node("once-1").Pods {
		if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().Value(); cpu != int64(2+i) || pod.Annotations["device"] != "gpu-1" || pod.Spec.NodeName != "once-1" {
			t.Errorf("pod %s is counted with %d CPU and annotations %v", pod.Name, cpu, pod.Annotations)
		}
		if pod.ManagedFields != nil || pod.Spec.Containers[0].ImagePullPolicy != "" {
			t.Errorf("pod %s is not trimmed", pod.Name)
		}
		if c.PodByName("default", pod.Name) != pod {
			t.Errorf("PodByName returns another object for pod %s", pod.Name)
		}
	}
	if got := c.View().Node("once-1").Pods[0].ResourceVersion; got != "" {
		t.Errorf("got version %s of the pod, which is that before the Binding", got)
	}
	if c.View().Node("once-1").Pods[0].Annotations["mine"] != "1" {
		t.Error("the pod's own annotation is missing")
	}
	if c.Pod(known.UID, known.ResourceVersion).Spec.NodeName != "" {
		t.Error("the version from before the Binding has a node")
	}

	// The watch first shows versions without a node, then those with one.
	opened()
	await(t, "confirmation", func() error {
		for _, pod := range c.View().Node("once-1").Pods {
			if pod.ResourceVersion == "" {
				return fmt.Errorf("of %s is missing", pod.Name)
			}
		}
		if got := show(c, "once"); got != "once-1[once-known once-unknown]" {
			t.Fatalf("the view changed to %q", got)
		}
		return nil
	})
}

func TestBindRefused(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "refuse", "1", "2")
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	bound := createPod(t, client, controlplane.PodSpec{Name: "refuse-bound", NodeName: "refuse-2"})
	free := createPod(t, client, controlplane.PodSpec{Name: "refuse-free"})
	gated := createPod(t, client, controlplane.PodSpec{Name: "refuse-gated"}, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	})
	leaving := createPod(t, client, controlplane.PodSpec{Name: "refuse-leaving"}, func(p *corev1.Pod) {
		p.Finalizers = []string{"example.com/stay"}
	})
	t.Cleanup(func() {
		_, err := client.CoreV1().Pods("default").Patch(context.Background(), leaving.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	if err := controlplane.DeletePod(t.Context(), client, leaving); err != nil {
		t.Fatal(err)
	}
	otherUID := free.DeepCopy()
	otherUID.UID = "00000000-0000-4000-8000-000000000000"
	missing := free.DeepCopy()
	missing.Name = "refuse-missing"

	for name, test := range map[string]struct {
		binding binder.Binding
		outcome string
		text    string
	}{
		"on another node": {bindingOf(bound, "refuse-1"), "bound_elsewhere",
			`pod default/refuse-bound is already bound to node "refuse-2"`},
		"another UID": {bindingOf(otherUID, "refuse-1"), "not_found",
			`pod default/refuse-free with UID 00000000-0000-4000-8000-000000000000 does not exist`},
		"no such pod": {bindingOf(missing, "refuse-1"), "not_found",
			`pod default/refuse-missing was not bound to node "refuse-1": pods "refuse-missing" not found`},
		"being deleted": {bindingOf(leaving, "refuse-1"), "not_found",
			`pod default/refuse-leaving is being deleted`},
		"scheduling gates": {bindingOf(gated, "refuse-1"), "rejected",
			`pod default/refuse-gated was not bound to node "refuse-1": Operation cannot be fulfilled on pods/binding "refuse-gated": pod refuse-gated has non-empty .spec.schedulingGates`},
	} {
		t.Run(name, func(t *testing.T) {
			err := bindError(t, c.Bind(t.Context(), test.binding))
			if err.Outcome != test.outcome {
				t.Errorf("the outcome is %s, want %s", err.Outcome, test.outcome)
			}
			if err.Error() != test.text {
				t.Errorf("error is\n%s\nwant\n%s", err, test.text)
			}
		})
	}
	awaitView(t, c, "refuse", "refuse-1[] refuse-2[refuse-bound]")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bindError(t, c.Bind(ended, bindingOf(free, "refuse-1"))); err.Outcome != "not_sent" || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := c.Bind(t.Context(), bindingOf(free, "refuse-1")); err != nil {
		t.Errorf("afterwards, binding the pod without a node: %v", err)
	}
}

func TestBindAgain(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "again", "1")
	var log bytes.Buffer
	c := synced(t, cluster.Options{Config: cp.AdminConfig(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	pod := createPod(t, client, controlplane.PodSpec{Name: "again"})
	for range 3 {
		if err := c.Bind(t.Context(), bindingOf(pod, "again-1", "device", "gpu-1", "note", "x")); err != nil {
			t.Fatal(err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("got log %s", &log)
	}
	// Another client has bound the pod, without the annotation of the device.
	other := createPod(t, client, controlplane.PodSpec{Name: "again-other", NodeName: "again-1"})
	if err := c.Bind(t.Context(), bindingOf(other, "again-1", "device", "gpu-1", "note", "x")); err != nil {
		t.Fatal(err)
	}
	awaitView(t, c, "again", "again-1[again again-other]")
}

// fault is what happens to the requests of one Bind call.
type fault struct {
	forward bool                  // the Binding reaches the API server
	answer  func() *http.Response // the response instead of the API server's; nil: the connection is lost
	noGet   bool                  // reading pods fails
	ends    bool                  // the caller gives up when the Binding is in flight
	cancel  func()                // cancels the caller's context
	posts   atomic.Int32
}

type faulty struct {
	next  http.RoundTripper
	fault atomic.Pointer[fault]
}

func (f *faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	fault := f.fault.Load()
	binding := req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/binding")
	pod := req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/pods/")
	switch {
	case fault == nil || !binding && !pod:
		return f.next.RoundTrip(req)
	case pod && fault.noGet:
		return nil, errTest
	case pod:
		return f.next.RoundTrip(req)
	}
	fault.posts.Add(1)
	if fault.forward {
		resp, err := f.next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if fault.ends {
		fault.cancel()
		return nil, context.Canceled
	}
	if fault.answer == nil {
		return nil, errTest
	}
	resp := fault.answer()
	resp.Request = req
	return resp, nil
}

var errTest = errors.New("connection lost")

func answer(code int, header ...string) func() *http.Response {
	return func() *http.Response {
		resp := &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"text/html"}},
			ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader("<html>from a proxy</html>"))}
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp
	}
}

// Whatever happens to the response, Bind returns no wrong outcome, and sends the Binding once.
func TestBindResponseLost(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "lost", "1")
	var f *faulty
	c := synced(t, cluster.Options{Config: withTransport(cp.AdminConfig(), func(next http.RoundTripper) http.RoundTripper {
		f = &faulty{next: next}
		return f
	})})
	const bound, unknown, refused = "bound", "unknown", "refused"
	for i, test := range []struct {
		name  string
		fault *fault
		want  string
		text  string
	}{
		{"lost after it was written", &fault{forward: true}, bound, ""},
		{"lost before it was written", &fault{}, unknown, "; it is not yet: Post "},
		{"502 after it was written", &fault{forward: true, answer: answer(502)}, bound, ""},
		{"502 before it was written", &fault{answer: answer(502)}, unknown, "; it is not yet: "},
		{"503 with Retry-After after it was written", &fault{forward: true, answer: answer(503, "Retry-After", "1")}, bound, ""},
		{"504 with Retry-After before it was written", &fault{answer: answer(504, "Retry-After", "1")}, unknown, "; it is not yet: "},
		{"500 before it was written", &fault{answer: answer(500)}, unknown, "; it is not yet: "},
		{"given up after it was written", &fault{forward: true, ends: true}, bound, ""},
		{"given up before it was written", &fault{ends: true}, unknown, "; it is not yet: the API server did not respond within "},
		{"408 after it was written", &fault{forward: true, answer: answer(408)}, bound, ""},
		{"403 from a proxy", &fault{answer: answer(403)}, refused, ""},
		{"lost, and the pod cannot be asked for", &fault{forward: true, noGet: true}, unknown, "; reading the pod: "},
		{"409 that is not about this, and the pod cannot be asked for", &fault{answer: answer(409), noGet: true}, unknown, "; reading the pod: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := fmt.Sprintf("lost-%d", i)
			pod := createPod(t, client, controlplane.PodSpec{Name: name})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			test.fault.cancel = cancel
			f.fault.Store(test.fault)
			err := c.Bind(ctx, bindingOf(pod, "lost-1"))
			f.fault.Store(nil)
			if posts := test.fault.posts.Load(); posts != 1 {
				t.Errorf("the Binding was sent %d times", posts)
			}
			counted := strings.Contains(show(c, "lost"), name)
			truth, getErr := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			switch {
			case test.want == bound && (err != nil || !counted || truth.Spec.NodeName == ""):
				t.Errorf("got error %v, counted %v, the pod is on %q", err, counted, truth.Spec.NodeName)
			case test.want != bound:
				bindErr := bindError(t, err)
				if bindErr.Outcome == "bound_elsewhere" || bindErr.Outcome == "not_found" || (bindErr.Outcome == "unknown") != (test.want == unknown) {
					t.Errorf("got error %+v", bindErr)
				}
				if !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "unknown whether") != (test.want == unknown) {
					t.Errorf("got error %q, want %q in it", err, test.text)
				}
			}
			// The caller retries.
			if err := c.Bind(t.Context(), bindingOf(pod, "lost-1")); err != nil {
				t.Errorf("retry: %v", err)
			}
			if !strings.Contains(show(c, "lost"), name) {
				t.Error("the pod is not counted")
			}
		})
	}
}

// If an overloaded API server rejects a Binding, Bind sends it again.
func TestBindTurnedAway(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "busy", "1")
	var f *faulty
	c := synced(t, cluster.Options{Config: withTransport(cp.AdminConfig(), func(next http.RoundTripper) http.RoundTripper {
		f = &faulty{next: next}
		return f
	})})
	pod := createPod(t, client, controlplane.PodSpec{Name: "busy"})
	busy := &fault{}
	busy.answer = func() *http.Response {
		if busy.posts.Load() == 2 {
			f.fault.Store(nil)
		}
		return answer(429, "Retry-After", "0")()
	}
	f.fault.Store(busy)
	if err := c.Bind(t.Context(), bindingOf(pod, "busy-1")); err != nil {
		t.Error(err)
	}
	if got := busy.posts.Load(); got != 2 {
		t.Errorf("the API server rejected %d requests, want 2", got)
	}

	// If the API server rejects it until ctx ends, the pod is not bound, and the error is certain or ErrOutcomeUnknown.
	other := createPod(t, client, controlplane.PodSpec{Name: "busy-other"})
	f.fault.Store(&fault{answer: answer(429, "Retry-After", "3600")})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Bind(ctx, bindingOf(other, "busy-1")); err == nil {
		t.Error("the pod is bound, although the API server rejected the Binding")
	}
}

// While the API server is unavailable, Bind returns an unknown outcome, and the view stays.
func TestBindWithoutAPIServer(t *testing.T) {
	cp, client := startServer(t)
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	createNodes(t, client, "away", "1")
	pod := createPod(t, client, controlplane.PodSpec{Name: "away"})
	c := synced(t, cluster.Options{Config: cp.AdminConfig(), LookupTimeout: 100 * time.Millisecond, BindTimeout: 200 * time.Millisecond})
	awaitView(t, c, "away", "away-1[]")

	// Frozen: connections stay open without responses.
	if err := cp.APIServer().Pause(); err != nil {
		t.Fatal(err)
	}
	var err *cluster.BindError
	await(t, "a Binding that is sent", func() error { // on a busy machine its time may end before
		if err = bindError(t, c.Bind(t.Context(), bindingOf(pod, "away-1"))); err.Outcome == "not_sent" {
			return err
		}
		return nil
	})
	if err.Outcome != "unknown" || !strings.Contains(err.Error(), `it is unknown whether pod default/away was bound to node "away-1": `) {
		t.Errorf("frozen: %v", err)
	}
	if err := cp.APIServer().Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, "bind after the freeze", func() error { return c.Bind(t.Context(), bindingOf(pod, "away-1")) })
	if got := show(c, "away"); got != "away-1[away]" {
		t.Errorf("got view %q", got)
	}

	// Stopped: connections fail, unless the client uses the previous connection once more.
	other := createPod(t, client, controlplane.PodSpec{Name: "away-other"})
	cp.APIServer().Kill()
	if err := bindError(t, c.Bind(t.Context(), bindingOf(other, "away-1"))); err.Outcome != "unknown" && err.Outcome != "not_sent" {
		t.Errorf("stopped: %s: %v", err.Outcome, err)
	}
	if err := c.Synced(); err != nil {
		t.Errorf("while the API server is unavailable: %v", err)
	}
	if got := show(c, "away"); got != "away-1[away]" {
		t.Errorf("got view %q", got)
	}
	warned := func(want bool) func() error {
		return func() error {
			if lines := strings.Join(c.Warnings(), "\n"); strings.Contains(lines, "cluster: pods (the API server does not respond: ") != want {
				return fmt.Errorf("the warnings are %q", lines)
			}
			return nil
		}
	}
	await(t, "a warning while the API server is away", warned(true))
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "no warning after the restart", warned(false))
	await(t, "bind after the restart", func() error { return c.Bind(t.Context(), bindingOf(other, "away-1")) })
	third := createPod(t, client, controlplane.PodSpec{Name: "away-third", NodeName: "away-1"})
	awaitView(t, c, "away", "away-1[away away-other away-third]")
	_ = third
}

func slicesContainsPod(pods []*corev1.Pod, uid types.UID) bool {
	for _, pod := range pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}

// sameAsServer compares the nodes with the prefix with those in the API server.
func sameAsServer(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, prefix string) error {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		if !strings.HasPrefix(pod.Name, prefix) {
			continue
		}
		got := c.PodByName(pod.Namespace, pod.Name)
		if got == nil || got.UID != pod.UID || got.Spec.NodeName != pod.Spec.NodeName || got.ResourceVersion != pod.ResourceVersion {
			return fmt.Errorf("pod %s of version %s on %q is known as %v", pod.Name, pod.ResourceVersion, pod.Spec.NodeName, got)
		}
		if pod.Spec.NodeName != "" && !slicesContainsPod(c.View().Node(pod.Spec.NodeName).Pods, pod.UID) {
			return fmt.Errorf("pod %s is not counted on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}
