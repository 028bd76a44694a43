package server

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// A throttle keeps callers who can be refused at will from filling the log: so many records per period, and then the
// number of those left out. The zero value is ready to use.
type throttle struct {
	mu      sync.Mutex
	until   time.Time
	used    int
	dropped int
}

const (
	throttlePeriod = 10 * time.Second
	throttleBurst  = 10
)

// log writes the record, or counts it.
func (t *throttle) log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	if !l.Enabled(context.Background(), level) {
		return
	}
	t.mu.Lock()
	if now := time.Now(); now.After(t.until) {
		t.until, t.used = now.Add(throttlePeriod), 0
	}
	if t.used == throttleBurst {
		t.dropped++
		t.mu.Unlock()
		return
	}
	t.used++
	dropped := t.dropped
	t.dropped = 0
	t.mu.Unlock()
	if dropped > 0 {
		args = append(args, "similarLeftOut", dropped)
	}
	l.Log(context.Background(), level, msg, args...)
}

// A netLog is the http.Server's ErrorLog joined to slog. Port scans and probes that open a TLS port and go away are
// daily life, so failed handshakes are for debugging.
type netLog struct {
	logger            *slog.Logger
	handshakes, other throttle
}

func newErrorLog(l *slog.Logger) *log.Logger { return log.New(&netLog{logger: l}, "", 0) }

func (n *netLog) Write(line []byte) (int, error) {
	msg := string(bytes.TrimSpace(line))
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		n.handshakes.log(n.logger, slog.LevelDebug, msg)
	} else {
		n.other.log(n.logger, slog.LevelWarn, msg)
	}
	return len(line), nil
}
