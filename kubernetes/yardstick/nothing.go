package yardstick

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/schedplugin"
)

// NewNothing returns a plugin that does nothing, which is the bound for any plugin: all nodes pass, with the same score. It has the
// name of Outboard's plugin, and ignores its arguments.
func NewNothing(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return nothing{}, nil
}

type nothing struct{}

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
