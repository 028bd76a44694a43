package explain_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/whatif"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// For a pod that fits nowhere, explain shows what would make it fit, in each format.
func TestWhatWouldMakeItFit(t *testing.T) {
	view := cluster("Size")
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t, "Size"), View: func(types.UID) *snapshot.View { return view },
		Pod: unbound(corev1.PodSpec{NodeSelector: map[string]string{"pool": "none"}}),
	}
	doc, text := show(t, source, url.Values{"pod": {"p"}})
	if want := "\n  It would fit\n      on 10 nodes if its nodeSelector did not require pool=none\n"; !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s\nwant at its end\n%s", text, want)
	}
	if found := doc.Remedies; len(found) != 1 || found[0].Kind != whatif.Nodes || found[0].Nodes != 10 {
		t.Errorf("got %+v", found)
	}
	encoded, err := json.Marshal(doc.Remedies)
	if want := `[{"kind":"Nodes","node":"node-10","nodes":10,"change":{"type":"DropSelector","of":"pool=none"},"text":"on 10 nodes if its nodeSelector did not require pool=none"}]`; err != nil || string(encoded) != want {
		t.Errorf("got %s, %v, want %s", encoded, err, want)
	}
	source.Pod = unbound(corev1.PodSpec{NodeSelector: map[string]string{"pool": "none", "disk": "none"}})
	if _, text := show(t, source, url.Values{"pod": {"p"}}); !strings.Contains(text, "  It would not fit with any single change that Outboard has tried.\n") {
		t.Errorf("two selectors: %s", text)
	}
	source.Pod = unbound(corev1.PodSpec{})
	if _, text := show(t, source, url.Values{"pod": {"p"}}); strings.Contains(text, "would") {
		t.Errorf("a pod that fits: %s", text)
	}
}

// counted counts how often its policy is asked.
type counted struct {
	policy.Policy
	prepared *atomic.Int32
}

func (c counted) Prepare(ctx context.Context, pod *corev1.Pod, view *snapshot.View) (policy.Cycle, error) {
	c.prepared.Add(1)
	return c.Policy.Prepare(ctx, pod, view)
}

// While the pod and the View are the same, the policies are asked once, however often somebody asks for the explanation. In a new View
// they are asked again, and the ETag is the same if they say the same. A manifest, which may have secrets, is not kept.
func TestExplanationsAreKept(t *testing.T) {
	var prepared atomic.Int32
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Size", Policy: counted{sized{"Size"}, &prepared}, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var b snapshot.Builder
	node := func(name string) {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"Size": "3"}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	}
	node("a")
	view := b.View()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "none"}}}
	source := explain.Source{
		Log: decision.NewLog(1), Engines: func() map[string]*engine.Engine { return map[string]*engine.Engine{"/": e} },
		View: func(types.UID) *snapshot.View { return view },
		Pod:  func(context.Context, string, string) (*corev1.Pod, error) { return pod, nil },
	}
	handler := explain.Handler(source)
	ask := func(etag string) (*http.Response, int) {
		before := prepared.Load()
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, explain.Path+"?pod=p", nil)
		req.Header.Set("If-None-Match", etag)
		handler.ServeHTTP(w, req)
		return w.Result(), int(prepared.Load() - before)
	}
	first, asked := ask("")
	etag := first.Header.Get("ETag")
	if first.StatusCode != http.StatusOK || etag == "" || asked == 0 {
		t.Fatalf("%s, ETag %q, the policy was asked %d times", first.Status, etag, asked)
	}
	if res, asked := ask(etag); res.StatusCode != http.StatusNotModified || asked != 0 {
		t.Errorf("again: %s, the policy was asked %d times", res.Status, asked)
	}
	b.SetDisruptionBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "budget"}})
	view = b.View()
	if res, asked := ask(etag); res.StatusCode != http.StatusNotModified || asked == 0 {
		t.Errorf("another View: %s, the policy was asked %d times", res.Status, asked)
	}
	node("b")
	view = b.View()
	if res, asked := ask(etag); res.StatusCode != http.StatusOK || asked == 0 {
		t.Errorf("another node: %s, the policy was asked %d times", res.Status, asked)
	}
	_, _ = ask("")
	pod = pod.DeepCopy()
	if _, asked := ask(""); asked == 0 {
		t.Error("another version of the pod: the policy was not asked")
	}

	try := explain.TryHandler(source)
	for range 2 {
		before := prepared.Load()
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, explain.TryPath, strings.NewReader("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}"))
		req.Header.Set("Content-Type", "application/yaml")
		if try.ServeHTTP(w, req); w.Code != http.StatusOK || prepared.Load() == before {
			t.Errorf("a manifest: %d %s, the policy was asked %d times", w.Code, w.Body, prepared.Load()-before)
		}
	}
}
