package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	"outboard.dev/outboard/requeue"
	"outboard.dev/outboard/server"
	"outboard.dev/outboard/signal"
)

// service answers calls with the profiles in force, which a reload swaps as a
// whole.
type service struct {
	types    config.Types
	started  *config.Config // with which the process was started
	registry *prometheus.Registry
	logger   *slog.Logger

	connection
	claims      sync.Once         // that a policy claims something
	claimed     chan struct{}     // closed when one does
	requeuer    *requeue.Requeuer // nil: no pod is requeued
	signalViews *signalViews      // where signals go without a cluster; nil with one

	signals  *signal.Manager
	inFlight *extender.InFlight
	log      *decision.Log
	metrics  *extender.Metrics
	reloads  *reloads
	current  atomic.Pointer[profiles]
	enforced chan struct{} // capacity 1: current is another

	reloading sync.Mutex
	retry     []byte // the file to reload again; nil: none
}

// connection is what works with the API server; the zero value judges from requests alone.
type connection struct {
	cluster *cluster.Cluster
	client  *rest.Config // of its API server
	keeper  *ledger.Keeper
}

// connect makes the connection of the configuration. It makes no request.
func connect(c *config.Config, registry *prometheus.Registry, logger *slog.Logger) (to connection, err error) {
	if c.ClientConnection.None {
		return to, nil
	}
	if to.client, err = clientConfig(c.ClientConnection); err != nil {
		return to, fmt.Errorf("%w (set clientConnection.kubeconfig, or clientConnection: None)", err)
	}
	needed := requirementsOf(c)
	if to.cluster, err = cluster.New(cluster.Options{
		Config: to.client, QPS: float32(c.ClientConnection.QPS), Burst: c.ClientConnection.Burst, Logger: logger, Registerer: registry,
		Ledgers: needed.ledgers, ConfigMaps: needed.configMaps,
	}); err != nil {
		return to, err
	}
	to.keeper, err = ledger.New(ledger.Options{
		API: toAPI(to.cluster), Cache: to.cluster, ReclaimAfter: c.Ledgers.ReclaimAfter, Now: to.cluster.Clock().Latest, Logger: logger, Registerer: registry,
	})
	return to, err
}

// profiles are what one configuration serves.
type profiles struct {
	config       *config.Config
	requirements requirements
	engines      map[string]*engine.Engine
	routes       map[string]http.Handler
	verbs        map[string]decision.Verb // by path, as routes
	signals      []signal.Followed
}

// newService makes a service of the configuration with which the process is started. It
// reads nothing yet.
func newService(c *config.Config, types config.Types, to connection, registry *prometheus.Registry, logger *slog.Logger) (*service, error) {
	s := &service{
		connection: to, types: types, started: c, registry: registry, logger: logger, claimed: make(chan struct{}),
		log: decision.NewLog(0), metrics: extender.NewMetrics(registry), reloads: newReloads(registry),
		inFlight: extender.NewInFlight(), enforced: make(chan struct{}, 1),
	}
	following := signal.Options{Logger: logger, Registerer: registry}
	var err error
	if s.cluster == nil {
		s.signalViews = newSignalViews()
		following.Publisher = s.signalViews
	} else {
		if c.Requeue.PerSecond > 0 {
			if s.requeuer, err = requeue.New(requeue.Options{Cluster: s.cluster, PerSecond: c.Requeue.PerSecond, Logger: logger, Registerer: registry}); err != nil {
				return nil, err
			}
		}
		following.Publisher, following.Now = s.cluster, s.cluster.Clock().Earliest
	}
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
	for _, warning := range p.config.Warnings {
		s.logger.Warn("the configuration is probably not what you intend", "warning", warning.Error())
	}
	if s.cluster != nil {
		s.cluster.KeepHistory(p.requirements.history)
	}
	if p.requirements.ledgers {
		s.claims.Do(func() { close(s.claimed) })
	}
	s.signals.Follow(p.signals)
	s.current.Store(p)
	select {
	case s.enforced <- struct{}{}:
	default:
	}
	if s.requeuer != nil {
		s.requeuer.Use(p.engines)
	}
}

// provision makes what the configuration asks for, and puts nothing into force.
func (s *service) provision(c *config.Config) (*profiles, error) {
	p := &profiles{
		config: c, requirements: requirementsOf(c),
		engines: map[string]*engine.Engine{}, routes: map[string]http.Handler{}, verbs: map[string]decision.Verb{},
	}
	for i := range c.Profiles {
		profile := &c.Profiles[i]
		e, err := engineOf(profile, time.Now)
		if err != nil {
			return nil, err
		}
		options := extender.Options{
			Profile: profile.Path, Engine: e, Fine: profile.ScoreRange == config.TotalRange,
			Reserve: server.Reserve, InFlight: s.inFlight, Log: s.log, Metrics: s.metrics, Logger: s.logger,
			SchedulerNames: profile.SchedulerNames,
		}
		for _, r := range profile.ManagedResources {
			options.ManagedResources = append(options.ManagedResources, r.Name)
		}
		if s.cluster != nil {
			options.Cluster = toCluster(s.cluster)
		} else {
			options.View = s.signalViews.View
		}
		if s.requeuer != nil {
			options.Filtered = s.requeuer.Observer(profile.Path, e)
		}
		if s.keeper != nil && p.requirements.ledgers {
			options.Ledgers = toLedgers(s.keeper)
		}
		handler := extender.New(options)
		p.engines[profile.Path] = e
		for _, route := range profile.Routes() {
			p.routes[route.Path], p.verbs[route.Path] = handler.Verb(route.Verb), route.Verb
		}
	}
	var err error
	p.signals, err = followed(c, s.signalCluster())
	return p, err
}

// engineOf makes the engine of a profile. clock may be nil.
func engineOf(profile *config.Profile, clock func() time.Time) (*engine.Engine, error) {
	members := make([]engine.WeightedPolicy, 0, len(profile.Policies))
	for _, m := range profile.Policies {
		members = append(members, engine.WeightedPolicy{Name: m.Name, Policy: m.Policy, Weight: m.Weight, FailurePolicy: m.FailurePolicy})
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
					s.logger.Error("a policy cannot precompute", "profile", path, "error", err)
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

// refused answers a caller that is known but not allowed, so that the pod's events say why.
func (s *service) refused(w http.ResponseWriter, r *http.Request, err error) bool {
	verb, ok := s.current.Load().verbs[r.URL.Path]
	if ok = ok && r.Method == http.MethodPost; ok {
		extender.WriteError(w, verb, err)
	}
	return ok
}

func (s *service) serverOptions(c *config.Config) server.Options {
	options := server.Options{
		Address:          c.Serving.Address,
		Handler:          s,
		HTTP2:            c.Serving.HTTP2,
		MaxBodyBytes:     int64(c.Serving.MaxBodyBytes),
		MaxInFlightBytes: int64(c.Serving.MaxInFlightBytes),
		ShutdownDelay:    c.Serving.ShutdownDelay,
		DrainTimeout:     c.Serving.DrainTimeout,
		Logger:           s.logger,
		Registerer:       s.registry,
		Admin: server.AdminOptions{
			Address: c.Admin.Address, AllowRemote: c.Admin.AllowRemote, Pprof: c.Admin.Pprof,
			Gatherer: s.registry,
			Handlers: map[string]http.Handler{
				"GET " + explain.Path:      explain.Handler(s.source()),
				"GET " + inspectPath + "/": http.HandlerFunc(s.inspectAny),
			},
		},
	}
	if options.ShutdownDelay == 0 {
		options.ShutdownDelay = -1 // none, where 0 would mean the default
	}
	if tls := c.Serving.TLS; tls != nil {
		options.TLS = &server.TLSOptions{
			CertFile: tls.CertFile, KeyFile: tls.KeyFile, ClientCAFile: tls.ClientCAFile, AllowedClients: tls.AllowedClients, Refused: s.refused,
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
	lines := append(s.reloads.warnings(), s.signals.Warnings()...)
	if s.cluster != nil {
		lines = append(lines, s.cluster.Warnings()...)
	}
	if s.keeper != nil && s.current.Load().requirements.ledgers {
		lines = append(lines, s.keeper.Warnings()...)
	}
	return lines
}

func (s *service) source() explain.Source {
	source := explain.Source{Log: s.log, Engines: func() map[string]*engine.Engine { return s.current.Load().engines }}
	if s.requeuer != nil {
		source.Pending = func(profile string, pod types.UID) *explain.Pending {
			if status, ok := s.requeuer.Status(profile, pod); ok {
				return (*explain.Pending)(&status)
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
