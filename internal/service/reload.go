package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/config"
)

const (
	// readTimeout is how long a reload waits until the objects that the new policies read are in
	// the cache.
	readTimeout = 15 * time.Second
	// retryReloadEvery is the time between two attempts to apply the same file.
	retryReloadEvery = 10 * time.Second
)

// Outcomes of a reload, as label values.
const (
	reloadSuccess = "success"
	reloadError   = "error"
)

// reloads counts reloads, and holds the outcome of the last one.
type reloads struct {
	total      *prometheus.CounterVec // by outcome
	successful prometheus.Gauge
	restart    prometheus.Gauge
	bypass     prometheus.Gauge
	info       *prometheus.GaugeVec  // by digest
	failure    atomic.Pointer[error] // of the last one; nil if it succeeded
}

func newReloads(registry *prometheus.Registry) *reloads {
	r := &reloads{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outboard_config_reloads_total",
			Help: "Reloads of the configuration file (success, error).",
		}, []string{"outcome"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_config_last_reload_successful",
			Help: "1 if the current configuration file is active, 0 if it cannot be loaded.",
		}),
		restart: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_config_restart_required",
			Help: "1 if a change of the configuration file has no effect until a restart.",
		}),
		bypass: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outboard_bypass",
			Help: "1 if no policy is asked, because the configuration has bypass: true, otherwise 0.",
		}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outboard_config_info",
			Help: "1, with a digest of the active signals and profiles as label.",
		}, []string{"digest"}),
	}
	for _, outcome := range []string{reloadSuccess, reloadError} {
		r.total.WithLabelValues(outcome)
	}
	registry.MustRegister(r.total, r.successful, r.restart, r.bypass, r.info)
	return r
}

// loaded records that a configuration was applied. restart: a part of it was not, until the process
// is restarted.
func (r *reloads) loaded(c *config.Config, restart bool) {
	if digest, err := c.Digest(); err == nil { // otherwise there is none, and nothing else is wrong
		r.info.Reset()
		r.info.WithLabelValues(digest).Set(1)
	}
	r.restart.Set(0)
	if restart {
		r.restart.Set(1)
	}
	r.bypass.Set(0)
	if c.Bypass {
		r.bypass.Set(1)
	}
	r.failure.Store(nil)
	r.successful.Set(1)
}

// failed records that a configuration could not be loaded or applied.
func (r *reloads) failed(err error) {
	r.failure.Store(&err)
	r.successful.Set(0)
	r.total.WithLabelValues(reloadError).Inc()
}

// warnings returns a line if the last reload failed. Other hosts may read it, so it has no values
// of the file, which may be secret.
func (r *reloads) warnings() []string {
	err := r.failure.Load()
	if err == nil {
		return nil
	}
	text := (*err).Error()
	if errs := (config.Errors)(nil); errors.As(*err, &errs) {
		lines := make([]string, len(errs))
		for i, e := range errs {
			public := *e
			public.Value = ""
			lines[i] = public.Error()
		}
		text = strings.Join(lines, "; ")
	}
	return []string{"cannot reload the configuration; the previous one stays in force: " + strings.Join(strings.Fields(text), " ")}
}

// Reload applies a changed configuration file, if it is valid.
func (s *Service) Reload(data []byte) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.reloadLocked(data)
}

func (s *Service) reloadLocked(data []byte) {
	s.retry = nil
	c, err := config.Parse(s.options.File, data, s.options.Types)
	if err != nil {
		s.ReloadFailed(err)
		return
	}
	p, err := s.prepare(c)
	if err != nil {
		s.retry = data
		s.ReloadFailed(err)
		return
	}
	compared := s.compare(c)
	for _, risk := range compared.Risks {
		s.logger.Warn("a configuration change is risky", "risk", risk)
	}
	s.activate(p)
	s.reloads.loaded(c, compared.Restart)
	s.reloads.total.WithLabelValues(reloadSuccess).Inc()
	for _, change := range compared.Changes {
		s.logger.Info("the configuration changed", "change", change.String())
	}
	s.logger.Info("reloaded the configuration", "changes", len(compared.Changes))
}

// compare compares the configuration in use with c. The part that is read when the process starts
// is in use until it is restarted.
func (s *Service) compare(c *config.Config) config.Comparison {
	used := *s.Current().Config
	used.Process = s.options.Config.Process
	seen := config.Observed{Plugin: s.options.Types.Unserved}
	if s.Cluster != nil {
		seen.View = s.Cluster.View()
	}
	return config.Compare(&used, c, seen)
}

// retryReloads retries, until ctx ends, to apply a valid configuration that failed for a reason
// outside the file, such as a missing permission.
func (s *Service) retryReloads(ctx context.Context) {
	ticker := time.NewTicker(retryReloadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.reloading.Lock()
		if s.retry != nil {
			s.reloadLocked(s.retry)
		}
		s.reloading.Unlock()
	}
}

// prepare provisions the configuration, and watches the objects that its policies read.
func (s *Service) prepare(c *config.Config) (*Profiles, error) {
	p, err := s.provision(c)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Cluster != nil:
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		if err = s.Cluster.Follow(ctx, p.requirements.ledgers, p.requirements.devices, p.requirements.configMaps); err != nil {
			err = fmt.Errorf("its policies need more of the cluster: %w", err)
		}
	case !p.requirements.none():
		err = errors.New("its policies need an API server, and the process was started with clientConnection: {enabled: false}: restart it")
	}
	if err != nil {
		closeSources(p.signals)
		return nil, err
	}
	return p, nil
}

// ReloadFailed records that the configuration file cannot be read or used.
func (s *Service) ReloadFailed(err error) {
	s.reloads.failed(err)
	s.logger.Error("cannot reload the configuration; the previous one stays in force", "error", Listed(err))
}

// Listed returns an error whose text has each error of a configuration file on its own line.
func Listed(err error) error {
	var errs config.Errors
	if errors.As(err, &errs) {
		return fmt.Errorf("the configuration is not valid:\n  %s", strings.ReplaceAll(errs.Error(), "\n", "\n  "))
	}
	return err
}
