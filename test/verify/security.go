package main

import "outboard.dev/outboard/internal/decision"

// security checks the connection by the responses so far, and calls once more without
// a client certificate.
func (r *run) security() {
	t, found := firstOf(r.targets, func(t *target) bool { return t.first.status != 0 })
	if !found {
		return
	}
	https := r.options.https()
	r.checker.check(ruleEncrypted, https, t.base, &t.first, "the address is plain http")
	if !https {
		return
	}
	tls := r.options.TLS
	r.checker.check(ruleVerified, tls.CAFile != "" || len(tls.CAData) > 0, t.base, &t.first, "no CA is given, so any certificate is accepted")
	r.checker.check(ruleHTTP1, t.first.proto == "HTTP/1.1" || t.first.proto == "HTTP/1.0", t.base, &t.first, "%s was negotiated", t.first.proto)
	r.clientCertificate()
}

// clientCertificate calls without a client certificate: bind if it is served, because that needs
// protection most. An Error is a rejection if the call with a certificate gets none. bind always
// gets one, so there the texts must differ.
func (r *run) clientCertificate() {
	without := r.options.unauthenticated()
	hadOne := without.TLS.CertFile != r.options.TLS.CertFile || len(r.options.TLS.CertData) > 0
	bind := r.options.Verbs[decision.Bind] != ""
	if !bind {
		r.checker.byID[ruleClientCert].Severity = SeverityNote
	}
	t, found := firstOf(r.targets, func(t *target) bool { return t.ok && (t.verb == decision.Bind) == (bind && hadOne) })
	if !found {
		return
	}
	if !hadOne {
		r.checker.check(ruleClientCert, false, t.base, &t.first, "the call succeeded without a client certificate")
		return
	}
	stranger, err := newClient(without.URL, true, without.TLS, without.HTTPTimeout)
	if err != nil {
		r.note("not called without a client certificate: %v", err)
		return
	}
	defer stranger.close()
	a := stranger.ask(r.ctx, t.base)
	if a.failure == notAsked || a.failure == late {
		return
	}
	refused := a.failure != responded || a.result.rejection() != t.first.result.rejection()
	r.checker.check(ruleClientCert, refused, t.base, &a, "without a certificate %s gets the same response", t.verb)
}
