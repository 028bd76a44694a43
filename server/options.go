package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a Server. Only Handler is required. For durations and sizes, zero means the default.
type Options struct {
	// Address is the host:port to serve on. Port 0 picks a free one, see [Server.Addr]. Default: 127.0.0.1:8443.
	Address string

	// Handler serves the requests of the serving listener. It must be safe for concurrent use.
	Handler http.Handler

	// TLS turns on TLS. Nil: plain HTTP, and every caller may call.
	TLS *TLSOptions

	// HTTP2 offers HTTP/2 besides HTTP/1.1 on TLS connections. A scheduler keeps two idle HTTP/1.1 connections, so that
	// with 16 calls at a time or more most of them begin with a handshake; over HTTP/2 they share a connection and
	// several times as many fit into a second. But when the host of a replica vanishes, all calls on its connection time
	// out, up to 16 one after the other or for 45 s, where HTTP/1.1 loses one or two. So it is for a replica that is
	// alone behind its address. (BenchmarkConcurrentBinds, BenchmarkDeadReplica.) Default: false.
	HTTP2 bool

	// ReadHeaderTimeout bounds the TLS handshake and, separately, the reading of one request's header. Default: 5 s.
	ReadHeaderTimeout time.Duration

	// BodyTimeout bounds the reading of one request's body. Default: 30 s.
	BodyTimeout time.Duration

	// MinRate is how many bytes a second a client must send of a body, and take in of an answer, once it is RateGrace behind.
	// When a request waits for memory, half a second behind is enough for the slowest to end. Default: 1 MiB.
	MinRate int64

	// RateGrace is how far behind MinRate a client may be. A client that waits for an answer for less time is not ended
	// sooner than it would give up. Default: 5 s.
	RateGrace time.Duration

	// WriteTimeout bounds one request from the end of its header to the end of its answer. Default: 2 min.
	WriteTimeout time.Duration

	// IdleTimeout is how long an unused connection is kept. It should exceed the clients' own (90 s in kube-scheduler):
	// when the client closes first, no call meets a connection that the server just closed. Default: 2 min.
	IdleTimeout time.Duration

	// MaxConnectionAge is when a connection's next answer asks the client to make a new one. That is how a client comes
	// to present its renewed certificate, and to find other replicas. Before an authority is removed, wait that
	// long after the last client was renewed. Negative: never. Default: 5 min.
	MaxConnectionAge time.Duration

	// MaxHeaderBytes bounds one request's header. Default: 16 KiB.
	MaxHeaderBytes int

	// MaxConnections bounds the open connections. When they are used up, a new one takes the place of the one whose client is
	// furthest behind with its first request, or behind MinRate with a body or an answer; if there is none, of the one that
	// has waited longest for another request; if there is none either, the new one is closed. Default: 1024.
	MaxConnections int

	// MaxBodyBytes bounds one request's body. Default: 128 MiB.
	MaxBodyBytes int64

	// MaxInFlightBytes bounds the memory of request bodies of more than 96 KiB over all requests; at least MaxBodyBytes. A
	// body of unknown length counts as one of MaxBodyBytes. Smaller ones have room on every connection beside it, and what
	// is made of bodies (see [Reserve]) has 128 MiB. Default: 256 MiB, or MaxBodyBytes if that is more.
	MaxInFlightBytes int64

	// BusyTimeout is how long one request may wait for memory. Default: 2 s.
	BusyTimeout time.Duration

	// ShutdownDelay is how long the server, asked to stop, says that it is not ready but serves everybody, so that callers
	// can move elsewhere. Negative: not at all. Default: 10 s.
	ShutdownDelay time.Duration

	// DrainTimeout is how long requests may take to finish after ShutdownDelay. Default: 20 s.
	DrainTimeout time.Duration

	// Admin configures the admin listener.
	Admin AdminOptions

	// Logger receives the log. It never gets a body or a header. Default: [slog.Default].
	Logger *slog.Logger

	// Registerer gets the metrics of this server. Nil: they are kept nowhere.
	Registerer prometheus.Registerer
}

// TLSOptions configure TLS on the serving listener. The files are watched: when their bytes differ and the new set
// is valid as a whole, it serves from the next handshake on. Otherwise the former set stays in force.
type TLSOptions struct {
	// CertFile and KeyFile hold the certificate chain and its key as PEM. Required.
	CertFile, KeyFile string

	// ClientCAFile holds the authorities of client certificates as PEM. If set, every caller must present a certificate
	// signed by one of them, not only when it connects: after a reload, a connection whose certificate the new
	// authorities did not sign is not served any more. Default: callers are not asked for a certificate.
	ClientCAFile string

	// AllowedClients are the names that may call, each compared as it is with the common name and the DNS and
	// URI names of the caller's certificate. Needs ClientCAFile. Empty: whoever has a certificate.
	AllowedClients []string

	// Refused, if not nil, answers a caller whose certificate is valid but has no allowed name, for whoever drops the body of
	// a 403. It returns false to have the request answered with 403. It must not read the body.
	Refused func(w http.ResponseWriter, r *http.Request, err error) bool

	// ReloadInterval is the time between two readings of the files, besides the notifications of the file system.
	// Default: 10 s.
	ReloadInterval time.Duration
}

// AdminOptions configure the admin listener, which answers GET (and HEAD) over plain HTTP to anybody: /healthz (the
// process runs), /readyz, /metrics and what the caller adds.
type AdminOptions struct {
	// Address is the host:port to listen on. Port 0 picks a free one, see [Server.AdminAddr].
	// Default: 127.0.0.1:8080.
	Address string

	// AllowRemote permits an Address that is not a loopback address, for probes and scrapers on other hosts. Everybody
	// who reaches it can then read everything on it.
	AllowRemote bool

	// Checks decide on readiness, besides the server's own (it is not ready while it stops).
	Checks []Check

	// Warnings returns lines that /readyz shows, and that decide nothing. It is called as Check.Ready is. Nil: none.
	Warnings func() []string

	// Gatherer gives the metrics at /metrics. Nil: there is no /metrics.
	Gatherer prometheus.Gatherer

	// Handlers are further handlers by their [http.ServeMux] pattern.
	Handlers map[string]http.Handler

	// Pprof adds the profiles of [net/http/pprof] at /debug/pprof/. Default: false.
	Pprof bool
}

// A Check is one named condition of readiness.
type Check struct {
	// Name is shown in the answer of /readyz.
	Name string

	// Ready returns nil, or why the process is not ready. It is called for every request to /readyz and must be quick
	// and safe for concurrent use.
	Ready func() error
}

func (o Options) withDefaults() Options {
	o.Address = cmp.Or(o.Address, "127.0.0.1:8443")
	o.ReadHeaderTimeout = cmp.Or(o.ReadHeaderTimeout, 5*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.MinRate = cmp.Or(o.MinRate, 1<<20)
	o.RateGrace = cmp.Or(o.RateGrace, 5*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 2*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Minute)
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 5*time.Minute)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 16<<10)
	o.MaxConnections = cmp.Or(o.MaxConnections, 1024)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 128<<20)
	o.MaxInFlightBytes = cmp.Or(o.MaxInFlightBytes, max(256<<20, o.MaxBodyBytes))
	o.BusyTimeout = cmp.Or(o.BusyTimeout, 2*time.Second)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, 10*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 20*time.Second)
	o.Admin.Address = cmp.Or(o.Admin.Address, "127.0.0.1:8080")
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// validate is called after withDefaults and returns everything that is wrong.
func (o Options) validate() error {
	var errs []error
	if o.Handler == nil {
		errs = append(errs, errors.New("handler is required"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"read header timeout", o.ReadHeaderTimeout}, {"body timeout", o.BodyTimeout}, {"rate grace", o.RateGrace}, {"write timeout", o.WriteTimeout},
		{"idle timeout", o.IdleTimeout}, {"busy timeout", o.BusyTimeout}, {"drain timeout", o.DrainTimeout},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s %s must be greater than 0", d.name, d.value))
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"max header bytes", int64(o.MaxHeaderBytes)}, {"max connections", int64(o.MaxConnections)},
		{"min rate", o.MinRate}, {"max body bytes", o.MaxBodyBytes}, {"max in-flight bytes", o.MaxInFlightBytes},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("%s %d must be greater than 0", n.name, n.value))
		}
	}
	if o.MaxInFlightBytes < o.MaxBodyBytes {
		errs = append(errs, fmt.Errorf("max in-flight bytes %d must be at least max body bytes %d",
			o.MaxInFlightBytes, o.MaxBodyBytes))
	}
	if t := o.TLS; t != nil {
		if t.CertFile == "" || t.KeyFile == "" {
			errs = append(errs, errors.New("tls needs a certificate file and a key file"))
		}
		if t.ClientCAFile == "" && len(t.AllowedClients) > 0 {
			errs = append(errs, errors.New("allowed clients need a client CA file to know them by"))
		}
	}
	if o.HTTP2 && o.TLS == nil {
		errs = append(errs, errors.New("http/2 needs tls"))
	}
	for _, c := range o.Admin.Checks {
		if c.Name == "" || c.Ready == nil {
			errs = append(errs, fmt.Errorf("readiness check %q needs a name and a function", c.Name))
		}
	}
	return errors.Join(errs...)
}
