package schedplugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// Name is the name of the plugin in configurations of kube-scheduler.
const Name = "Outboard"

// syncTimeout is how long the first pod waits until everything has been read from the API server:
// what kube-scheduler itself reads has been read by then. All other pods wait behind it.
const syncTimeout = 5 * time.Second

// plugin runs the policies of one profile for one profile of kube-scheduler.
type plugin struct {
	arguments
	*process
	handle    fwk.Handle
	awaitSync sync.Once
	// checkOrder checks once whether the plugin binds pods before others do.
	checkOrder func() error

	// filters checks once whether nodes can be named, and says how. The error is logged.
	filters func() (*filters, error)

	latest atomic.Pointer[cycle] // nil: none

	mu    sync.Mutex
	infos *infoTable // of the latest attempt; nil: none yet
	// Memory of the latest attempt that was scored, used again: a profile schedules one pod at a
	// time.
	result engine.Result
	next   int // index of the slot after the latest node that PreFilter has named: so it names each of equally good nodes in turn
	// failed are the pods of which other plugins have rejected all named nodes. Such a pod gets all
	// nodes until it is placed. Its UID identifies it: kube-scheduler writes a condition to the pod
	// after the failed attempt, so that it has another resourceVersion.
	failed  map[types.UID]bool
	waiting []*corev1.Pod // of failed, those in the backoff queue since the latest attempt
}

var (
	_ fwk.PreFilterPlugin     = (*plugin)(nil)
	_ fwk.PreFilterExtensions = (*plugin)(nil)
	_ fwk.FilterPlugin        = (*plugin)(nil)
	_ fwk.PostFilterPlugin    = (*plugin)(nil)
	_ fwk.PreScorePlugin      = (*plugin)(nil)
	_ fwk.ScorePlugin         = (*plugin)(nil)
	_ fwk.ReservePlugin       = (*plugin)(nil)
	_ fwk.BindPlugin          = (*plugin)(nil)
	_ fwk.PostBindPlugin      = (*plugin)(nil)
	_ fwk.EnqueueExtensions   = (*plugin)(nil)
	_ fwk.SignPlugin          = (*plugin)(nil)
)

func newPlugin(p *process, a arguments, handle fwk.Handle) *plugin {
	made := &plugin{
		arguments: a, process: p, handle: handle,
		checkOrder: sync.OnceValue(func() error { return bindsFirst(handle) }),
		filters: sync.OnceValues(func() (*filters, error) {
			f, err := filtersOf(handle, a.InertPlugins)
			if err != nil {
				klog.Background().Error(err, "Outboard names no nodes, so that kube-scheduler evaluates all nodes", "profile", handle.ProfileName())
			}
			return f, err
		}),
	}
	p.adding.Lock()
	defer p.adding.Unlock()
	p.plugins = append(p.plugins, made)
	return made
}

func (p *plugin) Name() string { return Name }

// profile returns the profile and its engine as they are now; a reload may have removed the
// profile.
func (p *plugin) profile() (*config.Profile, *engine.Engine, error) {
	current := p.service.Current()
	profile, err := choose(p.arguments, current.Config)
	if err != nil {
		return nil, nil, err
	}
	return profile, current.Engines[profile.Path], nil
}

// view returns the latest View for the evaluation of the pod by the engine. The first call waits
// until there is a View.
func (p *plugin) view(ctx context.Context, e *engine.Engine, pod *corev1.Pod) (*snapshot.View, error) {
	cluster := p.service.Cluster
	if cluster.Synced() != nil {
		p.awaitSync.Do(func() {
			ctx, cancel := context.WithTimeout(ctx, syncTimeout)
			defer cancel()
			_ = cluster.WaitForSync(ctx)
		})
		if err := cluster.Synced(); err != nil {
			return nil, err
		}
	}
	if e.ReadsDevices() {
		p.awaited.Claims(ctx, cluster, pod)
	}
	return cluster.ViewFor(pod.UID), nil
}

// trimmed returns the trimmed pod.
func (p *plugin) trimmed(pod *corev1.Pod) *corev1.Pod {
	if known := p.service.Cluster.Pod(pod.UID, pod.ResourceVersion); known != nil {
		return known
	}
	return snapshot.TrimmedPod(pod)
}

// begin prepares the policies for the pod. The attempt is nil if no policy applies to the
// pod.
func (p *plugin) begin(ctx context.Context, pod *corev1.Pod) (*attempt, error) {
	started := time.Now()
	profile, e, err := p.profile()
	if err != nil || !profile.Manages(pod) {
		return nil, err
	}
	view, err := p.view(ctx, e, pod)
	if err != nil {
		return nil, fmt.Errorf("the policies cannot evaluate pods yet: %w", err)
	}
	trimmed := p.trimmed(pod)
	prepared, err := e.Begin(ctx, trimmed, view)
	if err != nil {
		return nil, err
	}
	if !prepared.Applies() && !e.Reserves() {
		return nil, nil
	}
	return &attempt{Cycle: prepared, plugin: p, profile: profile.Path, shortlist: min(profile.Listed(), mostNamed), engine: e, pod: trimmed, view: view, started: started}, nil
}
