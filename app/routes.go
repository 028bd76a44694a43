package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/extender"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/throttle"
)

// serving responds to calls with the profiles in use.
type serving struct {
	*service.Service
	options  service.Options
	inFlight *extender.InFlight
	metrics  *callmetrics.Metrics
	routes   atomic.Pointer[routes]
	unknown  throttle.Log // calls of paths at which nothing is served
	// unserved counts these calls.
	unserved *callmetrics.Unserved
}

// routes are the handlers of one configuration, by path.
type routes struct {
	handlers map[string]http.Handler
	verbs    map[string]decision.Verb // has the same keys as handlers
}

func (r *routes) urls() []string { return slices.Sorted(maps.Keys(r.handlers)) }

func newServing(o service.Options) (s *serving, err error) {
	s = &serving{options: o, inFlight: extender.NewInFlight(), metrics: callmetrics.New(o.Registry), unserved: callmetrics.NewUnserved(o.Registry)}
	o.OnActivate = s.activated
	s.Service, err = service.New(o)
	return s, err
}

// activated replaces the handlers by those of the profiles.
func (s *serving) activated(of *service.Service, p *service.Profiles) {
	r := &routes{handlers: map[string]http.Handler{}, verbs: map[string]decision.Verb{}}
	for i := range p.Config.Profiles {
		profile := &p.Config.Profiles[i]
		handler := extender.New(s.handlerOptions(of, p, profile))
		for _, route := range profile.Routes() {
			r.handlers[route.Path], r.verbs[route.Path] = handler.Verb(route.Verb), route.Verb
		}
	}
	s.routes.Store(r)
}

func (s *serving) handlerOptions(of *service.Service, p *service.Profiles, profile *config.Profile) extender.Options {
	e := p.Engines[profile.Path]
	options := extender.Options{
		Profile: profile.Path, Engine: e,
		ReserveMemory: server.ReserveMemory, InFlight: s.inFlight, Log: of.Log, Metrics: s.metrics, Logger: s.options.Logger,
		SchedulerNames: profile.SchedulerNames,
	}
	for _, r := range profile.ManagedResources {
		options.ManagedResources = append(options.ManagedResources, r.Name)
	}
	if of.Cluster != nil {
		options.Cluster = of.Cluster
	} else {
		options.View = of.View
	}
	if of.Requeuer != nil {
		options.Filtered = of.Requeuer.Observer(profile.Path, e)
		options.Elsewhere = func(ctx context.Context, req engine.Request) string {
			return of.Requeuer.Elsewhere(ctx, profile.Path, req)
		}
	}
	if of.Keeper != nil && p.Reserves() {
		options.Ledgers = of.Keeper
	}
	return options
}

// ServeHTTP responds to a call of kube-scheduler.
func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := s.routes.Load()
	if handler := p.handlers[r.URL.Path]; handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	if s.Inspect(w, r) {
		return
	}
	if r.Method == http.MethodPost {
		s.unserved.Count(r.URL.Path)
		// kube-scheduler drops the text of the response.
		s.unknown.Log(s.options.Logger, slog.LevelWarn, "", "nothing is served at the path of a call", "path", r.URL.Path, "remote", r.RemoteAddr,
			"hint", "outboard check --cluster checks urlPrefix and the verbs in kube-scheduler's configuration")
	}
	http.Error(w, fmt.Sprintf("nothing is served at %q; the verbs are at: %s", r.URL.Path, strings.Join(p.urls(), ", ")), http.StatusNotFound)
}

// refused writes the response for a caller with a valid certificate that is not allowed, so that
// the pod's events have the reason.
func (s *serving) refused(w http.ResponseWriter, r *http.Request, err error) bool {
	verb, ok := s.routes.Load().verbs[r.URL.Path]
	if ok = ok && r.Method == http.MethodPost; ok {
		extender.WriteError(w, verb, err)
	}
	return ok
}

func (s *serving) serverOptions(c *config.Config) server.Options {
	options := server.Options{
		Address:       c.Serving.Address,
		Handler:       s,
		ShutdownDelay: c.Serving.ShutdownDelay,
		Logger:        s.options.Logger,
		Registerer:    s.options.Registry,
		Admin:         s.AdminOptions(),
	}
	if options.ShutdownDelay == 0 {
		options.ShutdownDelay = -1 // no delay; 0 would be the default
	}
	if tls := c.Serving.TLS; tls != nil {
		options.TLS = &server.TLSOptions{
			CertFile: tls.CertFile, KeyFile: tls.KeyFile, ClientCAFile: tls.ClientCAFile, AllowedClients: tls.AllowedClients, Refused: s.refused,
		}
	}
	return options
}
