package server

import (
	"log"
	"log/slog"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"outboard.dev/outboard/internal/exemplar"
	"outboard.dev/outboard/internal/throttle"
)

// A netLog passes the http.Server's ErrorLog to slog, and counts failed handshakes, about which the http.Server says nothing else.
type netLog struct {
	logger     *slog.Logger
	handshakes *prometheus.CounterVec // by reason; nil without TLS
	lines      throttle.Log
}

func newErrorLog(l *slog.Logger, handshakes *prometheus.CounterVec) *log.Logger {
	return log.New(&netLog{logger: l, handshakes: handshakes}, "", 0)
}

func (n *netLog) Write(line []byte) (int, error) {
	msg := strings.TrimSpace(string(line))
	if what, ok := strings.CutPrefix(msg, "http: TLS handshake error from "); ok && n.handshakes != nil {
		remote, cause, _ := strings.Cut(what, ": ")
		n.handshakeFailed(remote, cause)
	} else {
		n.lines.Log(n.logger, slog.LevelWarn, "", msg)
	}
	return len(line), nil
}

// handshakeFailed counts and logs a failed handshake. Those of refused callers are counted and logged already, and others that are no calls
// are logged at debug level, because port scans and probes often connect and disconnect.
func (n *netLog) handshakeFailed(remote, cause string) {
	switch {
	case strings.HasPrefix(cause, refusedPrefix):
		n.lines.Log(n.logger, slog.LevelDebug, "handshake", "handshake failed", "error", cause, "remote", remote)
	case cause == "client sent an HTTP request to an HTTPS server":
		exemplar.Count(n.handshakes.WithLabelValues(handshakePlaintext), hostOf(remote))
		n.lines.Log(n.logger, slog.LevelWarn, handshakePlaintext, "a call without TLS", "remote", remote,
			"hint", "urlPrefix in kube-scheduler's configuration must begin with https://; outboard doctor checks it")
	case strings.HasPrefix(cause, "remote error: tls: "):
		exemplar.Count(n.handshakes.WithLabelValues(handshakeRejected), hostOf(remote))
		n.lines.Log(n.logger, slog.LevelWarn, handshakeRejected, "a client ended the handshake", "error", cause, "remote", remote,
			"hint", "the client does not accept Outboard's certificate: kube-scheduler reads caFile only when it starts")
	default:
		n.handshakes.WithLabelValues(handshakeOther).Inc()
		n.lines.Log(n.logger, slog.LevelDebug, "handshake", "handshake failed", "error", cause, "remote", remote)
	}
}

// hostOf returns the address without its port.
func hostOf(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
