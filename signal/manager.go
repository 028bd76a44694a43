package signal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Publisher receives the signals.
type Publisher interface {
	SetSignal(*snapshot.Signal)
	DeleteSignal(name string)
	// View returns the last published view. Values for nodes that it does not have are dropped,
	// unless it has no nodes at all.
	View() *snapshot.View
}

// Options configure a Manager.
type Options struct {
	// Publisher is required.
	Publisher Publisher
	// Now is the clock for the times of values without a time, and for their ages. time.Now if nil.
	Now func() time.Time
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Manager reads signals repeatedly, and publishes them. Its methods are safe for concurrent use.
type Manager struct {
	options Options
	metrics *metrics

	mu      sync.Mutex
	ctx     context.Context // nil before Run
	running sync.WaitGroup
	signals map[string]*follower
}

// Followed is a signal to follow.
type Followed struct {
	// Settings are valid.
	Settings Settings
	// About is what the keys of the source's numbers are.
	About policy.SignalAbout
	// Config is the configuration of the source, as text: sources with equal text are equal.
	Config string
	Source Source
}

// same reports whether both are the same signal, possibly with different source objects.
func (f *Followed) same(other *Followed) bool {
	return reflect.DeepEqual(f.Settings, other.Settings) && f.About == other.About && f.Config == other.Config
}

// NewManager returns a Manager without signals.
func NewManager(o Options) (*Manager, error) {
	if o.Publisher == nil {
		return nil, errors.New("signal: Publisher is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	m := &Manager{options: o, metrics: newMetrics(), signals: map[string]*follower{}}
	if o.Registerer != nil {
		if err := o.Registerer.Register(m.metrics); err != nil {
			return nil, fmt.Errorf("signal: %w", err)
		}
	}
	return m, nil
}

// Follow replaces the signals to read, now or when Run is called. A signal that is read already
// with the same configuration continues, and the source passed here is closed. Signals that are no
// longer listed are deleted.
func (m *Manager) Follow(all []Followed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := map[string]bool{}
	for _, f := range all {
		name := f.Settings.Name
		wanted[name] = true
		if old := m.signals[name]; old != nil {
			if old.same(&f) {
				m.close(name, f.Source)
				continue
			}
			m.drop(old)
		}
		m.signals[name] = newFollower(m, f)
		if m.ctx != nil {
			m.start(m.signals[name])
		}
	}
	for name, f := range m.signals {
		if !wanted[name] {
			m.drop(f)
			delete(m.signals, name)
			m.options.Publisher.DeleteSignal(name)
			m.metrics.forget(name)
		}
	}
}

// Run reads the signals until ctx ends, and returns when all reads have ended. The signals stay
// published. Call it once.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	for _, f := range m.signals {
		m.start(f)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.running.Wait()
}

// mu must be held for start and drop.
func (m *Manager) start(f *follower) {
	ctx, cancel := context.WithCancel(m.ctx)
	f.cancel = cancel
	m.running.Go(func() {
		last := f.run(ctx)
		close(f.ended)
		if last != nil {
			<-last // the source is in use until then
		}
		m.close(f.Settings.Name, f.Source)
	})
}

func (m *Manager) drop(f *follower) {
	if f.cancel == nil {
		m.close(f.Settings.Name, f.Source)
		return
	}
	f.cancel()
	<-f.ended // so that it publishes nothing any more
}

func (m *Manager) close(name string, source Source) {
	if closer, ok := source.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			m.options.Logger.Warn("cannot close the source of the signal", "signal", name, "error", err)
		}
	}
}

// Status is the status of a signal.
type Status struct {
	Name string
	// Values is how many numbers the signal has, Stale how many of them are stale.
	Values, Stale int
	// Newest is the time of the newest number; zero if there is none.
	Newest time.Time
	// Err is why the last read failed; nil if it succeeded, or there was none yet.
	Err error
	// Tried is true when the first read has ended, Read when a read has succeeded.
	Tried, Read bool
}

// Statuses returns the statuses of the signals, in order of name.
func (m *Manager) Statuses() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(m.signals)) {
		all = append(all, m.signals[name].Status())
	}
	return all
}

// Tried returns nil once the first read of every signal has ended, whether it succeeded or not.
func (m *Manager) Tried() error {
	for _, s := range m.Statuses() {
		if !s.Tried {
			return fmt.Errorf("signal %s has not been read yet", s.Name)
		}
	}
	return nil
}

// Warnings returns a line for each signal with missing or stale values.
func (m *Manager) Warnings() []string {
	var lines []string
	for _, s := range m.Statuses() {
		var parts []string
		switch {
		case !s.Read:
			parts = append(parts, "not read yet")
		case s.Stale > 0:
			parts = append(parts, fmt.Sprintf("%d of %d values are stale", s.Stale, s.Values))
		case s.Values == 0:
			parts = append(parts, "has no values")
		}
		if s.Err != nil {
			parts = append(parts, s.Err.Error())
		}
		if len(parts) > 0 {
			lines = append(lines, "signal "+s.Name+": "+strings.Join(parts, "; "))
		}
	}
	return lines
}
