package server

import (
	"bytes"
	"log"
	"log/slog"

	"outboard.dev/outboard/internal/throttle"
)

// A netLog passes the http.Server's ErrorLog to slog. It logs failed handshakes at debug level, because port scans and
// probes often connect and disconnect.
type netLog struct {
	logger *slog.Logger
	lines  throttle.Log
}

func newErrorLog(l *slog.Logger) *log.Logger { return log.New(&netLog{logger: l}, "", 0) }

func (n *netLog) Write(line []byte) (int, error) {
	msg := string(bytes.TrimSpace(line))
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		n.lines.Log(n.logger, slog.LevelDebug, "handshake", msg)
	} else {
		n.lines.Log(n.logger, slog.LevelWarn, "", msg)
	}
	return len(line), nil
}
