package explain_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

// The ETag is the same while the policies say the same, also in a new View.
func TestExplanationsHaveETags(t *testing.T) {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "Size", Policy: sized{"Size"}, Weight: 1}}})
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
	ask := func(etag string) *http.Response {
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, explain.Path+"?pod=p", nil)
		req.Header.Set("If-None-Match", etag)
		handler.ServeHTTP(w, req)
		return w.Result()
	}
	first := ask("")
	etag := first.Header.Get("ETag")
	if first.StatusCode != http.StatusOK || etag == "" {
		t.Fatalf("%s, ETag %q", first.Status, etag)
	}
	b.SetDisruptionBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "budget"}})
	view = b.View()
	if res := ask(etag); res.StatusCode != http.StatusNotModified {
		t.Errorf("another View: %s", res.Status)
	}
	node("b")
	view = b.View()
	if res := ask(etag); res.StatusCode != http.StatusOK {
		t.Errorf("another node: %s", res.Status)
	}
}
