package yardstick

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// view returns the nodes with their pods, as policies get them.
func view(nodes []*corev1.Node, pods []*corev1.Pod) *snapshot.View {
	var b snapshot.Builder
	for _, node := range nodes {
		trimmed := node.DeepCopy()
		snapshot.TrimNode(trimmed)
		b.SetNode(trimmed)
	}
	for _, pod := range pods {
		b.SetPod(trimmed(pod))
	}
	return b.View()
}

func trimmed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	snapshot.TrimPod(pod)
	return pod
}

// TestVerdicts compares package kubescheduler with the filters of the default profile.
func TestVerdicts(t *testing.T) {
	for name, ignored := range map[string][]corev1.ResourceName{"all resources": nil, "ignored resources": {gpu, license}} {
		t.Run(name, func(t *testing.T) {
			f, seen := newInTree(t, func(args *schedulerapi.NodeResourcesFitArgs) {
				for _, name := range ignored {
					args.IgnoredResources = append(args.IgnoredResources, string(name))
				}
			}), map[string]int{}
			rapid.Check(t, func(t *rapid.T) {
				d := draw{t}
				nodes, pods := d.cluster()
				f.set(nodes, pods)
				view := view(nodes, pods)
				pod := d.pod("pod")
				a, filters := f.begin(pod), kubescheduler.For(trimmed(pod), ignored...)
				for _, node := range nodes {
					got := filters.Excludes(node)
					if got == "" {
						got = filters.Lacks(view.Node(node.Name))
					}
					if !a.preFilterLeaves(node.Name) {
						// PreFilter rejects many nodes together for a plugin; then Filter is not called.
						if seen["(PreFilter)"]++; got == "" {
							t.Fatalf("kubescheduler accepts node %s, which PreFilter rejects", node.Name)
						}
						continue
					}
					plugin, want := a.filter(node.Name)
					// NodeResourcesFit names all resources that are insufficient, and package kubescheduler names one.
					if seen[got]++; got == "" && plugin != "" || got != "" && !slices.Contains(want, got) {
						t.Fatalf("node %s: kubescheduler returns %q; plugin %q returns %q", node.Name, got, plugin, want)
					}
				}
			})
			for reason, n := range seen {
				t.Logf("%8d %s", n, reason)
			}
		})
	}
}
