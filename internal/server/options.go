package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a Server. For durations and sizes, zero means the default.
type Options struct {
	// Address is the host:port to serve on. Port 0 picks a free one, see [Server.Addr]. Default:
	// 127.0.0.1:8443.
	Address string

	// Handler serves the requests of the serving listener. It must be safe for concurrent use. Nil:
	// there is only the admin listener, for a process that nobody calls.
	Handler http.Handler

	// TLS enables TLS. Nil: plain HTTP, and every caller is allowed.
	TLS *TLSOptions

	// ReadHeaderTimeout bounds the TLS handshake and, separately, the reading of one request's
	// header. Default: 5 s.
	ReadHeaderTimeout time.Duration

	// BodyTimeout bounds the reading of one request's body. Default: 30 s.
	BodyTimeout time.Duration

	// MaxConnectionAge is the age from which the next response asks the client to open a new
	// connection. Then the client presents its renewed certificate, and can reach other replicas.
	// Before you remove a CA, wait this long after the last client's certificate was renewed.
	// Negative: never. Default: 5 min.
	MaxConnectionAge time.Duration

	// MaxConnections bounds the open connections. At the limit, a new connection replaces the one
	// that has waited longest for a request. If all serve requests, the new one is closed.
	// Default: 1024.
	MaxConnections int

	// MaxBodyBytes bounds one request's body. Default: 128 MiB.
	MaxBodyBytes int64

	// MaxInFlightBytes bounds the memory of request bodies of more than 96 KiB over all requests;
	// at least MaxBodyBytes. A body of unknown length counts as one of MaxBodyBytes. Every
	// connection has additional memory for a smaller body, and decoding bodies (see
	// [ReserveMemory]) has another 128 MiB. Default: 256 MiB, or MaxBodyBytes if that is more.
	MaxInFlightBytes int64

	// BusyTimeout is how long a request may wait for memory. Default: 2 s.
	BusyTimeout time.Duration

	// ShutdownDelay is how long the server continues to serve after it is stopped, and reports that
	// it is not ready, so that callers can move to other replicas. Negative: not at all. Default:
	// 10 s.
	ShutdownDelay time.Duration

	// DrainTimeout is how long requests may take to finish after ShutdownDelay. Default: 20 s.
	DrainTimeout time.Duration

	// Admin configures the admin listener.
	Admin AdminOptions

	// Logger receives the log, which never contains a body or a header. Default: [slog.Default].
	Logger *slog.Logger

	// Registerer registers the metrics of this server. Nil: none.
	Registerer prometheus.Registerer
}

// TLSOptions configure TLS on the serving listener. Package config checks that they agree. The
// server watches the files: if their bytes change and the new set is valid as a whole, the next
// handshake uses it. Otherwise the previous set stays in use.
type TLSOptions struct {
	// CertFile and KeyFile hold the certificate chain and its key as PEM. Required.
	CertFile, KeyFile string

	// ClientCAFile holds the CAs of client certificates as PEM. If it is set, every caller must
	// present a certificate signed by one of them. This holds for existing connections, too: after
	// a reload, a connection whose certificate the new CAs did not sign is rejected. Default:
	// callers need no certificate.
	ClientCAFile string

	// AllowedClients are the names of allowed callers. Each is compared, without patterns, with the
	// common name and the DNS and URI names of the caller's certificate. Needs ClientCAFile. Empty:
	// every caller with a certificate.
	AllowedClients []string

	// Refused, if not nil, responds to a caller whose certificate is valid but has no allowed name,
	// for clients that drop the body of a 403. If it returns false, the response is 403. It must
	// not read the body.
	Refused func(w http.ResponseWriter, r *http.Request, err error) bool

	// ReloadInterval is how often the files are read. Default: 1 s.
	ReloadInterval time.Duration
}

// AdminOptions configure the admin listener, which serves GET (and HEAD) over plain HTTP without
// authentication: /healthz (the process runs), /readyz, /metrics and Handlers.
type AdminOptions struct {
	// Address is the host:port to listen on. Port 0 picks a free one, see [Server.AdminAddr].
	// Default: 127.0.0.1:8081.
	Address string

	// AllowRemote permits an Address that is not a loopback address, for probes and scrapers on
	// other hosts. Every client that reaches it can read everything on it.
	AllowRemote bool

	// AllowRemoteMetrics permits such an Address, too. Requests that reach the host at an address
	// other than loopback then get only /healthz, /readyz and /metrics, and 403 for everything
	// else, unless AllowRemote is set.
	AllowRemoteMetrics bool

	// Checks determine readiness, in addition to the server's own check (it is not ready during
	// shutdown).
	Checks []Check

	// Warnings returns lines that /readyz shows and that do not affect readiness. It is called as
	// Check.Ready is. Nil: none.
	Warnings func() []string

	// Gatherer provides the metrics at /metrics. Nil: there is no /metrics.
	Gatherer prometheus.Gatherer

	// Handlers are additional handlers by their [http.ServeMux] pattern.
	Handlers map[string]http.Handler

	// Pprof adds the profiles of [net/http/pprof] at /debug/pprof/. Default: false.
	Pprof bool
}

// A Check is one named readiness check.
type Check struct {
	// Name is the name of the check in /readyz.
	Name string

	// Ready returns nil, or why the process is not ready. It is called for every request to
	// /readyz, must return quickly, and must be safe for concurrent use.
	Ready func() error
}

func (o Options) withDefaults() Options {
	o.Address = cmp.Or(o.Address, "127.0.0.1:8443")
	o.ReadHeaderTimeout = cmp.Or(o.ReadHeaderTimeout, 5*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 5*time.Minute)
	o.MaxConnections = cmp.Or(o.MaxConnections, 1024)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 128<<20)
	o.MaxInFlightBytes = cmp.Or(o.MaxInFlightBytes, max(256<<20, o.MaxBodyBytes))
	o.BusyTimeout = cmp.Or(o.BusyTimeout, 2*time.Second)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, 10*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 20*time.Second)
	o.Admin.Address = cmp.Or(o.Admin.Address, "127.0.0.1:8081")
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}
