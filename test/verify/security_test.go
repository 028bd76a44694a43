package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/decision"
)

// authority signs certificates for the tests.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.certificate, a.key, a.pem, _ = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func sign(t *testing.T, by *authority, template *x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	must(err)
	cert, err = x509.ParseCertificate(der)
	must(err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

var securityCases = []struct {
	name       string
	clientAuth tls.ClientAuthType
	http2      bool
	version    uint16 // the highest of TLS
	open       bool   // responds to any client, but reports success of a bind call only to known clients
	bind       bool
	noCA       bool
	wrongCA    bool
	noCert     bool
	want       []string
	severity   Severity // of client-certificate
}{
	{name: "all is well", clientAuth: tls.RequireAndVerifyClientCert, severity: SeverityNote},
	{name: "all is well, with bind", clientAuth: tls.RequireAndVerifyClientCert, bind: true, severity: SeverityWarning},
	{name: "refused with Error", clientAuth: tls.VerifyClientCertIfGiven, open: true, severity: SeverityNote},
	{name: "bind refused with Error", clientAuth: tls.VerifyClientCertIfGiven, open: true, bind: true, severity: SeverityWarning},
	{name: "no CA", clientAuth: tls.RequireAndVerifyClientCert, noCA: true, want: []string{"server-verified"}, severity: SeverityNote},
	{name: "another CA", clientAuth: tls.RequireAndVerifyClientCert, wrongCA: true, want: []string{"responses"}, severity: SeverityNote},
	{name: "certificate missing", clientAuth: tls.RequireAndVerifyClientCert, noCert: true, want: []string{"responses"}, severity: SeverityNote},
	{name: "certificate missing, with TLS 1.2", clientAuth: tls.RequireAndVerifyClientCert, version: tls.VersionTLS12, noCert: true, want: []string{"responses"}, severity: SeverityNote},
	{name: "certificate missing, with HTTP/2", clientAuth: tls.RequireAndVerifyClientCert, http2: true, noCert: true, want: []string{"responses"}, severity: SeverityNote},
	{name: "certificates not asked for", clientAuth: tls.NoClientCert, want: []string{"client-certificate"}, severity: SeverityNote},
	{name: "certificates not asked for, with bind", clientAuth: tls.NoClientCert, bind: true, want: []string{"client-certificate"}, severity: SeverityWarning},
	{name: "certificates not needed", clientAuth: tls.VerifyClientCertIfGiven, noCert: true, want: []string{"client-certificate"}, severity: SeverityNote},
	{name: "HTTP/2", clientAuth: tls.RequireAndVerifyClientCert, http2: true, want: []string{"http1"}, severity: SeverityNote},
}

func TestSecurityOfTheConnection(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	_, _, serverCert, serverKey := sign(t, ca, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	_, _, clientCert, clientKey := sign(t, ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: "system:kube-scheduler"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)

	for _, test := range securityCases {
		t.Run(test.name, func(t *testing.T) {
			handler := &extender{first: func(w http.ResponseWriter, r *http.Request) bool {
				if test.open && len(r.TLS.PeerCertificates) == 0 {
					writeExactly(w, []byte(`{"Error":"who are you?"}`))
					return true
				}
				return false
			}}
			server := httptest.NewUnstartedServer(handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: test.clientAuth, ClientCAs: pool, MaxVersion: test.version}
			server.EnableHTTP2 = test.http2
			server.StartTLS()
			t.Cleanup(server.Close)

			o := quick(Options{URL: server.URL, TLS: rest.TLSClientConfig{CAData: ca.pem, CertData: clientCert, KeyData: clientKey}})
			filterNames(&o)
			if test.bind {
				o.Verbs[decision.Bind] = "bind"
			}
			if test.noCA {
				o.TLS.CAData = nil
			}
			if test.wrongCA {
				o.TLS.CAData = other.pem
			}
			if test.noCert {
				o.TLS.CertData, o.TLS.KeyData = nil, nil
			}
			report := mustRun(t, o)
			if diff := cmp.Diff(test.want, broken(report)); diff != "" {
				t.Errorf("broken rules, - want + got:\n%s\n%s", diff, text(t, report))
			}
			r := resultOf(t, report, "client-certificate")
			if responded := !slices.Contains(test.want, "responses"); responded && (r.Outcome == NotApplicable || r.Severity != test.severity) {
				t.Errorf("client-certificate is %s, %s (%s)", r.Severity, r.Outcome, r.Why)
			}
			if refused := slices.Contains(test.want, "responses"); refused != (report.Connections == 0) {
				t.Errorf("%d connections succeeded", report.Connections)
			}
			if resultOf(t, report, "encrypted").Outcome == Failed {
				t.Error("the report describes https as plain http")
			}
		})
	}
}

func TestPlainHTTPIsAWarning(t *testing.T) {
	o := quick(Options{URL: serve(t, &extender{})})
	filterNames(&o)
	report := mustRun(t, o)
	if r := resultOf(t, report, "encrypted"); r.Outcome != Failed || !report.OK() {
		t.Errorf("encrypted: %s, OK() = %t", r.Outcome, report.OK())
	}
	for _, id := range []string{"server-verified", "client-certificate", "http1"} {
		if r := resultOf(t, report, id); r.Outcome != NotApplicable {
			t.Errorf("%s: %s", id, r.Outcome)
		}
	}
}
