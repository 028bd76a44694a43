package explain_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/remedy"
	"outboard.dev/outboard/snapshot"
)

// For a pod that fits nowhere, explain shows what would make it fit, in each format.
func TestWhatWouldMakeItFit(t *testing.T) {
	view := cluster("Size")
	source := explain.Source{
		Log: decision.NewLog(1), Engines: engines(t, "Size"), View: func(types.UID) *snapshot.View { return view },
		Pod: pending(corev1.PodSpec{NodeSelector: map[string]string{"pool": "none"}}),
	}
	doc, text := show(t, source, url.Values{"pod": {"p"}})
	if want := "\n  It would fit\n      on 10 nodes if its nodeSelector did not require pool=none\n"; !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s\nwant at its end\n%s", text, want)
	}
	if found := doc.Now[0].Remedies; len(found) != 1 || found[0].Kind != remedy.Nodes || found[0].Nodes != 10 || !found[0].Smallest || found[0].View != view.Generation() {
		t.Errorf("got %+v", found)
	}
	encoded, err := json.Marshal(doc.Now[0].Remedies)
	if want := `[{"kind":"Nodes","node":"node-10","nodes":10,"change":{"type":"DropSelector","of":"pool=none"},"smallest":true,"view":1,"text":"on 10 nodes if its nodeSelector did not require pool=none"}]`; err != nil || string(encoded) != want {
		t.Errorf("got %s, %v, want %s", encoded, err, want)
	}
	source.Pod = pending(corev1.PodSpec{NodeSelector: map[string]string{"pool": "none", "disk": "none"}})
	if _, text := show(t, source, url.Values{"pod": {"p"}}); !strings.Contains(text, "  It would not fit with any single change that Outboard has tried.\n") {
		t.Errorf("two selectors: %s", text)
	}
	source.Pod = pending(corev1.PodSpec{})
	if _, text := show(t, source, url.Values{"pod": {"p"}}); strings.Contains(text, "would") {
		t.Errorf("a pod that fits: %s", text)
	}
}

// For a pod on a node, explain compares this node with the others as if the pod were placed now.
func TestHowItsNodeCompares(t *testing.T) {
	var b snapshot.Builder
	for name, sizes := range map[string][2]string{"a": {"30", "20"}, "b": {"10", "36"}, "small": {"1", "100"}} {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"Size": sizes[0], "Speed": sizes[1]}}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")},
		}})
	}
	var pod *corev1.Pod
	source := explain.Source{Log: decision.NewLog(1), Engines: engines(t, "Size", "Speed"), View: func(types.UID) *snapshot.View { return b.View() },
		Pod: func(context.Context, string, string) (*corev1.Pod, error) { return pod, nil }}
	for node, want := range map[string]string{
		"a": `
If it were placed now, by profile /: no node would score more than a with 100.
  with weight 1 of Size instead of 2, b would score more
  with weight 3 of Speed instead of 2, b would score more
`,
		"b": `
If it were placed now, by profile /: a would score 100, more than b with 92.
`,
		"small": `
If it were placed now, by profile /: it would not fit on small.
`,
	} {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: node}}
		b.SetPod(pod)
		doc, text := show(t, source, url.Values{"pod": {"p"}})
		if !strings.HasSuffix(text, want) || len(doc.Placed) != 1 || doc.Placed[0].Node != node {
			t.Errorf("on %s: got\n%s\nwant at its end\n%s", node, text, want)
		}
		if _, text := show(t, source, url.Values{"pod": {"p"}, "profile": {"/"}}); !strings.HasSuffix(text, want) {
			t.Errorf("on %s, with the profile: %s", node, text)
		}
	}
}
