package service

import (
	"os"
	"time"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/ui"
)

// uiSource returns what the data of the page is made of.
func (s *Service) uiSource(checks []server.Check) ui.Source {
	name, _ := os.Hostname() // in a cluster, that of the pod
	source := ui.Source{
		Name: name, Metrics: s.options.Registry, Warnings: s.Warnings, Log: s.Log, View: s.View, Now: time.Now,
		Source:  s.pending(),
		Signals: func() []explain.Signal { return explained(s.signals) },
		Repeat:  func(count func()) { s.count = count },
		Checks: func() []ui.Check {
			var all []ui.Check
			for _, c := range checks {
				state := ui.Check{Name: c.Name}
				if err := c.Ready(); err != nil {
					state.Error = err.Error()
				}
				all = append(all, state)
			}
			return all
		},
	}
	if s.Cluster != nil {
		source.Now, source.CountPods, source.Audit = s.Cluster.Clock().Earliest, s.Cluster.CountPods, s.surveyor.Audit
		source.Unbound, source.Hints = s.Cluster.Unbound, s.Source().Hints
		source.Version = func() [2]uint64 { return [2]uint64{s.Cluster.UnboundVersion(), s.Requeuer.Version()} }
	}
	return source
}
