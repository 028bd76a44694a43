package explain_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/explain"
	"outboard.dev/outboard/snapshot"
)

// What is said first is whether the pod is on a node, gated, or waits.
func TestWhereThePodIs(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	server := httptest.NewServer(explain.Handler(explain.Source{
		Log:     decision.NewLog(1),
		Engines: func() map[string]*engine.Engine { return map[string]*engine.Engine{"/": e} },
		View:    func() *snapshot.View { return new(snapshot.View) },
		Pod:     func(_, name string) *corev1.Pod { return pods[name] },
	}))
	defer server.Close()
	gates := []corev1.PodSchedulingGate{{Name: "example.com/quota"}, {Name: "example.com/approval"}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"bound":   {corev1.PodSpec{NodeName: "a"}, "Pod default/bound is on node a."},
		"pending": {corev1.PodSpec{}, "Pod default/pending is on no node."},
		"gated":   {corev1.PodSpec{SchedulingGates: gates}, "Pod default/gated is gated: kube-scheduler does not try it before its scheduling gates are removed (example.com/quota, example.com/approval)."},
		"unknown": {corev1.PodSpec{}, "Pod default/unknown is not known to Outboard."},
	} {
		if name != "unknown" {
			pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: tc.spec}
		}
		doc, err := explain.Fetch(t.Context(), server.Client(), server.URL, url.Values{"pod": {name}})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := doc.Text(&text); err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(text.String(), "\n"); first != tc.want {
			t.Errorf("%s: got %q, want %q", name, first, tc.want)
		}
	}
}
