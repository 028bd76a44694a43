package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The names of the files of a Set, without .crt and .key.
const (
	caName     = "ca"
	serverName = "server"
	clientName = "client"
)

// A Set is a CA with one server and one client certificate, as files of one directory: ca.crt,
// ca.key, server.crt, server.key, client.crt and client.key.
type Set struct {
	// Authority signs certificates. Nil in an empty set.
	Authority *Authority

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

// NewSet returns the set of these pairs, which may be empty. It is an error if a certificate exists without the key of the CA, or the
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
	if s.Authority, err = LoadAuthority(ca); err != nil {
		return nil, fmt.Errorf("%[1]s.crt with %[1]s.key: %[2]w", caName, err)
	}
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

// EndsBefore reports whether the server's or the client's certificate ends before that time.
func (s *Set) EndsBefore(t time.Time) bool {
	for _, p := range []Pair{s.Server, s.Client} {
		if all, _ := Parse(p.Cert); len(all) > 0 && all[0].NotAfter.Before(t) {
			return true
		}
	}
	return false
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

// Check returns the certificate of a pair. It fails unless the key belongs to it, the CA has signed
// it for the usage, and it is valid now.
func (s *Set) Check(p Pair, usage x509.ExtKeyUsage) (*x509.Certificate, error) {
	if p.Key == nil {
		return nil, errors.New("its key does not exist")
	}
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Authority.cert)
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
	return errors.Join(
		s.Authority.pair.WriteFiles(path(caName+".crt"), path(caName+".key")),
		s.Server.WriteFiles(path(serverName+".crt"), path(serverName+".key")),
		s.Client.WriteFiles(path(clientName+".crt"), path(clientName+".key")))
}
