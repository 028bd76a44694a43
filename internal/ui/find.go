package ui

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxFound bounds the names that are found.
const maxFound = 50

// find returns the pods and nodes whose names begin with the text.
func (s *Source) find(text string) Found {
	f := Found{Pods: []FoundPod{}, Nodes: []string{}}
	if text == "" {
		return f
	}
	namespace, name, whole := strings.Cut(text, "/")
	if !whole {
		namespace, name = "", text
	}
	found := map[types.UID]bool{} // a pod that is being bound has no node yet, and is on one
	add := func(pods []*corev1.Pod, node string) {
		for _, pod := range pods {
			if strings.HasPrefix(pod.Name, name) && (!whole || pod.Namespace == namespace) && !found[pod.UID] {
				found[pod.UID] = true
				f.Pods = append(f.Pods, FoundPod{pod.Namespace, pod.Name, node})
			}
		}
	}
	for n := range s.View().All() {
		add(n.Pods, n.Name)
		if !whole && strings.HasPrefix(n.Name, name) {
			f.Nodes = append(f.Nodes, n.Name)
		}
	}
	if s.Unbound != nil {
		add(s.Unbound(), "")
	}
	f.More = max(len(f.Pods), len(f.Nodes)) > maxFound
	slices.SortFunc(f.Pods, func(a, b FoundPod) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	slices.Sort(f.Nodes)
	f.Pods, f.Nodes = f.Pods[:min(maxFound, len(f.Pods))], f.Nodes[:min(maxFound, len(f.Nodes))]
	return f
}
