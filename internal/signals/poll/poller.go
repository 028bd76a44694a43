package poll

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
	"outboard.dev/outboard/signal"
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

// Options configure a Poller.
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

// Poller reads signals repeatedly, and publishes them. Its methods are safe for concurrent use.
type Poller struct {
	options Options
	metrics *metrics

	mu      sync.Mutex
	ctx     context.Context // nil before Run
	running sync.WaitGroup
	signals map[string]*reader
}

// Signal is a signal to read.
type Signal struct {
	// Settings are valid.
	Settings signal.Settings
	// About is what the keys of the source's numbers are.
	About policy.SignalAbout
	// Config is the configuration of the source, as text: sources with equal text are equal.
	Config string
	Source signal.Source
}

// same reports whether both are the same signal, possibly with different source objects.
func (s *Signal) same(other *Signal) bool {
	return reflect.DeepEqual(s.Settings, other.Settings) && s.About == other.About && s.Config == other.Config
}

// New returns a Poller without signals.
func New(o Options) (*Poller, error) {
	if o.Publisher == nil {
		return nil, errors.New("poll: Publisher is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	p := &Poller{options: o, metrics: newMetrics(), signals: map[string]*reader{}}
	if o.Registerer != nil {
		if err := o.Registerer.Register(p.metrics); err != nil {
			return nil, fmt.Errorf("poll: %w", err)
		}
	}
	return p, nil
}

// SetSignals replaces the signals to read, now or when Run is called. A signal that is read already
// with the same configuration continues, and the source passed here is closed. Signals that are no
// longer listed are deleted.
func (p *Poller) SetSignals(all []Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[string]bool{}
	for _, s := range all {
		name := s.Settings.Name
		wanted[name] = true
		if old := p.signals[name]; old != nil {
			if old.same(&s) {
				p.close(name, s.Source)
				continue
			}
			p.drop(old)
		}
		p.signals[name] = newReader(p, s)
		if p.ctx != nil {
			p.start(p.signals[name])
		}
	}
	for name, r := range p.signals {
		if !wanted[name] {
			p.drop(r)
			delete(p.signals, name)
			p.options.Publisher.DeleteSignal(name)
			p.metrics.forget(name)
		}
	}
}

// Run reads the signals until ctx ends, and returns when all reads have ended. The signals stay
// published. Call it once.
func (p *Poller) Run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	for _, r := range p.signals {
		p.start(r)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.running.Wait()
}

// mu must be held for start and drop.
func (p *Poller) start(r *reader) {
	ctx, cancel := context.WithCancel(p.ctx)
	r.cancel = cancel
	p.running.Go(func() {
		last := r.run(ctx)
		close(r.ended)
		if last != nil {
			<-last // the source is in use until then
		}
		p.close(r.Settings.Name, r.Source)
	})
}

func (p *Poller) drop(r *reader) {
	if r.cancel == nil {
		p.close(r.Settings.Name, r.Source)
		return
	}
	r.cancel()
	<-r.ended // so that it publishes nothing any more
}

func (p *Poller) close(name string, source signal.Source) {
	if closer, ok := source.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			p.options.Logger.Warn("cannot close the source of the signal", "signal", name, "error", err)
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
	// Err is why the last read failed, or that none of its values is about a node; nil if there was
	// none yet.
	Err error
	// Tried is true when the first read has ended, Read when a read has succeeded.
	Tried, Read bool
}

// Statuses returns the statuses of the signals, in order of name.
func (p *Poller) Statuses() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(p.signals)) {
		all = append(all, p.signals[name].Status())
	}
	return all
}

// Tried returns nil once the first read of every signal has ended, whether it succeeded or not.
func (p *Poller) Tried() error {
	for _, s := range p.Statuses() {
		if !s.Tried {
			return fmt.Errorf("signal %s has not been read yet", s.Name)
		}
	}
	return nil
}

// Warnings returns a line for each signal with missing or stale values.
func (p *Poller) Warnings() []string {
	var lines []string
	for _, s := range p.Statuses() {
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
