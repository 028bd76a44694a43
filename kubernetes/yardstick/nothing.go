package yardstick

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/schedplugin"
)

// NewNothing returns a plugin that does nothing, which is the bound for any plugin: all nodes pass,
// with the same score. It has the name of Outboard's plugin. With a shortlist in the arguments, it
// names that many nodes in turn, which is the bound for any plugin that names nodes. It ignores all
// other arguments.
func NewNothing(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	var a struct{ Shortlist int }
	if raw, ok := args.(*runtime.Unknown); ok {
		if err := json.Unmarshal(raw.Raw, &a); err != nil {
			return nil, err
		}
	}
	if a.Shortlist > 0 {
		return &naming{n: a.Shortlist}, nil
	}
	return nothing{}, nil
}

type nothing struct{}

// naming is nothing that names n nodes for each pod, from the next one on.
type naming struct {
	nothing
	n, next int
}

var _ fwk.PreFilterPlugin = (*naming)(nil)

// PreFilter implements fwk.PreFilterPlugin.
func (p *naming) PreFilter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	names := make(sets.Set[string], p.n)
	for range min(p.n, len(infos)) {
		names.Insert(infos[p.next%len(infos)].Node().Name)
		p.next++
	}
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (*naming) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

var (
	_ fwk.FilterPlugin = nothing{}
	_ fwk.ScorePlugin  = nothing{}
	_ fwk.SignPlugin   = nothing{}
)

// Name implements fwk.Plugin.
func (nothing) Name() string { return schedplugin.Name }

// Filter implements fwk.FilterPlugin.
func (nothing) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

// Score implements fwk.ScorePlugin.
func (nothing) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (nothing) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod implements fwk.SignPlugin: no pods differ.
func (nothing) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
