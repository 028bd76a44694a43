package schedplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/filewatch"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/service"
	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	signals "outboard.dev/outboard/signal/standard"
)

// New returns the factory of the plugin, for the registry of kube-scheduler. Configurations can use
// these types of policies and of sources of signals; a nil list stands for the built-in ones. The
// plugins of one factory, one for each profile of kube-scheduler, share one configuration and all
// background work, which ends with the ctx of the first of them. A plugin that is made after that
// begins anew. Plugins of different factories share nothing.
func New(policyTypes []policy.Type, signalTypes []signal.Type) func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if policyTypes == nil {
		policyTypes = policies.Types()
	}
	if signalTypes == nil {
		signalTypes = signals.Types()
	}
	h := &host{types: config.Types{Policies: policyTypes, Signals: signalTypes, Unserved: true}}
	return h.plugin
}

// host holds what the plugins of one factory share.
type host struct {
	types config.Types

	mu    sync.Mutex
	first arguments    // of the process
	made  *process     // nil: not yet
	ended func() error // not nil when what the process runs has ended: it would decide by what it has seen last
}

// process is the composition of cluster, signals, ledgers and engines that the plugins use.
type process struct {
	service *service.Service
	metrics *callmetrics.Metrics
	naming  *callmetrics.Shortlists
	awaited binder.Awaited

	adding  sync.Mutex // guards plugins
	plugins []*plugin  // one for each profile of kube-scheduler that has the plugin
}

// newProcess returns the process with a service of the options.
func newProcess(o service.Options) (*process, error) {
	p := &process{metrics: callmetrics.New(o.Registry), naming: callmetrics.NewShortlists(o.Registry)}
	o.Schedules = p.schedules
	var err error
	p.service, err = service.New(o)
	return p, err
}

// schedules reports whether a profile of kube-scheduler with this name runs the policies of
// Outboard's profile.
func (p *process) schedules(profile, schedulerName string) bool {
	p.adding.Lock()
	defer p.adding.Unlock()
	return slices.ContainsFunc(p.plugins, func(q *plugin) bool {
		return (q.Profile == profile || q.Profile == "") && q.handle.ProfileName() == schedulerName // "" is the only profile
	})
}

// plugin makes the plugin of one profile of kube-scheduler. What runs in the background ends with
// ctx.
func (h *host) plugin(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	a, c, err := parseArguments(args, h.types)
	if err != nil {
		return nil, service.Listed(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil || h.ended() != nil {
		made, err := h.start(ctx, a, c, handle)
		if err != nil {
			return nil, err
		}
		h.first, h.made, h.ended = a, made, ctx.Err
	} else if a.ConfigFile != h.first.ConfigFile || c != nil && len(config.Compare(h.made.service.Current().Config, c, config.Observed{}).Changes) > 0 {
		return nil, errors.New(argsName + ": all profiles of kube-scheduler must have the same configuration except for profile and inertPlugins")
	}
	if _, err := choose(a, h.made.service.Current().Config); err != nil {
		return nil, err
	}
	return newPlugin(h.made, a, handle), nil
}

// start makes the process, which runs until ctx ends. c is the configuration; nil: it is in a file.
func (h *host) start(ctx context.Context, a arguments, c *config.Config, handle fwk.Handle) (*process, error) {
	if c == nil {
		var err error
		if c, err = config.Load(a.ConfigFile, h.types); err != nil {
			return nil, service.Listed(err)
		}
	}
	if _, err := choose(a, c); err != nil {
		return nil, err
	}
	logger := service.NewLogger(c.Log)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	to, err := service.Connect(c, options(handle), registry, logger)
	if err != nil {
		return nil, err
	}
	p, err := newProcess(service.Options{
		File: a.ConfigFile, Config: c, Types: h.types, Connection: to, Registry: registry, Logger: logger,
		Retry: func(pod *corev1.Pod) {
			handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
		},
	})
	if err != nil {
		return nil, err
	}
	admin, err := server.New(server.Options{Logger: logger, Admin: p.service.AdminOptions()})
	if err == nil {
		err = admin.Listen()
	}
	if err != nil {
		return nil, fmt.Errorf("%w (set admin.address)", err)
	}
	run := []func(context.Context) error{p.service.Run, admin.Run}
	if a.ConfigFile != "" {
		watcher, err := filewatch.New(filewatch.Options{
			Paths:    []string{a.ConfigFile},
			OnChange: func(contents map[string][]byte) { p.service.Reload(contents[a.ConfigFile]) },
			OnError:  p.service.ReloadFailed,
		})
		if err != nil {
			return nil, err
		}
		go watcher.Run(ctx)
	}
	logger.Info("running the policies inside kube-scheduler", "admin", admin.AdminAddr().String())
	for _, f := range run {
		go func() {
			if err := f(ctx); err != nil {
				logger.Error("a background task of Outboard has failed: restart kube-scheduler", "error", err)
			}
		}()
	}
	return p, nil
}

// options returns those of the cluster. The rate limits are kube-scheduler's. A pod that is
// rejected because of them costs more requests than the Binding for which it may as well wait:
// nobody gives up in the meantime, as the caller of an extender does.
func options(handle fwk.Handle) cluster.Options {
	client := handle.KubeConfig()
	return cluster.Options{Config: client, QPS: client.QPS, Burst: client.Burst, ThrottleTimeout: -1, Informers: handle.SharedInformerFactory()}
}
