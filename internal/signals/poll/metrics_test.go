package poll_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/signals/poll"
)

func TestMetricsAreRegisteredTogetherOrNotAtAll(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboard_signal_values", Help: "Current and stale values."}, []string{"signal"})
	registry.MustRegister(taken)
	options := poll.Options{Publisher: newBoard(), Registerer: registry}
	if _, err := poll.New(options); err == nil {
		t.Error("a name in use is registered again")
	}
	registry.Unregister(taken)
	if _, err := poll.New(options); err != nil {
		t.Errorf("after the name is free: %v", err)
	}
	if _, err := poll.New(options); err == nil {
		t.Error("two Pollers share their metrics")
	}
}
