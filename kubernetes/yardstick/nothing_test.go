package yardstick

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// With candidates, the plugin that does nothing names each node in turn.
func TestNothingNamesNodes(t *testing.T) {
	p, err := NewNothing(t.Context(), &runtime.Unknown{Raw: []byte(`{"candidates": 2, "profiles": []}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var infos []fwk.NodeInfo
	for i := range 3 {
		info := framework.NewNodeInfo()
		info.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
		infos = append(infos, info)
	}
	for _, want := range []sets.Set[string]{sets.New("n0", "n1"), sets.New("n2", "n0")} {
		if r, status := p.(fwk.PreFilterPlugin).PreFilter(t.Context(), nil, nil, infos); !status.IsSuccess() || !r.NodeNames.Equal(want) {
			t.Errorf("named %v (%v), want %v", r.NodeNames, status, want)
		}
	}
	if p, err := NewNothing(t.Context(), nil, nil); err != nil || p == nil {
		t.Errorf("without arguments: %v, %v", p, err)
	} else if _, names := p.(fwk.PreFilterPlugin); names {
		t.Error("without candidates, it names nodes")
	}
}
