package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
)

func authority(t *testing.T, opts certs.AuthorityOptions) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(opts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *certs.Authority, req certs.Request) certs.Pair {
	t.Helper()
	p, err := a.Issue(req)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func leaf(t *testing.T, p certs.Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func pool(t *testing.T, a *certs.Authority) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Pair().Cert) {
		t.Fatal("the CA's certificate does not parse")
	}
	return roots
}

func TestIssuedCertificatesVerify(t *testing.T) {
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	past := time.Now().Add(-time.Hour)
	tests := []struct {
		name  string
		req   certs.Request
		host  string
		usage x509.ExtKeyUsage
		want  string // part of the error; "" if it verifies
	}{
		{"server by IPv4", certs.Request{Server: true, Hosts: []string{"10.0.0.1"}}, "10.0.0.1", server, ""},
		{"server by IPv6", certs.Request{Server: true, Hosts: []string{"::1"}}, "::1", server, ""},
		{"server by DNS name", certs.Request{Server: true, Hosts: []string{"10.0.0.1", "outboard.kube-system.svc"}}, "outboard.kube-system.svc", server, ""},
		{"server by another name", certs.Request{Server: true, Hosts: []string{"a.example"}}, "b.example", server, "not b.example"},
		{"client", certs.Request{Client: true, CommonName: "system:kube-scheduler"}, "", client, ""},
		{"client posing as server", certs.Request{Client: true, Hosts: []string{"a"}}, "a", server, "incompatible key usage"},
		{"server posing as client", certs.Request{Server: true, Hosts: []string{"a"}}, "", client, "incompatible key usage"},
		{"both", certs.Request{Server: true, Client: true, Hosts: []string{"a"}}, "a", client, ""},
		{"expired", certs.Request{Client: true, NotBefore: past.Add(-time.Hour), NotAfter: past}, "", client, "expired"},
		{"not yet valid", certs.Request{Client: true, NotBefore: time.Now().Add(time.Hour)}, "", client, "not yet valid"},
	}
	a := authority(t, certs.AuthorityOptions{})
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cert := leaf(t, issue(t, a, tc.req))
			_, err := cert.Verify(x509.VerifyOptions{
				Roots: pool(t, a), DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{tc.usage},
			})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Verify() error = %v, want %q", err, tc.want)
			}
		})
	}
	other := authority(t, certs.AuthorityOptions{})
	cert := leaf(t, issue(t, a, certs.Request{Client: true}))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, other), KeyUsages: []x509.ExtKeyUsage{client}}); err == nil {
		t.Error("a certificate verifies with a CA that did not sign it")
	}
}

func TestNamesAreKept(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{CommonName: "my-ca"})
	cert := leaf(t, issue(t, a, certs.Request{
		Client: true, CommonName: "caller", Organizations: []string{"system:masters"},
		Hosts: []string{"127.0.0.1", "a.example"}, URIs: []string{"spiffe://cluster/ns/kube-system"},
	}))
	if cert.Issuer.CommonName != "my-ca" || cert.Subject.CommonName != "caller" ||
		len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:masters" {
		t.Errorf("issuer %v, subject %v", cert.Issuer, cert.Subject)
	}
	if len(cert.IPAddresses) != 1 || !cert.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1)) ||
		len(cert.DNSNames) != 1 || cert.DNSNames[0] != "a.example" ||
		len(cert.URIs) != 1 || cert.URIs[0].String() != "spiffe://cluster/ns/kube-system" {
		t.Errorf("alternative names: %v %v %v", cert.IPAddresses, cert.DNSNames, cert.URIs)
	}
}

func TestLeafEndsWithItsAuthority(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	a := authority(t, certs.AuthorityOptions{NotAfter: end})
	if got := leaf(t, issue(t, a, certs.Request{Client: true})).NotAfter; !got.Equal(end) {
		t.Errorf("the certificate expires %s, its CA %s", got, end)
	}
}

func TestLoadedAuthorityIssues(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{})
	again, err := certs.LoadAuthority(a.Pair())
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, issue(t, again, certs.Request{Client: true}))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, a), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Error(err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{})
	b := authority(t, certs.AuthorityOptions{})
	now := time.Now()
	loadErr := func(p certs.Pair) error { _, err := certs.LoadAuthority(p); return err }
	issueErr := func(r certs.Request) error { _, err := a.Issue(r); return err }
	_, newErr := certs.NewAuthority(certs.AuthorityOptions{NotBefore: now, NotAfter: now.Add(-time.Hour)})
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"no use", issueErr(certs.Request{CommonName: "x"}), `certificate "x": neither for a server nor for a client`},
		{"server without host", issueErr(certs.Request{Server: true}), "at least one host"},
		{"not a host name", issueErr(certs.Request{Server: true, Hosts: []string{"not a name"}}), `host "not a name" is neither an IP address nor a DNS name`},
		{"host with a port", issueErr(certs.Request{Server: true, Hosts: []string{"outboard.example:443"}}), "neither an IP address nor a DNS name"},
		{"URL as a host", issueErr(certs.Request{Server: true, Hosts: []string{"https://outboard.example"}}), "neither an IP address nor a DNS name"},
		{"long host name", issueErr(certs.Request{Server: true, Hosts: []string{strings.Repeat("a.", 127) + "a"}}), "neither an IP address nor a DNS name"},
		{"bad URI", issueErr(certs.Request{Client: true, URIs: []string{"::"}}), "missing protocol scheme"},
		{"leaf ends before it begins", issueErr(certs.Request{Client: true, NotBefore: now, NotAfter: now}), "before it begins"},
		{"authority ends before it begins", newErr, "before it begins"},
		{"key of another", loadErr(certs.Pair{Cert: a.Pair().Cert, Key: b.Pair().Key}), "does not match"},
		{"leaf as authority", loadErr(issue(t, a, certs.Request{Client: true, CommonName: "leaf"})), `"leaf" is not the certificate of an authority`},
		{"nothing", loadErr(certs.Pair{}), "authority: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
				t.Errorf("error = %v, want one with %q", tc.err, tc.want)
			}
		})
	}
}

func TestWriteFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	a := authority(t, certs.AuthorityOptions{})
	for range 2 { // the second time replaces the files
		want := issue(t, a, certs.Request{Client: true})
		if err := want.WriteFiles(cert, key); err != nil {
			t.Fatal(err)
		}
		gotCert, _ := os.ReadFile(cert)
		gotKey, _ := os.ReadFile(key)
		if !bytes.Equal(gotCert, want.Cert) || !bytes.Equal(gotKey, want.Key) {
			t.Fatal("the files do not contain the pair")
		}
	}
	if info, _ := os.Stat(key); info.Mode().Perm() != 0o600 {
		t.Errorf("key file mode %v, want 0600", info.Mode().Perm())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	if err := a.Pair().WriteFiles(cert, filepath.Join(dir, "missing", "tls.key")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}
