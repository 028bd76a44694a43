package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outboard.dev/outboard/internal/atomicfile"
)

// The names of the files of a Set, without .crt and .key.
const (
	caName     = "ca"
	serverName = "server"
	clientName = "client"
)

// A Set is a CA with one server and one client certificate, as files of one directory: ca.crt,
// ca.key, server.crt, server.key, client.crt and client.key. While a CA is replaced, ca.crt has the
// certificates of both CAs.
type Set struct {
	// Authority signs certificates. Nil in an empty set.
	Authority *Authority

	// CAs are the certificates of all trusted CAs as PEM, that of Authority first.
	CAs []byte

	// Server and Client are the zero value if they do not exist.
	Server, Client Pair
}

// ReadSet reads the files of a directory. Without a directory or without files, the set is empty.
func ReadSet(dir string) (*Set, error) {
	var pairs [3]Pair
	for i, name := range []string{caName, serverName, clientName} {
		var err error
		if pairs[i], err = readPair(dir, name); err != nil {
			return nil, err
		}
	}
	s, err := NewSet(pairs[0], pairs[1], pairs[2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return s, nil
}

// NewSet returns the set of these pairs, which may be empty; that of the CA may have the
// certificates of several. It is an error if a certificate exists without the key of the CA, or the
// key without its certificate, because certificates of another CA would not be trusted.
func NewSet(ca, server, client Pair) (*Set, error) {
	s := &Set{Server: server, Client: client}
	switch {
	case ca.Cert == nil && ca.Key == nil && server.Cert == nil && client.Cert == nil:
		return s, nil
	case ca.Cert == nil:
		return nil, fmt.Errorf("%s.crt %w", caName, errIncomplete)
	case ca.Key == nil:
		return nil, fmt.Errorf("%s.key %w", caName, errIncomplete)
	}
	var err error
	if s.Authority, err = signer(ca); err != nil {
		return nil, fmt.Errorf("%[1]s.crt with %[1]s.key: %[2]w", caName, err)
	}
	s.CAs = append(bytes.Clone(s.Authority.pair.Cert), without(ca.Cert, s.Authority)...)
	return s, nil
}

var errIncomplete = errors.New("does not exist: restore it, or create all certificates anew and replace the CA everywhere")

func readPair(dir, name string) (p Pair, err error) {
	path := filepath.Join(dir, name)
	if p.Cert, err = os.ReadFile(path + ".crt"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, err
	}
	if p.Key, err = os.ReadFile(path + ".key"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, err
	}
	return p, nil
}

// signer returns the authority of a key, whose certificate is one of several.
func signer(ca Pair) (*Authority, error) {
	var last error = errors.New("no certificate")
	for der := range blocks(ca.Cert) {
		authority, err := LoadAuthority(Pair{Cert: encoded(der), Key: ca.Key})
		if err == nil {
			return authority, nil
		}
		last = err
	}
	return nil, last
}

// blocks yields the certificates in PEM data, each as DER.
func blocks(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == certificateBlock && !yield(block.Bytes) {
				return
			}
		}
	}
}

// without returns the certificates of a file except that of the authority.
func without(file []byte, a *Authority) (others []byte) {
	for der := range blocks(file) {
		if !bytes.Equal(der, a.cert.Raw) {
			others = append(others, encoded(der)...)
		}
	}
	return others
}

// EndsBefore reports whether the server's or the client's certificate ends before that time.
func (s *Set) EndsBefore(t time.Time) bool {
	for _, p := range []Pair{s.Server, s.Client} {
		if all, _ := Parse(p.Cert); len(all) > 0 && all[0].NotAfter.Before(t) {
			return true
		}
	}
	return false
}

// Rotating reports whether ca.crt has a CA that no longer signs.
func (s *Set) Rotating() bool { return s.Authority != nil && len(without(s.CAs, s.Authority)) > 0 }

// AddAuthority creates the CA that signs from now on, and keeps the certificate of the former one, if
// any, as trusted. It fails if the certificate of an earlier CA is still trusted: complete that
// rotation first.
func (s *Set) AddAuthority() error {
	if s.Rotating() {
		return errors.New("the former CA is still trusted: renew the certificates and remove it first")
	}
	// The name differs from that of the former CA, so that messages about certificates identify the
	// CA.
	now := strings.Replace(time.Now().UTC().Format("20060102150405.000000000"), ".", "-", 1)
	a, err := NewAuthority(AuthorityOptions{CommonName: "outboard-ca-" + now})
	if err == nil {
		s.Authority, s.CAs = a, append(bytes.Clone(a.pair.Cert), s.CAs...)
	}
	return err
}

// Issue issues the server's certificate for the hosts, and the client's for the name, if they do not
// exist or if renew is true. A renewed certificate keeps its key, and its hosts beside the given
// ones. Issue fails if a certificate that it keeps is not valid, or not for one of the hosts.
func (s *Set) Issue(hosts []string, client string, renew bool) error {
	for _, c := range []struct {
		file    string
		pair    *Pair
		usage   x509.ExtKeyUsage
		request Request
	}{
		{"server.crt", &s.Server, x509.ExtKeyUsageServerAuth, Request{CommonName: "outboard", Hosts: hosts, Server: true}},
		{"client.crt", &s.Client, x509.ExtKeyUsageClientAuth, Request{CommonName: client, Client: true}},
	} {
		var err error
		if c.pair.Cert == nil || renew {
			c.request.Former = *c.pair
			if former, _ := Parse(c.pair.Cert); len(former) > 0 && c.request.Server {
				c.request.Hosts = append(Hosts(former[0]), beyond(former[0], hosts)...)
			}
			*c.pair, err = s.Authority.Issue(c.request)
		} else {
			var leaf *x509.Certificate
			if leaf, err = s.Check(*c.pair, c.usage); err == nil {
				if others := beyond(leaf, c.request.Hosts); len(others) > 0 {
					err = fmt.Errorf("the certificate is for %s, not for %s", strings.Join(Hosts(leaf), ", "), strings.Join(others, ", "))
				}
			}
			if err != nil {
				err = fmt.Errorf("%w: replace it with --renew", err)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
	}
	return nil
}

// beyond returns those of the hosts for which the certificate is not.
func beyond(cert *x509.Certificate, hosts []string) (others []string) {
	for _, host := range hosts {
		if !slices.Contains(Hosts(cert), host) && cert.VerifyHostname(host) != nil {
			others = append(others, host)
		}
	}
	return others
}

// RemoveOldAuthorities keeps only the CA that signs. It fails if that CA has not signed both
// certificates.
func (s *Set) RemoveOldAuthorities() error {
	alone := &Set{Authority: s.Authority, CAs: s.Authority.pair.Cert}
	if _, err := alone.Check(s.Server, x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("server.crt: %w: replace it with --renew first", err)
	}
	if _, err := alone.Check(s.Client, x509.ExtKeyUsageClientAuth); err != nil {
		return fmt.Errorf("client.crt: %w: replace it with --renew first", err)
	}
	s.CAs = alone.CAs
	return nil
}

// Check returns the certificate of a pair. It fails unless the key belongs to it, a trusted CA has
// signed it for the usage, and it is valid now.
func (s *Set) Check(p Pair, usage x509.ExtKeyUsage) (*x509.Certificate, error) {
	if p.Key == nil {
		return nil, errors.New("its key does not exist")
	}
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CAs)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
	return pair.Leaf, err
}

// WriteFiles writes the files, each in one step as atomicfile.Write does. It creates the directory,
// which only its owner can read, if it does not exist.
func (s *Set) WriteFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	// The certificates before the key: if writing ends between them, the former CA continues to
	// sign.
	if err := atomicfile.Write(path(caName+".crt"), s.CAs, 0o644); err != nil {
		return err
	}
	if err := atomicfile.Write(path(caName+".key"), s.Authority.pair.Key, 0o600); err != nil {
		return err
	}
	if err := s.Server.WriteFiles(path(serverName+".crt"), path(serverName+".key")); err != nil {
		return err
	}
	return s.Client.WriteFiles(path(clientName+".crt"), path(clientName+".key"))
}
