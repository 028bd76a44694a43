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
	// View is what was published last. Values about nodes that it does not have are
	// dropped, unless it has none at all.
	View() *snapshot.View
}

// Options are the parts of a Manager.
type Options struct {
	// Publisher is required.
	Publisher Publisher
	// Now is the clock by which values without a time of their own are dated, and by
	// which they grow old. time.Now if nil.
	Now func() time.Time
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Manager follows signals: it reads each again and again, and publishes what they say.
// Its methods may be called concurrently.
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
	// About says what the keys of the source's numbers are.
	About policy.SignalAbout
	// Config is the configuration of the source, as text: sources with the same text
	// read the same.
	Config string
	Source Source
}

// same says whether both are the same signal, from different sources perhaps.
func (f *Followed) same(other *Followed) bool {
	return reflect.DeepEqual(f.Settings, other.Settings) && f.About == other.About && f.Config == other.Config
}

// NewManager returns a Manager that follows nothing.
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

// Follow follows these signals from now on, or once Run is called, and no others. One
// that is followed already with the same configuration goes on as it is, and the source
// given here is closed. Signals that are no longer followed are deleted.
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

// Run reads the signals until ctx ends, and returns when all have ended. The signals
// stay. It may be called once.
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

// start and drop are called with mu held.
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

// Status is how a signal stands.
type Status struct {
	Name string
	// Values is how many numbers are known, Stale how many of them are too old.
	Values, Stale int
	// Newest is when the newest was true; zero if there is none.
	Newest time.Time
	// Err is why the last reading failed; nil if it did not, or there was none yet.
	Err error
	// Tried says whether the first reading has ended, Read whether one ever succeeded.
	Tried, Read bool
}

// Statuses returns how the signals stand, in order of name.
func (m *Manager) Statuses() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(m.signals)) {
		all = append(all, m.signals[name].Status())
	}
	return all
}

// Tried returns nil once every signal has been read, or could not be, since it is
// followed.
func (m *Manager) Tried() error {
	for _, s := range m.Statuses() {
		if !s.Tried {
			return fmt.Errorf("signal %s has not been read yet", s.Name)
		}
	}
	return nil
}

// Warnings returns a line for each signal that does not say all it should.
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
