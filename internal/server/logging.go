package server

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"outboard.dev/outboard/internal/lastevent"
	"outboard.dev/outboard/internal/throttle"
)

// A netLog passes the http.Server's ErrorLog to slog, and counts failed handshakes, about which the
// http.Server says nothing else.
type netLog struct {
	logger *slog.Logger
	server *Server // of the handshakes; nil: there are none
	lines  throttle.Log
}

func (n *netLog) Write(line []byte) (int, error) {
	msg := strings.TrimSpace(string(line))
	if what, ok := strings.CutPrefix(msg, "http: TLS handshake error from "); ok && n.server != nil {
		remote, cause, _ := strings.Cut(what, ": ")
		n.handshakeFailed(remote, cause)
	} else {
		n.lines.Log(n.logger, slog.LevelWarn, "", msg)
	}
	return len(line), nil
}

// handshakeFailed counts and logs a failed handshake. Those of refused callers are counted and
// logged already, and others that are no calls are logged at debug level, because port scans and
// probes often connect and disconnect.
func (n *netLog) handshakeFailed(remote, cause string) {
	handshakes := n.server.metrics.handshakes
	switch {
	case strings.HasPrefix(cause, refusedPrefix):
		n.lines.Log(n.logger, slog.LevelDebug, "handshake", "handshake failed", "error", cause, "remote", remote)
	case cause == "client sent an HTTP request to an HTTPS server":
		lastevent.Count(handshakes.WithLabelValues(handshakePlaintext), hostOf(remote))
		n.lines.Log(n.logger, slog.LevelWarn, handshakePlaintext, "a call without TLS", "remote", remote,
			"hint", "urlPrefix in kube-scheduler's configuration must begin with https://; outboard check --cluster checks it")
	case strings.HasPrefix(cause, "remote error: tls: "):
		lastevent.Count(handshakes.WithLabelValues(handshakeRejected), hostOf(remote))
		hint := "the client does not accept Outboard's certificate: kube-scheduler reads caFile only when it starts"
		if err := n.server.identity.current.Load().invalid(time.Now()); err != nil {
			hint = err.Error()
		}
		n.lines.Log(n.logger, slog.LevelWarn, handshakeRejected, "a client ended the handshake", "error", cause, "remote", remote, "hint", hint)
	default:
		handshakes.WithLabelValues(handshakeOther).Inc()
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
