package service

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/signals/poll"
	"outboard.dev/outboard/snapshot"
)

// openSignals opens the sources of the configuration. They read nothing yet.
func openSignals(c *config.Config, client *rest.Config) ([]poll.Signal, error) {
	var all []poll.Signal
	for _, s := range c.Signals {
		f, err := openSignal(s, client)
		if err != nil {
			closeSources(all)
			return nil, fmt.Errorf("signal %s: %w", s.Name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// openSignal opens the source of one signal.
func openSignal(s config.Signal, client *rest.Config) (poll.Signal, error) {
	if s.Type.NeedsCluster && client == nil {
		return poll.Signal{}, errors.New("it needs an API server, and the process was started with clientConnection: {enabled: false}: restart it")
	}
	text, err := strictyaml.Marshal(s.Config)
	if err != nil {
		return poll.Signal{}, err
	}
	source, err := s.Open(client)
	return poll.Signal{Settings: s.Settings, About: s.About, Config: s.Type.Name + ":\n" + string(text), Source: source}, err
}

// closeSources closes sources that were never read.
func closeSources(all []poll.Signal) {
	for _, f := range all {
		if closer, ok := f.Source.(io.Closer); ok {
			closer.Close()
		}
	}
}

// signalViews publishes Views with only signals, for a Service without a cluster.
type signalViews struct {
	mu      sync.Mutex
	builder snapshot.Builder
	view    atomic.Pointer[snapshot.View]
}

func newSignalViews() *signalViews {
	v := &signalViews{}
	v.view.Store(v.builder.View())
	return v
}

// SetSignal publishes the signal.
func (v *signalViews) SetSignal(s *snapshot.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.builder.SetSignal(s)
	v.view.Store(v.builder.View())
}

// DeleteSignal removes the signal from later Views.
func (v *signalViews) DeleteSignal(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.builder.DeleteSignal(name)
	v.view.Store(v.builder.View())
}

// View returns the latest View.
func (v *signalViews) View() *snapshot.View { return v.view.Load() }

// explained returns the states of the signals, for explanations.
func explained(p *poll.Poller) []explain.Signal {
	var all []explain.Signal
	for _, s := range p.Statuses() {
		e := explain.Signal{Name: s.Name, Values: s.Values, Stale: s.Stale, Newest: s.Newest}
		if s.Err != nil {
			e.Error = s.Err.Error()
		}
		all = append(all, e)
	}
	return all
}
