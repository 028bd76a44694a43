package explain_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/snapshot"
)

// A pod fits on the nodes that all profiles accept which place it, and so does a change.
func TestProfilesTogether(t *testing.T) {
	var b snapshot.Builder
	for name, sizes := range map[string][2]string{"n1": {"10", "1"}, "n2": {"1", "10"}} {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"GPU": sizes[0], "Disk": sizes[1]}, UID: types.UID(name)},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	}
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3", Labels: map[string]string{"GPU": "10", "Disk": "10"}}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	view := b.View()
	gpu, disk := engines(t, "GPU")()["/"], engines(t, "Disk")()["/"]
	for name, tt := range map[string]struct {
		engines         map[string]*engine.Engine
		refused         string
		verdict, change string
		fit             int
	}{
		"one":       {map[string]*engine.Engine{"/gpu": gpu}, "", ", and fits on 1 of 3 nodes now, by Outboard's policies.", "on 1 of 3 nodes now, by Outboard's policies", 1},
		"no node":   {map[string]*engine.Engine{"/gpu": gpu, "/": disk}, "", ", and fits on 0 of 3 nodes: 1 excluded by kube-scheduler, 1 rejected by Disk, 1 rejected by GPU.", "on node n3 if that were not cordoned", 0},
		"another's": {map[string]*engine.Engine{"/gpu": gpu, "/": disk}, "/", ", and fits on 1 of 3 nodes now, by Outboard's policies.", "on 1 of 3 nodes now, by Outboard's policies", 1},
	} {
		doc, text := show(t, explain.Source{
			Log: decision.NewLog(1), Engines: func() map[string]*engine.Engine { return tt.engines }, View: func(types.UID) *snapshot.View { return view }, Pod: unbound(corev1.PodSpec{}),
			Refuses: func(profile string, pod *corev1.Pod) error {
				if profile == tt.refused {
					return context.Canceled
				}
				return nil
			},
		}, url.Values{"pod": {"p"}})
		first, _, _ := strings.Cut(text, "\n")
		if want := "Pod default/p waits" + tt.verdict; first != want || doc.Verdict != want || doc.Change != tt.change || doc.Fits.Fit != tt.fit {
			t.Errorf("%s: %q, %+v, want\n%q, %q\n%s", name, doc.Change, doc.Fits, want, tt.change, text)
		}
	}
}
