package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/throttle"
)

// openJournal opens the file for decisions, if the configuration names one, and registers the
// metric. It returns nil without a file.
func openJournal(file string, log *decision.Log, registry *prometheus.Registry, logger *slog.Logger) (journal *decision.Journal, err error) {
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "outboard_decision_log_dropped_total", Help: "Decisions that are missing in the file log.decisions.",
	}, func() float64 {
		if journal == nil {
			return 0
		}
		return float64(journal.Dropped())
	}))
	if file == "" {
		return nil, nil
	}
	var to io.Writer = os.Stdout
	if file != "/dev/stdout" { // which a process without privileges may not be able to open
		if to, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("log.decisions: %w", err)
		}
	}
	var failures throttle.Log
	return decision.NewJournal(log, to, func(err error) {
		failures.Log(logger, slog.LevelError, "", "cannot write decisions; they are lost", "error", err)
	}), nil
}
