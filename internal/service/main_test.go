package service

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

const header = "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\n"

// standardTypes are the types that come with Outboard.
func standardTypes() config.Types {
	return config.Types{Policies: standard.Types(), Signals: signals.Types()}
}

// newService returns a service with the configuration in text, which logs to log.
func newService(t *testing.T, file, text string, types config.Types, to Connection, log *bytes.Buffer) *Service {
	t.Helper()
	c, err := config.Parse(file, []byte(text), types)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		File: file, Config: c, Types: types, Connection: to,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
