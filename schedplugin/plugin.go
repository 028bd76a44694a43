package schedplugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/config"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/service"
	"outboard.dev/outboard/snapshot"
)

// Name is the name of the plugin in configurations of kube-scheduler.
const Name = "Outboard"

// syncTimeout is how long the first pods wait until everything has been read of the API server: what kube-scheduler itself reads is
// there by then.
const syncTimeout = 5 * time.Second

// plugin asks the policies of one profile for one profile of kube-scheduler.
type plugin struct {
	arguments
	service *service.Service
	handle  fwk.Handle
	nodes   nodes
}

var (
	_ fwk.PreFilterPlugin     = (*plugin)(nil)
	_ fwk.PreFilterExtensions = (*plugin)(nil)
	_ fwk.FilterPlugin        = (*plugin)(nil)
	_ fwk.PreScorePlugin      = (*plugin)(nil)
	_ fwk.ScorePlugin         = (*plugin)(nil)
)

func newPlugin(s *service.Service, a arguments, handle fwk.Handle) *plugin {
	return &plugin{arguments: a, service: s, handle: handle}
}

// Name implements fwk.Plugin.
func (p *plugin) Name() string { return Name }

// profile returns the profile and its engine as they are now; a reload may have removed the profile.
func (p *plugin) profile() (*config.Profile, *engine.Engine, error) {
	current := p.service.Current()
	profile, err := p.choose(current.Config)
	if err != nil {
		return nil, nil, err
	}
	return profile, current.Engines[profile.Path], nil
}

// view returns the latest View. The first time it waits until there is one.
func (p *plugin) view(ctx context.Context) (*snapshot.View, error) {
	if p.service.Cluster.Synced() != nil {
		ctx, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		_ = p.service.Cluster.WaitForSync(ctx)
		if err := p.service.Cluster.Synced(); err != nil {
			return nil, err
		}
	}
	return p.service.Cluster.View(), nil
}

// pod returns the trimmed pod.
func (p *plugin) pod(pod *corev1.Pod) *corev1.Pod {
	if known := p.service.Cluster.Pod(pod.UID, pod.ResourceVersion); known != nil {
		return known
	}
	return snapshot.TrimmedPod(pod)
}

// manages says whether the profile is for the pod.
func manages(profile *config.Profile, pod *corev1.Pod) bool {
	for _, r := range profile.ManagedResources {
		if snapshot.NamesResource(pod, corev1.ResourceName(r.Name)) {
			return true
		}
	}
	return len(profile.ManagedResources) == 0
}

// begin prepares the policies for the pod. The cycle is nil if none concerns it.
func (p *plugin) begin(ctx context.Context, pod *corev1.Pod) (*cycle, error) {
	profile, e, err := p.profile()
	if err != nil || !manages(profile, pod) {
		return nil, err
	}
	view, err := p.view(ctx)
	if err != nil {
		return nil, fmt.Errorf("Outboard is not ready: %w", err)
	}
	attempt, err := e.NewAttempt(ctx, p.pod(pod), view)
	if err != nil {
		return nil, err
	}
	if !attempt.Filters() && !attempt.Scores() {
		attempt.Release()
		return nil, nil
	}
	return &cycle{plugin: p, attempt: attempt, view: view}, nil
}
