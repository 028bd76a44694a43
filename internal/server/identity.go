package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/internal/lastevent"
	"outboard.dev/outboard/internal/throttle"
)

// An identifier holds the current credential and decides which callers are allowed.
type identifier struct {
	opts    TLSOptions
	logger  *slog.Logger
	metrics *metrics
	refused throttle.Log
	current atomic.Pointer[credential]
}

// files returns the files of a credential.
func (o TLSOptions) files() []string {
	files := []string{o.CertFile, o.KeyFile}
	if o.ClientCAFile != "" {
		files = append(files, o.ClientCAFile)
	}
	return files
}

// load makes a set of files the current credential, if it is valid as a whole. One that has ended,
// or is not valid yet, does not replace one with which calls succeed.
func (id *identifier) load(files map[string][]byte) error {
	cert, err := tls.X509KeyPair(files[id.opts.CertFile], files[id.opts.KeyFile])
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", id.opts.CertFile, id.opts.KeyFile, err)
	}
	c := &credential{Certificate: cert}
	if id.opts.ClientCAFile != "" {
		if err = c.readAuthorities(files[id.opts.ClientCAFile]); err != nil {
			return fmt.Errorf("client CA %s: %w", id.opts.ClientCAFile, err)
		}
	}
	if now := time.Now(); c.invalid(now) != nil {
		if current := id.current.Load(); current != nil && current.invalid(now) == nil {
			return &unusable{fmt.Errorf("in the new files, %w", c.invalid(now)), c.Leaf.NotBefore}
		}
		id.logger.Error("no call can succeed", "error", c.invalid(now), "files", id.opts.files())
	}
	id.current.Store(c)
	id.metrics.certificates.set(certServing, c.Leaf.NotAfter, renewal(c.Leaf))
	if c.clients != nil {
		first := slices.MinFunc(c.authorities, byEnd)
		id.metrics.certificates.set(certClientCA, first.NotAfter, renewal(first))
	}
	return nil
}

// unusable is the error of files that are valid, but not at this time.
type unusable struct {
	error
	from time.Time // when the serving certificate begins to be valid
}

// serverConfig returns the configuration of the listener; every handshake uses the current
// credential.
func (id *identifier) serverConfig() *tls.Config {
	return &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, remote := id.current.Load(), hello.Conn.RemoteAddr().String()
		config := &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{c.Certificate},
			NextProtos:   []string{"http/1.1"},
			// A resumed session would keep the verdict of earlier CAs.
			SessionTicketsDisabled: true,
		}
		if c.clients != nil {
			// verify requires and verifies the certificate, by the rules for every request.
			// tls.RequireAndVerifyClientCert would reject the same callers, but report the reason
			// only in a log line.
			config.ClientAuth, config.ClientCAs = tls.RequestClientCert, c.clients
			config.VerifyConnection = func(state tls.ConnectionState) error { return id.verify(state, remote) }
		}
		return config, nil
	}}
}

// verify checks the caller in the handshake. It uses the current CAs, not those at the start of the
// handshake: the client may have received its new certificate in between.
func (id *identifier) verify(state tls.ConnectionState, remote string) error {
	verdict := id.current.Load().check(state.PeerCertificates, nil)
	if verdict.refused != "" {
		id.count(verdict, "caller refused in the handshake", &state, remote)
	}
	return verdict.err
}

// admit responds with 403 and returns false if the caller is not allowed.
func (id *identifier) admit(w http.ResponseWriter, r *http.Request) bool {
	if id.opts.ClientCAFile == "" {
		return true
	}
	verdict := id.verdictOf(r.Context(), r.TLS)
	if verdict.refused == "" {
		return true
	}
	id.count(verdict, "caller refused", r.TLS, r.RemoteAddr)
	// Close the connection: this caller may return with a newer certificate.
	w.Header().Set("Connection", "close")
	hangUp(w, r)
	if verdict.refused != refusedName || id.opts.Refused == nil || !id.opts.Refused(w, r, verdict.err) {
		http.Error(w, verdict.err.Error(), http.StatusForbidden)
	}
	return false
}

// verdictOf returns the verdict on the connection of a request. Verifying costs as much as a small
// call, so the connection caches the verdict until the credential changes or the certificate
// expires.
func (id *identifier) verdictOf(ctx context.Context, state *tls.ConnectionState) *verdict {
	var chain []*x509.Certificate
	if state != nil {
		chain = state.PeerCertificates
	}
	now, kept := id.current.Load(), &sessionOf(ctx).verdict
	if v := kept.Load(); v != nil && v.under == now && (v.refused != "" || time.Now().Before(v.until)) {
		return v
	}
	v := now.check(chain, id.opts.AllowedClients)
	kept.Store(v)
	if v.refused == "" {
		id.metrics.callers.saw(v.caller, v.until, v.renewal)
	}
	return v
}

// count counts and logs a refused caller.
func (id *identifier) count(v *verdict, message string, state *tls.ConnectionState, remote string) {
	name := ""
	if state != nil {
		name = callerName(state.PeerCertificates)
	}
	lastevent.Count(id.metrics.refusedCallers.WithLabelValues(v.refused), cmp.Or(name, hostOf(remote)))
	id.refused.Log(id.logger, slog.LevelWarn, message+v.refused, message,
		"reason", v.refused, "error", v.err, "caller", name, "remote", remote)
}

// A credential is one valid set of certificate, key and client CAs. It is immutable; a reload
// creates a new one.
type credential struct {
	tls.Certificate
	clients     *x509.CertPool      // nil: callers need no certificate
	authorities []*x509.Certificate // those of clients
}

// readAuthorities sets the client CAs to the certificates in PEM data, which must contain at least
// one and nothing else.
func (c *credential) readAuthorities(data []byte) error {
	c.clients = x509.NewCertPool()
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("contains a %s: must contain only certificates", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		c.clients.AddCert(cert)
		c.authorities = append(c.authorities, cert)
	}
	if c.authorities == nil {
		return errors.New("contains no PEM certificate")
	}
	return nil
}

// invalid returns why no call can succeed with the credential now, or nil.
func (c *credential) invalid(now time.Time) error {
	switch {
	case now.After(c.Leaf.NotAfter):
		return fmt.Errorf("the serving certificate ended at %s: renew it", c.Leaf.NotAfter.Format(time.RFC3339))
	case now.Before(c.Leaf.NotBefore):
		return fmt.Errorf("the serving certificate is valid from %s on: compare the clocks", c.Leaf.NotBefore.Format(time.RFC3339))
	case c.clients == nil:
	case now.After(slices.MaxFunc(c.authorities, byEnd).NotAfter):
		return fmt.Errorf("the client CA ended at %s: replace it", slices.MaxFunc(c.authorities, byEnd).NotAfter.Format(time.RFC3339))
	}
	return nil
}

// check verifies a certificate chain. It compares names only if allowed is not empty.
func (c *credential) check(chain []*x509.Certificate, allowed []string) *verdict {
	refuse := func(reason string, err error) *verdict { return &verdict{under: c, refused: reason, err: err} }
	if len(chain) == 0 {
		return refuse(refusedNoCertificate, errors.New(refusedPrefix+" required"))
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.clients, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return refuse(refusal(err), fmt.Errorf(refusedPrefix+": %w", err))
	}
	if len(allowed) > 0 && !slices.ContainsFunc(certNames(chain[0]), func(name string) bool {
		return slices.Contains(allowed, name)
	}) {
		return refuse(refusedName, fmt.Errorf("client %q is not allowed to call: add a name of its certificate to serving.tls.allowedClients", callerName(chain)))
	}
	v := &verdict{under: c, caller: callerName(chain)}
	for _, path := range verified { // the best path determines how long the certificate is valid
		if until := slices.MinFunc(path, byEnd).NotAfter; until.After(v.until) {
			v.until, v.renewal = until, renewal(slices.MinFunc(path, byRenewal))
		}
	}
	return v
}

// A verdict is whether a certificate is allowed, by one credential.
type verdict struct {
	under   *credential
	until   time.Time // when the certificate, or one in its chain, expires
	renewal time.Time // when the first of these should have been replaced
	caller  string    // a name of an allowed caller
	refused string    // reason, as in the metric; "" if the caller is allowed
	err     error
}

// refusedPrefix is the beginning of the error of every caller that is refused in the handshake.
const refusedPrefix = "client certificate"

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

// callerName returns one name of the caller, for messages.
func callerName(chain []*x509.Certificate) string {
	if len(chain) > 0 {
		if names := certNames(chain[0]); len(names) > 0 {
			return names[0]
		}
	}
	return ""
}

func byEnd(a, b *x509.Certificate) int     { return a.NotAfter.Compare(b.NotAfter) }
func byRenewal(a, b *x509.Certificate) int { return renewal(a).Compare(renewal(b)) }

// renewal returns when a certificate should have been replaced: 14 days before its end, or with a
// quarter of its lifetime left if that is later. Usual issuers replace it with a third left.
func renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(14*24*time.Hour, c.NotAfter.Sub(c.NotBefore)/4))
}
