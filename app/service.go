package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/cluster"
	"outboard.dev/outboard/config"
	"outboard.dev/outboard/decision"
	"outboard.dev/outboard/engine"
	"outboard.dev/outboard/explain"
	"outboard.dev/outboard/extender"
	"outboard.dev/outboard/ledger"
	"outboard.dev/outboard/server"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/wakeup"
)

// service answers calls with the profiles in force, which a reload swaps as a
// whole.
type service struct {
	cluster      *cluster.Cluster // nil: judge from the request alone
	requirements requirements     // of the configuration that serving began with
	keeper       *ledger.Keeper   // nil: nothing is handed out
	waker        *wakeup.Waker    // nil: nobody is woken
	signals      *signal.Manager
	types        config.Types
	client       *rest.Config // for the API server; nil without a cluster
	columns      *columns     // where signals go without a cluster; nil with one
	inFlight     *extender.InFlight
	log          *decision.Log
	metrics      *extender.Metrics
	reloads      *prometheus.CounterVec
	logger       *slog.Logger
	current      atomic.Pointer[profiles]
	enforced     chan struct{} // capacity 1: current is another
}

// profiles are what one configuration serves.
type profiles struct {
	config  *config.Config
	engines map[string]*engine.Engine
	routes  map[string]http.Handler
	signals []signal.Followed
}

func newService(c *config.Config, types config.Types, client *rest.Config, live *cluster.Cluster, keeper *ledger.Keeper, registry *prometheus.Registry, logger *slog.Logger) (*service, error) {
	s := &service{
		types:        types,
		client:       client,
		cluster:      live,
		requirements: requirementsOf(c),
		keeper:       keeper,
		inFlight:     extender.NewInFlight(),
		enforced:     make(chan struct{}, 1),
		log:          decision.NewLog(0),
		metrics:      extender.NewMetrics(registry),
		logger:       logger,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_config_reloads_total",
			Help: "Changes of the configuration file, by outcome (ok, error).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{"ok", "error"} {
		s.reloads.WithLabelValues(outcome)
	}
	if err := registry.Register(s.reloads); err != nil {
		return nil, err
	}
	if live != nil && c.WakeUp.PerSecond > 0 {
		var err error
		if s.waker, err = wakeup.New(wakeup.Options{Cluster: live, PerSecond: c.WakeUp.PerSecond, Logger: logger, Registerer: registry}); err != nil {
			return nil, err
		}
	}
	following := signal.Options{Publisher: live, Logger: logger, Registerer: registry}
	if live == nil {
		s.columns = newColumns()
		following.Publisher = s.columns
	} else {
		following.Now = live.Clock().Earliest
	}
	var err error
	if s.signals, err = signal.NewManager(following); err != nil {
		return nil, err
	}
	p, err := s.provision(c)
	if err != nil {
		return nil, err
	}
	s.enforce(p)
	return s, nil
}

// enforce puts into force what was provisioned.
func (s *service) enforce(p *profiles) {
	if s.cluster != nil {
		s.cluster.KeepHistory(requirementsOf(p.config).history)
	}
	s.signals.Follow(p.signals)
	s.current.Store(p)
	select {
	case s.enforced <- struct{}{}:
	default:
	}
	if s.waker != nil {
		s.waker.Use(p.engines)
	}
}

// provision makes what the configuration asks for, and puts nothing into force.
func (s *service) provision(c *config.Config) (*profiles, error) {
	if wanted := requirementsOf(c); s.cluster != nil && !s.requirements.cover(wanted) {
		return nil, errors.New("a policy has been added that hands something out or reads ConfigMaps, which takes a restart")
	}
	p := &profiles{config: c, engines: map[string]*engine.Engine{}, routes: map[string]http.Handler{}}
	for i := range c.Profiles {
		profile := &c.Profiles[i]
		e, err := engineOf(profile, time.Now)
		if err != nil {
			return nil, err
		}
		options := extender.Options{
			Profile: profile.Path, Engine: e, Fine: profile.Resolution == config.Fine,
			Reserve: server.Reserve, InFlight: s.inFlight, Log: s.log, Metrics: s.metrics, Logger: s.logger,
			SchedulerNames: profile.SchedulerNames,
		}
		for _, r := range profile.ManagedResources {
			options.ManagedResources = append(options.ManagedResources, r.Name)
		}
		if s.cluster != nil {
			options.Cluster = toCluster(s.cluster)
		} else {
			options.View = s.columns.View
		}
		if s.waker != nil {
			options.Filtered = s.waker.Observer(profile.Path, e)
		}
		if s.keeper != nil {
			options.Ledgers = toLedgers(s.keeper)
		}
		handler := extender.New(options)
		p.engines[profile.Path] = e
		for _, route := range profile.Routes() {
			p.routes[route.Path] = handler.Verb(route.Verb)
		}
	}
	var err error
	p.signals, err = followed(c, s.signalCluster())
	return p, err
}

// engineOf makes the engine of a profile. clock may be nil.
func engineOf(profile *config.Profile, clock func() time.Time) (*engine.Engine, error) {
	members := make([]engine.Member, 0, len(profile.Policies))
	for _, m := range profile.Policies {
		members = append(members, engine.Member{Name: m.As, Policy: m.Policy, Weight: m.Weight, FailurePolicy: m.FailurePolicy})
	}
	e, err := engine.New(engine.Options{Policies: members, Shortlist: profile.Shortlist, Clock: clock})
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", profile.Path, err)
	}
	return e, nil
}

// signalCluster is the cluster for sources of signals.
func (s *service) signalCluster() signal.Cluster {
	if s.cluster == nil {
		return signal.Cluster{}
	}
	return signal.Cluster{View: s.cluster.View, Client: s.client}
}

func (p *profiles) urls() []string { return slices.Sorted(maps.Keys(p.routes)) }

// precomputePause is the time between a new View, or other profiles, and Engine.Precompute: the result is needed about a
// hundred pods later.
const precomputePause = 200 * time.Millisecond

// precompute lets policies compute what the next requests will need, until ctx ends.
func (s *service) precompute(ctx context.Context) {
	if s.cluster == nil {
		return
	}
	for {
		view := s.cluster.View()
		if s.cluster.Synced() == nil {
			for path, e := range s.current.Load().engines {
				if err := e.Precompute(view); err != nil {
					s.logger.Error("a policy could not precompute", "profile", path, "error", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.cluster.Superseded(view):
		case <-s.enforced:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(precomputePause):
		}
	}
}

// ServeHTTP answers a call of kube-scheduler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.current.Load()
	if handler := p.routes[r.URL.Path]; handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	if s.inspect(w, r) {
		return
	}
	http.Error(w, fmt.Sprintf("nothing is served at %q; the verbs are at: %s", r.URL.Path, strings.Join(p.urls(), ", ")), http.StatusNotFound)
}

// reload puts a changed configuration file into force, if it is valid.
func (s *service) reload(file string, data []byte) {
	c, err := config.Parse(file, data, s.types)
	if err != nil {
		s.reloadFailed(listed(err))
		return
	}
	p, err := s.provision(c)
	if err != nil {
		s.reloadFailed(err)
		return
	}
	if fields := config.NeedsRestart(s.current.Load().config, c); len(fields) > 0 {
		s.logger.Warn("some changes of the configuration take effect at the next start only", "fields", fields)
	}
	s.enforce(p)
	s.reloads.WithLabelValues("ok").Inc()
	s.logger.Info("configuration reloaded", "urls", p.urls())
}

func (s *service) reloadFailed(err error) {
	s.reloads.WithLabelValues("error").Inc()
	s.logger.Error("configuration not reloaded, the former one stays in force", "error", err)
}

func (s *service) serverOptions(c *config.Config, registry *prometheus.Registry) server.Options {
	options := server.Options{
		Address:          c.Serving.Address,
		Handler:          s,
		HTTP2:            c.Serving.HTTP2,
		MaxBodyBytes:     int64(c.Serving.MaxBodyBytes),
		MaxInFlightBytes: int64(c.Serving.MaxInFlightBytes),
		LameDuck:         c.Serving.LameDuck,
		DrainTimeout:     c.Serving.DrainTimeout,
		Logger:           s.logger,
		Registerer:       registry,
		Admin: server.AdminOptions{
			Address: c.Admin.Address, AllowRemote: c.Admin.AllowRemote, Pprof: c.Admin.Pprof,
			Gatherer: registry,
			Handlers: map[string]http.Handler{
				"GET " + explain.Path:      explain.Handler(s.source()),
				"GET " + inspectPath + "/": http.HandlerFunc(s.inspectAny),
			},
		},
	}
	if options.LameDuck == 0 {
		options.LameDuck = -1 // none, where 0 would mean the default
	}
	if tls := c.Serving.TLS; tls != nil {
		options.TLS = &server.TLSOptions{
			CertFile: tls.CertFile, KeyFile: tls.KeyFile, ClientCAFile: tls.ClientCAFile, AllowedClients: tls.AllowedClients,
		}
	}
	options.Admin.Checks = []server.Check{{Name: "signals", Ready: s.signals.Tried}}
	options.Admin.Warnings = s.warnings
	if s.cluster != nil {
		options.Admin.Checks = append(options.Admin.Checks, server.Check{Name: "cluster", Ready: s.cluster.Synced})
	}
	return options
}

// warnings are lines about what does not work as it should although calls are answered.
func (s *service) warnings() []string {
	lines := s.signals.Warnings()
	if s.cluster != nil {
		lines = append(lines, s.cluster.Warnings()...)
	}
	if s.keeper != nil {
		lines = append(lines, s.keeper.Warnings()...)
	}
	return lines
}

func (s *service) source() explain.Source {
	source := explain.Source{Log: s.log, Engines: func() map[string]*engine.Engine { return s.current.Load().engines }}
	if s.waker != nil {
		source.Waiting = func(profile string, pod types.UID) *explain.Waiting {
			if status, ok := s.waker.Status(profile, pod); ok {
				return (*explain.Waiting)(&status)
			}
			return nil
		}
	}
	source.Ignored = func() []corev1.ResourceName { return s.current.Load().config.IgnoredByScheduler() }
	source.Signals = func() []explain.Signal { return explained(s.signals) }
	if s.cluster != nil {
		source.View, source.Pod = s.cluster.View, s.cluster.PodByName
	}
	return source
}
