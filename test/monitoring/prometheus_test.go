// Package monitoring holds the tests that need a real Prometheus server: of internal/signals/source/prometheus, and of the alerts and the dashboard of the
// chart. They are in a package of their own because the code that starts the server imports most of client-go, and fuzzing
// internal/signals/source/prometheus would compile it again.
package monitoring

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/signals/source/prometheus"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/test/controlplane"
)

var limits = signal.Limits{Values: 4, Bytes: 1 << 20}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exporter has metrics that a real Prometheus server scrapes.
type exporter struct {
	*httptest.Server
	load *client.GaugeVec
}

func newExporter(t *testing.T) *exporter {
	t.Helper()
	e := &exporter{load: client.NewGaugeVec(client.GaugeOpts{Name: "load"}, []string{"node"})}
	started := time.Now()
	work := client.NewCounterFunc(client.CounterOpts{Name: "work_total", ConstLabels: client.Labels{"node": "n1"}},
		func() float64 { return 100 * time.Since(started).Seconds() })
	registry := client.NewRegistry()
	registry.MustRegister(e.load, work)
	e.Server = httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(e.Close)
	return e
}

// serve starts a Prometheus server that scrapes the exporter five times a second.
func serve(t *testing.T, e *exporter) *controlplane.Prometheus {
	t.Helper()
	p, err := controlplane.StartPrometheus(t.Context(), controlplane.PrometheusOptions{
		Config: fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
- {job_name: nodes, static_configs: [{targets: [%q]}]}
`, e.Listener.Addr()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Log())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func reader(t *testing.T, c prometheus.Config) *prometheus.Source {
	t.Helper()
	s, err := prometheus.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// await reads until the samples are the expected ones.
func await(t *testing.T, s *prometheus.Source, ok func([]signal.Sample) bool) []signal.Sample {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		samples, err := s.Read(ctx, limits)
		if err == nil && ok(samples) {
			return samples
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the samples are %v, the error %v", samples, err)
		}
	}
}

// awaitError reads until it fails, and expects that error. Until then there may be too few series:
// if a scrape takes too long, the previous series are missing until the next scrape.
func awaitError(t *testing.T, what string, s *prometheus.Source, limits signal.Limits, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := s.Read(ctx, limits); err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestServer(t *testing.T) {
	e := newExporter(t)
	e.load.WithLabelValues("n1").Set(0.25)
	e.load.WithLabelValues("n2").Set(math.NaN())
	p := serve(t, e)
	ask := func(query, nodeLabel string) *prometheus.Source {
		return reader(t, prometheus.Config{Address: "http://" + p.Address, Query: query, NodeNameLabel: nodeLabel})
	}

	t.Run("values and times", func(t *testing.T) {
		before := time.Now()
		samples := await(t, ask("load", "node"), func(s []signal.Sample) bool { return len(s) == 2 })
		for _, s := range samples {
			if s.Key == "n1" && s.Number != 0.25 || s.Key == "n2" && !math.IsNaN(s.Number) {
				t.Errorf("%+v", s)
			}
			if at := s.At; at.Before(before.Truncate(time.Millisecond)) || at.After(time.Now()) {
				t.Errorf("%s is from %s, requested since %s", s.Key, at, before)
			}
		}
	})
	t.Run("the time of the last scrape", func(t *testing.T) {
		samples := await(t, ask("timestamp(load)", "node"), func(s []signal.Sample) bool { return len(s) == 2 })
		if s := samples[0]; s.Number > float64(s.At.UnixMilli())/1000 {
			t.Errorf("scraped at %f, evaluated at %s", s.Number, s.At)
		}
	})
	t.Run("instance without its port", func(t *testing.T) {
		samples := await(t, ask("up", "instance"), func(s []signal.Sample) bool { return len(s) == 1 && s[0].Number == 1 })
		if samples[0].Key != "127.0.0.1" {
			t.Errorf("%+v", samples[0])
		}
	})
	t.Run("one number", func(t *testing.T) {
		for query, want := range map[string]float64{"1 + 1": 2, "sum(load{node='n1'})": 0.25} {
			samples := await(t, ask(query, ""), func(s []signal.Sample) bool { return len(s) == 1 })
			if samples[0].Key != "" || samples[0].Number != want {
				t.Errorf("%s: %+v", query, samples[0])
			}
		}
	})
	t.Run("rate", func(t *testing.T) {
		await(t, ask("rate(work_total[2s])", "node"), func(s []signal.Sample) bool {
			return len(s) == 1 && s[0].Key == "n1" && math.Abs(s[0].Number-100) < 5
		})
	})
	t.Run("average over time", func(t *testing.T) {
		e.load.WithLabelValues("n1").Set(0.75)
		// For a while, the average includes both the old and the new value.
		await(t, ask("avg_over_time(load{node='n1'}[1m])", "node"), func(s []signal.Sample) bool {
			return len(s) == 1 && s[0].Number > 0.25 && s[0].Number < 0.75
		})
		await(t, ask("avg_over_time(load{node='n1'}[600ms])", "node"), func(s []signal.Sample) bool {
			return len(s) == 1 && s[0].Number == 0.75
		})
	})
	t.Run("gone", func(t *testing.T) {
		e.load.DeleteLabelValues("n2")
		await(t, ask("load", "node"), func(s []signal.Sample) bool { return len(s) == 1 && s[0].Key == "n1" })
	})
	t.Run("errors", func(t *testing.T) {
		for query, want := range map[string]string{
			"load{":    "bad_data: invalid parameter \"query\": 1:6: parse error",
			"load[1m]": "the query returns a matrix",
			`"text"`:   "the query returns a string: it must return a vector or a scalar",
			`{__name__=~"load|up"} + on (job) {__name__=~"load|up"}`: "execution: found duplicate series",
		} {
			awaitError(t, query, ask(query, "node"), limits, want)
		}
	})
	t.Run("as many as allowed", func(t *testing.T) {
		for i := range 100 {
			e.load.WithLabelValues(fmt.Sprint("m", i)).Set(1)
		}
		s := ask("load", "node")
		for {
			samples, err := s.Read(t.Context(), signal.Limits{Values: 101, Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if len(samples) == 101 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		awaitError(t, "101 of 100", s, signal.Limits{Values: 100, Bytes: 1 << 20}, signal.ErrTooMany.Error())
		// The server sends at most one more than the limit.
		awaitError(t, "101 of 4, in 2000 bytes", s, signal.Limits{Values: 4, Bytes: 2000}, signal.ErrTooMany.Error())
	})
	t.Run("down", func(t *testing.T) {
		s := ask("load", "node")
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, fmt.Errorf("no response within 200ms"))
		defer cancel()
		if _, err := s.Read(ctx, limits); err == nil || !strings.HasSuffix(err.Error(), "no response within 200ms") {
			t.Errorf("a server that does not respond: %v", err)
		}
		p.Kill()
		if _, err := s.Read(t.Context(), limits); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("a server that is down: %v", err)
		}
	})
}
