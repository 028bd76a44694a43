package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/throttle"
)

// A credential is one valid set of certificate, key and client authorities. It is immutable; a reload makes a new one.
type credential struct {
	config  *tls.Config
	clients *x509.CertPool // nil: callers are not asked for a certificate
	leaf    *x509.Certificate
	caUntil time.Time // when the first of the client authorities ends
}

// An identifier holds the credential in force and decides who may call.
type identifier struct {
	opts    TLSOptions
	http2   bool
	logger  *slog.Logger
	metrics *metrics
	refused throttle.Log
	current atomic.Pointer[credential]
}

// files returns the files that make up a credential.
func (o TLSOptions) files() []string {
	files := []string{o.CertFile, o.KeyFile}
	if o.ClientCAFile != "" {
		files = append(files, o.ClientCAFile)
	}
	return files
}

// load puts a set of files in force, if it is valid as a whole.
func (id *identifier) load(files map[string][]byte) error {
	cert, err := tls.X509KeyPair(files[id.opts.CertFile], files[id.opts.KeyFile])
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", id.opts.CertFile, id.opts.KeyFile, err)
	}
	c := &credential{leaf: cert.Leaf}
	if id.opts.ClientCAFile != "" {
		if c.clients, c.caUntil, err = parseAuthorities(files[id.opts.ClientCAFile]); err != nil {
			return fmt.Errorf("client CA %s: %w", id.opts.ClientCAFile, err)
		}
		id.metrics.certExpiry.WithLabelValues(certClientCA).Set(float64(c.caUntil.Unix()))
	}
	c.config = id.config(c, cert)
	id.current.Store(c)
	id.metrics.certExpiry.WithLabelValues(certServing).Set(float64(cert.Leaf.NotAfter.Unix()))
	if now := time.Now(); now.After(cert.Leaf.NotAfter) {
		id.logger.Warn("serving certificate has expired", "file", id.opts.CertFile, "notAfter", cert.Leaf.NotAfter)
	}
	return nil
}

func (id *identifier) config(c *credential, cert tls.Certificate) *tls.Config {
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"http/1.1"},
		// A resumed session would carry a verdict of former authorities.
		SessionTicketsDisabled: true,
	}
	if id.http2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	if c.clients != nil {
		// The certificate is required and verified by verify, by the rules that hold for every request too.
		// tls.RequireAndVerifyClientCert would refuse the same callers, without telling why to anything but a log line.
		config.ClientAuth = tls.RequestClientCert
		config.ClientCAs = c.clients
	}
	return config
}

// verify judges the caller in the handshake. The authorities are those of now, not those of the handshake's beginning: a client
// may have come by its new certificate in between.
func (id *identifier) verify(state tls.ConnectionState, remote net.Addr) error {
	verdict := id.current.Load().judge(state.PeerCertificates, nil)
	if verdict.refused != "" {
		id.metrics.refusedCallers.WithLabelValues(verdict.refused).Inc()
		id.refused.Log(id.logger, slog.LevelWarn, "handshake "+verdict.refused, "caller refused in the handshake",
			"reason", verdict.refused, "error", verdict.err, "caller", callerName(state.PeerCertificates), "remote", remote.String())
	}
	return verdict.err
}

// serverConfig is the configuration of the listener; every handshake gets the one in force.
func (id *identifier) serverConfig() *tls.Config {
	config := id.current.Load().config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		current := id.current.Load()
		if current.clients == nil {
			return current.config, nil
		}
		config, remote := current.config.Clone(), hello.Conn.RemoteAddr()
		config.VerifyConnection = func(state tls.ConnectionState) error { return id.verify(state, remote) }
		return config, nil
	}
	return config
}

// parseAuthorities accepts PEM that holds certificates and nothing else, at least one.
func parseAuthorities(data []byte) (*x509.CertPool, time.Time, error) {
	pool := x509.NewCertPool()
	var until time.Time
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, until, fmt.Errorf("holds a %s, want certificates only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, until, err
		}
		pool.AddCert(cert)
		if until.IsZero() || cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	if until.IsZero() {
		return nil, until, errors.New("holds no PEM certificate")
	}
	return pool, until, nil
}

// A verdict says whether a certificate may call, under one credential.
type verdict struct {
	under   *credential
	until   time.Time // when the certificate, or one it depends on, ends
	refused string    // reason, as in the metric; "" when the caller may call
	err     error
}

// judge verifies a certificate chain. Names are compared only when allowed is not empty.
func (c *credential) judge(chain []*x509.Certificate, allowed []string) *verdict {
	refuse := func(reason string, err error) *verdict { return &verdict{under: c, refused: reason, err: err} }
	if len(chain) == 0 {
		return refuse(refusedNoCertificate, errors.New("client certificate required"))
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.clients, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return refuse(refusal(err), fmt.Errorf("client certificate: %w", err))
	}
	if len(allowed) > 0 && !slices.ContainsFunc(certNames(chain[0]), func(name string) bool {
		return slices.Contains(allowed, name)
	}) {
		return refuse(refusedName, fmt.Errorf("client %q is not allowed to call: add a name of its certificate to serving.tls.allowedClients", callerName(chain)))
	}
	v := &verdict{under: c}
	for _, path := range verified { // the certificate is good for as long as the best path
		until := path[0].NotAfter
		for _, cert := range path[1:] {
			if cert.NotAfter.Before(until) {
				until = cert.NotAfter
			}
		}
		if until.After(v.until) {
			v.until = until
		}
	}
	return v
}

func refusal(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return refusedAuthority
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refusedExpired
	default:
		return refusedInvalid
	}
}

func certNames(cert *x509.Certificate) []string {
	names := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// callerName returns one name for messages.
func callerName(chain []*x509.Certificate) string {
	if len(chain) > 0 {
		if names := certNames(chain[0]); len(names) > 0 {
			return names[0]
		}
	}
	return ""
}

// verdictOf returns the verdict on the connection that made a request. Verifying costs as much as a small call, so the
// verdict is kept with the connection, until other credentials are in force or the certificate has ended.
func (id *identifier) verdictOf(ctx context.Context, state *tls.ConnectionState) *verdict {
	var chain []*x509.Certificate
	if state != nil {
		chain = state.PeerCertificates
	}
	now, kept := id.current.Load(), &sessionOf(ctx).verdict
	if v := kept.Load(); v != nil && v.under == now && (v.refused != "" || time.Now().Before(v.until)) {
		return v
	}
	v := now.judge(chain, id.opts.AllowedClients)
	kept.Store(v)
	return v
}

// admit answers 403 and returns false when the caller may not call.
func (id *identifier) admit(w http.ResponseWriter, r *http.Request) bool {
	if id.opts.ClientCAFile == "" {
		return true
	}
	verdict := id.verdictOf(r.Context(), r.TLS)
	if verdict.refused == "" {
		return true
	}
	id.metrics.refusedCallers.WithLabelValues(verdict.refused).Inc()
	id.refused.Log(id.logger, slog.LevelWarn, verdict.refused, "caller refused", "reason", verdict.refused, "error", verdict.err,
		"remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path)
	// The connection is of no use to this caller; another one may carry a newer certificate.
	w.Header().Set("Connection", "close")
	hangUp(w, r)
	if verdict.refused != refusedName || id.opts.Refused == nil || !id.opts.Refused(w, r, verdict.err) {
		http.Error(w, verdict.err.Error(), http.StatusForbidden)
	}
	return false
}
