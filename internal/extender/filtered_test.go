package extender_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
)

// Filtered is called for each filter call without an error, and for no other call: with the pod, the nodes, and whether one
// fits.
func TestFiltered(t *testing.T) {
	var told []string
	s := serve(t, &fakeCluster{view: view(threeNodes)}, func(_ *engine.Options, o *extender.Options) {
		o.Filtered = func(req engine.Request, fits bool, unknown []string, why *decision.Rejection) {
			var nodes []string
			for _, n := range req.Nodes {
				if n != nil {
					nodes = append(nodes, n.Name)
				}
			}
			code := ""
			if why != nil {
				code = why.Code
			}
			told = append(told, fmt.Sprintf("%s %v [%s] [%s] %s", req.Pod.Name, fits, strings.Join(nodes, " "), strings.Join(unknown, " "), code))
		}
	})
	ask := func(verb string, pod *corev1.Pod, nodes ...string) {
		s.post(t, verb, encode(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: names(nodes...)}))
	}
	ask("filter", somePod(), "wrong", "good", "new")
	ask("filter", somePod(), "wrong", "new", "full", "newer")
	odd := somePod("error", "yes")
	odd.UID = "odd"
	ask("filter", odd, "good")
	ask("prioritize", somePod(), "good", "better")
	want := []string{"p true [wrong good] [] NodeUnknown", "p false [wrong full] [new newer] NodeUnknown", "p false [good] [] "}
	if !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}
