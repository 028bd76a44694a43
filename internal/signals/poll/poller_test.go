package poll_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/signals/poll"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// source returns what read returns.
type source struct {
	read    func(ctx context.Context) ([]signal.Sample, error)
	reads   atomic.Int32
	changed chan struct{}
	closed  atomic.Bool
}

func (s *source) Read(ctx context.Context, _ signal.Limits) ([]signal.Sample, error) {
	s.reads.Add(1)
	return s.read(ctx)
}

func (s *source) Changed() <-chan struct{} { return s.changed }

func (s *source) Close() error {
	s.closed.Store(true)
	return nil
}

func saying(samples ...signal.Sample) *source {
	return &source{read: func(context.Context) ([]signal.Sample, error) { return samples, nil }}
}

// board receives the signals.
type board struct {
	mu      sync.Mutex
	builder snapshot.Builder
}

func newBoard(nodes ...string) *board {
	b := &board{}
	b.nodes(nodes...)
	return b
}

// nodes adds nodes, such as "a", or with InternalIPs "a@10.0.0.1@fd00::1".
func (b *board) nodes(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		node := &corev1.Node{}
		node.Name, _, _ = strings.Cut(name, "@")
		for ip := range strings.SplitSeq(name[len(node.Name):], "@") {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.9"})
		snapshot.TrimNode(node)
		b.builder.SetNode(node)
	}
}

func (b *board) SetSignal(s *snapshot.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.builder.SetSignal(s)
}

func (b *board) DeleteSignal(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.builder.DeleteSignal(name)
}

func (b *board) View() *snapshot.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.builder.View()
}

// show writes a signal as "a=1 b=2?", with a question mark for stale values.
func (b *board) show(name string) string {
	var parts []string
	for key, v := range b.View().Signal(name).All() {
		text := fmt.Sprintf("%s=%g", key, v.Number)
		if v.Stale {
			text += "?"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func signalOf(name string, s signal.Source) poll.Signal {
	f := poll.Signal{About: policy.AboutNodes, Config: "path: " + name, Source: s}
	f.Settings.SetDefaults()
	f.Settings.Name = name
	return f
}

// start reads the signals in a bubble with its own time, until the test ends.
func start(t *testing.T, b *board, all ...poll.Signal) (*poll.Poller, *prometheus.Registry) {
	t.Helper()
	return startLogging(t, io.Discard, b, all...)
}

func startLogging(t *testing.T, log io.Writer, b *board, all ...poll.Signal) (*poll.Poller, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := poll.New(poll.Options{Publisher: b, Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	m.SetSignals(all)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return m, registry
}

// after waits for a duration.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestValuesArePublishedAndNonsenseIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a", "b")
		_, registry := start(t, b, signalOf("cpu", saying(
			signal.Sample{Key: "a", Number: 1},
			signal.Sample{Key: "a", Number: 2},
			signal.Sample{Key: "b", Number: math.NaN()},
			signal.Sample{Key: "b", Number: math.Inf(-1)},
			signal.Sample{Key: "b", Number: 3},
			signal.Sample{Key: "nowhere", Number: 4},
			signal.Sample{Key: strings.Repeat("k", 1025), Number: 5},
		)))
		expect(t, "cpu", b.show("cpu"), "a=1 b=3")
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outboard_signal_dropped_values_total Values dropped from readings, by reason (not_a_number, duplicate, unknown_node, long_key).
# TYPE outboard_signal_dropped_values_total counter
outboard_signal_dropped_values_total{reason="duplicate",signal="cpu"} 1
outboard_signal_dropped_values_total{reason="long_key",signal="cpu"} 1
outboard_signal_dropped_values_total{reason="not_a_number",signal="cpu"} 2
outboard_signal_dropped_values_total{reason="unknown_node",signal="cpu"} 1
# HELP outboard_signal_values Current and stale values.
# TYPE outboard_signal_values gauge
outboard_signal_values{signal="cpu"} 2
`), "outboard_signal_dropped_values_total", "outboard_signal_values")
		if err != nil {
			t.Error(err)
		}
	})
}

// If a source is down, its last values stay until they are stale; the manager reads it less and
// less often, and uses its next values at once.
func TestLastValuesStayUntilMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a", "b")
		var down atomic.Bool
		s := &source{}
		s.read = func(context.Context) ([]signal.Sample, error) {
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return []signal.Sample{{Key: "a", Number: 1}, {Key: "b", Number: 2, At: time.Now().Add(-4 * time.Minute)}}, nil
		}
		m, _ := start(t, b, signalOf("cpu", s))
		expect(t, "at first", b.show("cpu"), "a=1 b=2")
		if lines := m.Warnings(); len(lines) != 0 {
			t.Errorf("warnings %q", lines)
		}
		down.Store(true)
		after(90 * time.Second) // the age that the source reports counts
		expect(t, "an older value", b.show("cpu"), "a=1 b=2?")
		expect(t, "warnings", strings.Join(m.Warnings(), "\n"), "signal cpu: 1 of 2 values are stale; connection refused")
		after(3*time.Minute + 29*time.Second)
		expect(t, "just before maxAge", b.show("cpu"), "a=1 b=2?")
		after(33 * time.Second) // the last good reading was up to one interval after the first
		expect(t, "after maxAge", b.show("cpu"), "a=1? b=2?")
		// 1 s, 2 s, 4 s, 8 s, 16 s, and then every 30 s, or up to a fifth less.
		if reads := s.reads.Load(); reads < 12 || reads > 18 {
			t.Errorf("%d readings", reads)
		}
		down.Store(false)
		after(33 * time.Second)
		expect(t, "afterwards", b.show("cpu"), "a=1 b=2")
		if lines := m.Warnings(); len(lines) != 0 {
			t.Errorf("warnings %q", lines)
		}
	})
}

// With the smallest maxAge that a configuration may have, numbers stay current between readings that take almost as long as they may.
func TestSmallestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := signalOf("cpu", nil)
		f.Source = &source{read: func(context.Context) ([]signal.Sample, error) {
			time.Sleep(f.Settings.Timeout - time.Millisecond)
			return []signal.Sample{{Key: "a", Number: 1}}, nil
		}}
		f.Settings.MaxAge = f.Settings.Interval
		for len(f.Settings.Validate(field.NewPath("signals"), 0)) > 0 {
			f.Settings.MaxAge += time.Second
		}
		b := newBoard("a")
		startLogging(t, &log, b, f)
		after(10 * time.Hour)
		expect(t, "cpu", b.show("cpu"), "a=1")
		expect(t, "log", log.String(), "")
	})
}

// The log says why values are stale although no reading has failed.
func TestCauseOfStaleValues(t *testing.T) {
	for name, tt := range map[string]struct {
		read func(began time.Time, n int32) ([]signal.Sample, error)
		want string
	}{
		"old values": {func(began time.Time, _ int32) ([]signal.Sample, error) {
			return []signal.Sample{{Key: "a", Number: 1, At: began.Add(-10 * time.Minute)}}, nil
		}, "the last reading has old values, or omits them"},
		"a reading that does not end": {func(_ time.Time, n int32) ([]signal.Sample, error) {
			if n > 1 {
				time.Sleep(time.Hour)
			}
			return []signal.Sample{{Key: "a", Number: 1}}, nil
		}, "no reading has ended since the one that began at 2000-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				s := &source{}
				s.read = func(context.Context) ([]signal.Sample, error) { return tt.read(time.Now(), s.reads.Load()) }
				startLogging(t, &log, newBoard("a"), signalOf("cpu", s))
				after(10 * time.Minute)
				if !strings.Contains(log.String(), tt.want) {
					t.Errorf("the log is %s", log.String())
				}
			})
		})
	}
}

// If a reading never ends, the manager starts no other one, its values become stale in time, and no
// other operation waits for it.
func TestHangingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		hang := make(chan struct{})
		s := &source{}
		s.read = func(context.Context) ([]signal.Sample, error) {
			if s.reads.Load() > 1 {
				<-hang
			}
			return []signal.Sample{{Key: "a", Number: float64(s.reads.Load())}}, nil
		}
		m, _ := start(t, b, signalOf("cpu", s))
		after(20 * time.Minute)
		expect(t, "the last value", b.show("cpu"), "a=1?")
		if reads := s.reads.Load(); reads != 2 {
			t.Errorf("%d readings", reads)
		}
		m.SetSignals(nil)
		if s.closed.Load() {
			t.Error("the source is closed during a reading")
		}
		expect(t, "not followed any more", b.show("cpu"), "")
		close(hang)
		synctest.Wait()
		if !s.closed.Load() {
			t.Error("not closed")
		}
		expect(t, "what came too late", b.show("cpu"), "")
	})
}

func TestReadingsThatFail(t *testing.T) {
	many := make([]signal.Sample, 20_001)
	for name, tt := range map[string]struct {
		read func(ctx context.Context) ([]signal.Sample, error)
		want string
	}{
		"too many": {func(context.Context) ([]signal.Sample, error) { return many, nil }, "signal cpu: not read yet; more than 20000 values"},
		"panics":   {func(context.Context) ([]signal.Sample, error) { panic("oh") }, "signal cpu: not read yet; panic: oh"},
		"is slow": {func(ctx context.Context) ([]signal.Sample, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("get: %w", ctx.Err())
		}, "signal cpu: not read yet; no response within 10s"},
		"is empty": {func(context.Context) ([]signal.Sample, error) { return nil, nil }, "signal cpu: has no values"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := start(t, newBoard("a"), signalOf("cpu", &source{read: tt.read}))
				after(10 * time.Second)
				expect(t, "warnings", strings.Join(m.Warnings(), "\n"), tt.want)
				if err := m.Tried(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestReadyOnceTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{read: func(ctx context.Context) ([]signal.Sample, error) { <-ctx.Done(); return nil, ctx.Err() }}
		m, _ := start(t, newBoard("a"), signalOf("cpu", s))
		after(9 * time.Second)
		if err := m.Tried(); err == nil {
			t.Error("ready before the first reading has ended")
		}
	})
}

// A time in the future does not keep a value from becoming stale.
func TestFutureTimesAreNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		at := time.Now().Add(time.Hour)
		s := &source{}
		s.read = func(context.Context) ([]signal.Sample, error) {
			if s.reads.Load() > 1 {
				return nil, errors.New("down")
			}
			return []signal.Sample{{Key: "a", Number: 1, At: at}}, nil
		}
		start(t, b, signalOf("cpu", s))
		after(5*time.Minute - time.Second)
		expect(t, "before maxAge", b.show("cpu"), "a=1")
		after(time.Second)
		expect(t, "after it", b.show("cpu"), "a=1?")
	})
}

// A value for a node counts as soon as the node exists.
func TestNodesThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		s := saying(signal.Sample{Key: "a", Number: 1}, signal.Sample{Key: "b", Number: 2})
		start(t, b, signalOf("cpu", s))
		expect(t, "at first", b.show("cpu"), "a=1")
		b.nodes("b")
		after(1100 * time.Millisecond)
		expect(t, "with the node", b.show("cpu"), "a=1 b=2")
		if s.reads.Load() != 1 {
			t.Errorf("%d readings", s.reads.Load())
		}
	})
}

// Instead of its name, a value may have the InternalIP of a node, if one node has it and no value
// has the name.
func TestNodesByAddress(t *testing.T) {
	for name, tt := range map[string]struct{ nodes, keys, want, warning string }{
		"addresses":        {"a@10.0.0.1 b@10.0.0.2", "10.0.0.1 10.0.0.2", "a=1 b=2", ""},
		"other forms":      {"a@10.0.0.1@fd00::1 b@10.0.0.2", "fd00:0::1 ::ffff:10.0.0.2", "a=1 b=2", ""},
		"both families":    {"a@10.0.0.1@fd00::1", "fd00::1 10.0.0.1", "a=2", ""},
		"the name first":   {"a@10.0.0.1", "10.0.0.1 a", "a=2", ""},
		"others, too":      {"a@10.0.0.1", "10.0.0.1 192.0.2.7 router", "a=1", ""},
		"of several nodes": {"a@10.0.0.1 b@10.0.0.1", "10.0.0.1", "", `all values (1) are about unknown nodes, such as "10.0.0.1"`},
		"external":         {"a@10.0.0.1", "vm-9 192.0.2.9", "", `all values (2) are about unknown nodes, such as "192.0.2.9"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var samples []signal.Sample
				for i, key := range strings.Fields(tt.keys) {
					samples = append(samples, signal.Sample{Key: key, Number: float64(i + 1)})
				}
				b := newBoard(strings.Fields(tt.nodes)...)
				var log strings.Builder
				m, _ := startLogging(t, &log, b, signalOf("cpu", saying(samples...)))
				after(10 * time.Minute)
				expect(t, "values", b.show("cpu"), tt.want)
				warning := strings.Join(m.Warnings(), "\n")
				if !strings.Contains(warning, tt.warning) || (warning == "") != (tt.warning == "") {
					t.Errorf("warnings %q, want %q", warning, tt.warning)
				}
				if got := strings.Count(log.String(), "level=WARN"); got != min(1, len(tt.warning)) {
					t.Errorf("%d warnings in the log: %s", got, log.String())
				}
				b.nodes("10.0.0.1", "192.0.2.9")
				after(2 * time.Second)
				expect(t, "warnings when the nodes exist", strings.Join(m.Warnings(), "\n"), "")
			})
		})
	}
}

func TestKeysNeedNoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		f := signalOf("seats", saying(signal.Sample{Key: "matlab", Number: 3}))
		f.About = policy.AboutKeys
		start(t, b, f)
		expect(t, "seats", b.show("seats"), "matlab=3")
	})
}

// The manager reads a source that reports a change at once, also after a change during a reading.
func TestChangedSourceIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		s := &source{changed: make(chan struct{}, 1)}
		s.read = func(context.Context) ([]signal.Sample, error) {
			n := s.reads.Load()
			time.Sleep(time.Second)
			return []signal.Sample{{Key: "a", Number: float64(n)}}, nil
		}
		start(t, b, signalOf("cpu", s))
		s.changed <- struct{}{} // during the first reading
		after(2100 * time.Millisecond)
		expect(t, "after a change while it is read", b.show("cpu"), "a=2")
		s.changed <- struct{}{}
		after(1100 * time.Millisecond)
		expect(t, "after a change between readings", b.show("cpu"), "a=3")
		after(20 * time.Second)
		if reads := s.reads.Load(); reads != 3 {
			t.Errorf("%d readings", reads)
		}
	})
}

// A new configuration has new sources; unchanged signals continue unchanged.
func TestFollowAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("a")
		sources := map[string]*source{}
		say := func(name string, number float64) poll.Signal {
			s := saying(signal.Sample{Key: "a", Number: number})
			sources[fmt.Sprint(name, number)] = s
			return signalOf(name, s)
		}
		m, registry := start(t, b, say("same", 1), say("changed", 1), say("gone", 1))
		changed := say("changed", 2)
		changed.Settings.Interval = 10 * time.Second
		m.SetSignals([]poll.Signal{say("same", 2), changed, say("new", 2)})
		synctest.Wait()
		for name, want := range map[string]string{"same": "a=1", "changed": "a=2", "gone": "", "new": "a=2"} {
			expect(t, name, b.show(name), want)
		}
		var closed []string
		for name, s := range sources {
			if s.closed.Load() {
				closed = append(closed, name)
			}
		}
		slices.Sort(closed)
		if want := []string{"changed1", "gone1", "same2"}; !slices.Equal(closed, want) {
			t.Errorf("closed %q, want %q", closed, want)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, f := range families {
			for _, metric := range f.Metric {
				for _, l := range metric.Label {
					if l.GetName() == "signal" {
						names[l.GetValue()] = true
					}
				}
			}
		}
		if got, want := slices.Sorted(maps.Keys(names)), []string{"changed", "new", "same"}; !slices.Equal(got, want) {
			t.Errorf("metrics of %q, want %q", got, want)
		}
	})
}
