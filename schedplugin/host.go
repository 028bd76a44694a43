package schedplugin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/config"
	"outboard.dev/outboard/filewatch"
	policies "outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/service"
	signals "outboard.dev/outboard/signal/standard"
)

// New returns the factory of the plugin, for the registry of kube-scheduler. Configurations can name these types; those that come
// with Outboard where a list is nil. Every call of New makes plugins that share nothing with those of others; the plugins of one
// factory, one for each profile of kube-scheduler, share one configuration and all that runs in the background.
func New(types config.Types) func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if types.Policies == nil {
		types.Policies = policies.Types()
	}
	if types.Signals == nil {
		types.Signals = signals.Types()
	}
	h := &host{types: types}
	return h.plugin
}

// host is what the plugins of one process share.
type host struct {
	types config.Types

	mu      sync.Mutex
	first   arguments // with which the service was made
	service *service.Service
	logger  *slog.Logger
}

// plugin makes the plugin of one profile of kube-scheduler. What runs in the background ends with ctx.
func (h *host) plugin(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	a, err := parseArguments(args)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.service == nil {
		if err := h.start(ctx, a, handle); err != nil {
			return nil, err
		}
	} else if a.ConfigFile != h.first.ConfigFile || !bytes.Equal(a.document, h.first.document) {
		return nil, errors.New(argsName + ": all profiles of kube-scheduler must have the same configuration, but for profile")
	}
	if _, err := a.choose(h.service.Current().Config); err != nil {
		return nil, err
	}
	return newPlugin(h.service, a, handle), nil
}

// start makes the service, which runs until ctx ends.
func (h *host) start(ctx context.Context, a arguments, handle fwk.Handle) error {
	c, err := a.load(h.types)
	if err != nil {
		return service.Listed(err)
	}
	if _, err := a.choose(c); err != nil {
		return err
	}
	logger := service.NewLogger(c.Log)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	to, err := service.Connect(c, cluster.Options{Config: handle.KubeConfig(), Informers: handle.SharedInformerFactory()}, registry, logger)
	if err != nil {
		return err
	}
	s, err := service.New(service.Options{File: a.ConfigFile, Config: c, Types: h.types, Connection: to, Registry: registry, Logger: logger})
	if err != nil {
		return err
	}
	if a.ConfigFile != "" {
		watcher, err := filewatch.New(filewatch.Options{
			Paths:    []string{a.ConfigFile},
			OnChange: func(contents map[string][]byte) { s.Reload(contents[a.ConfigFile]) },
			OnError:  s.WatchFailed,
		})
		if err != nil {
			return err
		}
		go watcher.Run(ctx)
	}
	go func() {
		if err := s.Run(ctx); err != nil {
			logger.Error("the policies are not served any more", "error", err)
		}
	}()
	h.first, h.service, h.logger = a, s, logger
	return nil
}
