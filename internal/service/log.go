package service

import (
	"log/slog"
	"os"

	"outboard.dev/outboard/internal/config"
)

// NewLogger returns the logger of the configuration, which writes to standard error.
func NewLogger(c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		panic(err) // the configuration has been validated
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "JSON" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
