package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/clustermetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/internal/requeue"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/signals/poll"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/snapshot"
)

// Options are the parts of a Service.
type Options struct {
	// File is the configuration file, for reloads.
	File string
	// Config is the configuration with which the process starts, and Types are the policies and
	// signals that it can name.
	Config *config.Config
	Types  config.Types
	// Connection is to the API server. With the zero value, policies see only the nodes in
	// requests.
	Connection
	// Retry makes kube-scheduler retry a pod, of which only namespace, name and UID are set. If it
	// is nil, the Requeuer writes to the pod instead.
	Retry func(pod *corev1.Pod)
	// Schedules reports whether the pods with the schedulerName are placed with the profile. If it
	// is nil, the profile's SchedulerNames say which are, and its bind calls refuse all others.
	Schedules func(profile, schedulerName string) bool
	// OnActivate, if not nil, is called with the profiles that the Service uses from now on: by
	// New, and after each reload.
	OnActivate func(*Service, *Profiles)

	Registry *prometheus.Registry
	Logger   *slog.Logger
}

// Service has the signals, ledgers, requeuing, reloads, records and explanations for the policies
// of a configuration. A reload replaces the [Profiles] as a whole. Its methods may be called
// concurrently.
type Service struct {
	Connection
	// Log has the latest decisions. The caller adds them.
	Log *decision.Log
	// Requeuer knows the pods that Outboard has rejected, and requeues them. It is nil without a
	// cluster.
	Requeuer *requeue.Requeuer

	surveyor *clustermetrics.Surveyor // nil without a cluster
	journal  *decision.Journal        // nil: none
	count    func()                   // for the page, see ui.Source.Repeat; nil without AdminOptions

	options     Options
	logger      *slog.Logger
	allocations sync.Once     // closes allocated
	allocated   chan struct{} // closed once a policy allocates resources
	signalViews *signalViews  // the Views without a cluster; nil with one
	signals     *poll.Poller
	reloads     *reloads
	current     atomic.Pointer[Profiles]
	activated   chan struct{} // capacity 1: current has changed

	reloading sync.Mutex
	retry     []byte // the file to apply again; nil: none
}

// Profiles are the engines of one configuration.
type Profiles struct {
	Config  *config.Config
	Engines map[string]*engine.Engine // by path

	requirements requirements
	signals      []poll.Signal
}

// Reserves reports whether a policy allocates resources, and so uses ledgers.
func (p *Profiles) Reserves() bool { return p.requirements.ledgers }

// New returns a Service of Options.Config. It reads nothing yet.
func New(o Options) (*Service, error) {
	s := &Service{
		Connection: o.Connection, options: o, logger: o.Logger, allocated: make(chan struct{}),
		Log: decision.NewLog(0), reloads: newReloads(o.Registry), activated: make(chan struct{}, 1),
	}
	options := poll.Options{Logger: o.Logger, Registerer: o.Registry}
	var err error
	if s.journal, err = openJournal(o.Config.Log.Decisions, s.Log, o.Registry, o.Logger); err != nil {
		return nil, err
	}
	if s.Cluster == nil {
		s.signalViews = newSignalViews()
		options.Publisher = s.signalViews
	} else {
		s.Requeuer = requeue.New(s.requeueOptions())
		if s.surveyor, err = clustermetrics.New(s.surveyOptions()); err != nil {
			return nil, err
		}
		options.Publisher, options.Now = s.Cluster, s.Cluster.Clock().Earliest
	}
	if s.signals, err = poll.New(options); err != nil {
		return nil, err
	}
	p, err := s.provision(o.Config)
	if err != nil {
		return nil, err
	}
	s.activate(p)
	s.reloads.loaded(o.Config, false)
	return s, nil
}

// retriesPerSecond is how many pods the Requeuer requeues per second with Options.Retry, which
// writes nothing.
const retriesPerSecond = 1000

func (s *Service) requeueOptions() requeue.Options {
	o := requeue.Options{Cluster: s.Cluster, PerSecond: s.options.Config.Requeue.PerSecond, Logger: s.logger, Registerer: s.options.Registry}
	if s.options.Retry == nil {
		o.Ignored = func() []corev1.ResourceName { return s.current.Load().Config.IgnoredByScheduler() }
	} else if o.PerSecond > 0 {
		o.Cluster, o.PerSecond = retrying{s.Cluster, s.options.Retry}, retriesPerSecond
	}
	return o
}

func (s *Service) surveyOptions() clustermetrics.Options {
	return clustermetrics.Options{
		Cluster: s.Cluster, Source: s.pending(), Now: s.Cluster.Clock().Earliest, Registerer: s.options.Registry,
	}
}

// pending returns what is known of pods that wait.
func (s *Service) pending() pending.Source {
	source := pending.Source{Config: func() *config.Config { return s.current.Load().Config }, Places: s.places}
	if s.Requeuer != nil {
		source.Rejected = s.Requeuer.Status
	}
	return source
}

// places reports whether pods like this one are placed with the profile.
func (s *Service) places(p *config.Profile, pod *corev1.Pod) bool {
	if s.options.Schedules == nil {
		return p.Places(pod)
	}
	return p.Manages(pod) && s.options.Schedules(p.Path, pod.Spec.SchedulerName)
}

// retrying is a cluster that retries pods without a write.
type retrying struct {
	*cluster.Cluster
	retry func(pod *corev1.Pod)
}

// RetryPod implements requeue.Cluster.
func (r retrying) RetryPod(_ context.Context, namespace, name string, uid types.UID) (found bool, err error) {
	if r.PodByUID(uid) == nil {
		return false, nil
	}
	r.retry(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}})
	return true, nil
}

// Current returns the profiles in use.
func (s *Service) Current() *Profiles { return s.current.Load() }

// View returns the latest View. Without a cluster it has only signals.
func (s *Service) View() *snapshot.View {
	if s.Cluster == nil {
		return s.signalViews.View()
	}
	return s.Cluster.View()
}

// activate uses the profiles from now on.
func (s *Service) activate(p *Profiles) {
	for _, warning := range p.Config.Warnings {
		s.logger.Warn("the configuration is probably not what you intend", "warning", warning.Error())
	}
	if s.Cluster != nil {
		s.Cluster.KeepHistory(p.requirements.history)
	}
	if p.requirements.ledgers {
		s.allocations.Do(func() { close(s.allocated) })
	}
	s.signals.SetSignals(p.signals)
	s.current.Store(p)
	if s.options.OnActivate != nil {
		s.options.OnActivate(s, p)
	}
	select {
	case s.activated <- struct{}{}:
	default:
	}
	if s.Requeuer != nil {
		s.Requeuer.Use(p.Engines)
	}
}

// provision makes the engines and opens the sources of the configuration. The Service does not use
// them yet.
func (s *Service) provision(c *config.Config) (*Profiles, error) {
	p := &Profiles{Config: c, requirements: requirementsOf(c), Engines: map[string]*engine.Engine{}}
	for i := range c.Profiles {
		e, err := EngineOf(c, &c.Profiles[i], time.Now)
		if err != nil {
			return nil, err
		}
		p.Engines[c.Profiles[i].Path] = e
	}
	var err error
	p.signals, err = openSignals(c, s.Client)
	return p, err
}

// EngineOf returns the engine of a profile of the configuration. clock may be nil.
func EngineOf(c *config.Config, profile *config.Profile, clock func() time.Time) (*engine.Engine, error) {
	members := make([]engine.WeightedPolicy, 0, len(profile.Policies))
	for _, m := range profile.Policies {
		members = append(members, engine.WeightedPolicy{Name: m.Name, Policy: m.Policy, Weight: m.Weight, FailurePolicy: m.FailurePolicy})
	}
	e, err := engine.New(engine.Options{Policies: members, Shortlist: profile.Listed(), Bypass: c.Bypass, Clock: clock})
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", profile.Path, err)
	}
	return e, nil
}

// Warnings returns lines about problems that do not make calls fail.
func (s *Service) Warnings() []string {
	lines := append(s.deviations(), s.signals.Warnings()...)
	if s.Cluster != nil {
		lines = append(lines, s.Cluster.Warnings()...)
	}
	if s.Keeper != nil && s.current.Load().requirements.ledgers {
		lines = append(lines, s.Keeper.Warnings()...)
	}
	return lines
}

// deviations returns why Outboard does not decide as the configuration file says.
func (s *Service) deviations() []string {
	lines := s.reloads.warnings()
	if s.current.Load().Config.Bypass {
		lines = append(lines, "bypass is true: no policy is asked, except for allocations")
	}
	return lines
}

// warning adds the deviations to the responses of the handler, in the header that the API server
// uses, too.
func (s *Service) warning(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, line := range s.deviations() {
			if value, err := utilnet.NewWarningHeader(299, "outboard", decision.Plain(line)); err == nil { // Plain permits no other character
				w.Header().Add("Warning", value)
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// Source returns the data for explanations.
func (s *Service) Source() explain.Source {
	source := explain.Source{Log: s.Log, Engines: func() map[string]*engine.Engine { return s.current.Load().Engines }}
	profile := func(path string) *config.Profile {
		profiles := s.current.Load().Config.Profiles
		if i := slices.IndexFunc(profiles, func(p config.Profile) bool { return p.Path == path }); i >= 0 {
			return &profiles[i]
		}
		return nil // it has just been removed
	}
	source.Manages = func(path string, pod *corev1.Pod) bool {
		p := profile(path)
		return p != nil && p.Manages(pod)
	}
	if s.options.Schedules == nil {
		source.Refuses = func(path string, pod *corev1.Pod) error {
			if p := profile(path); p != nil {
				return binder.OfScheduler(pod, path, p.SchedulerNames)
			}
			return nil
		}
	}
	source.Ignored = func() []corev1.ResourceName { return s.current.Load().Config.IgnoredByScheduler() }
	source.Signals = func() []explain.Signal { return explained(s.signals) }
	if s.Cluster != nil {
		known := s.pending()
		source.View, source.Pod, source.Reason, source.Uncalled = s.Cluster.ViewFor, s.wholePod, known.Of, known.Uncalled
	}
	return source
}

// wholePod returns the pod in its latest known state, or nil if there is none. It reads a pod of
// which the cache has only a part. With an error, it returns this part.
func (s *Service) wholePod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := s.Cluster.PodByName(namespace, name)
	if pod == nil || !snapshot.IsReduced(pod) {
		return pod, nil
	}
	live, err := s.Cluster.LivePod(ctx, namespace, name, pod.UID)
	if err != nil {
		return pod, fmt.Errorf("it is so large that Outboard keeps only a part of it, and reading it from the API server failed: %w", err)
	}
	return live, nil
}

// AdminOptions returns the options of the listener for metrics, health and explanations.
func (s *Service) AdminOptions() server.AdminOptions {
	c := s.options.Config.Admin
	options := server.AdminOptions{
		Address: c.Address, AllowRemote: c.Expose == config.ExposeAll, AllowRemoteMetrics: c.Expose == config.ExposeMetrics, Pprof: c.Pprof,
		Gatherer: s.options.Registry,
		Handlers: map[string]http.Handler{
			"GET " + explain.Path:          explain.Handler(s.Source()),
			"POST " + explain.TryPath:      explain.TryHandler(s.Source()),
			"GET " + explain.DecisionsPath: explain.DecisionsHandler(s.Log),
			"GET " + InspectPath + "/":     http.HandlerFunc(s.InspectAny),
		},
		Checks: []server.Check{{Name: "signals", Ready: s.signals.Tried}},
	}
	if s.Cluster != nil {
		options.Checks = append(options.Checks, server.Check{Name: "cluster", Ready: s.Cluster.Synced})
	}
	page := s.uiSource(options.Checks)
	options.Warnings = ui.Troubles(page)
	for pattern, handler := range ui.Handlers(page) {
		options.Handlers[pattern] = handler
	}
	for pattern, handler := range options.Handlers {
		options.Handlers[pattern] = s.warning(handler)
	}
	return options
}
