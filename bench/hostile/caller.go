package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"outboard.dev/outboard/internal/certs"
)

// A caller has a certificate and an address of its own, as if it ran on a host of its own.
type caller struct {
	config  *tls.Config
	address string
}

// The names in the certificates of the callers.
const honestName = "kube-scheduler"

var hostileNames = []string{"hostile-1", "hostile-2"}

// writeCertificates writes those of the server and of all callers.
func writeCertificates(dir string) error {
	ca, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		return err
	}
	server, err := ca.Issue(certs.Request{CommonName: "outboard", Server: true, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	errs := []error{
		server.WriteFiles(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca.Pair().Cert, 0o600),
	}
	for _, name := range append([]string{honestName}, hostileNames...) {
		pair, err := ca.Issue(certs.Request{CommonName: name, Client: true})
		errs = append(errs, err, pair.WriteFiles(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")))
	}
	return errors.Join(errs...)
}

// newCaller reads the certificate of the caller.
func newCaller(dir, name, address string) (*caller, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &caller{&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: "127.0.0.1"}, address}, nil
}

func (c *caller) dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.address)}}
}

// client returns a client that keeps as many connections as kube-scheduler.
func (c *caller) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: c.dialer().DialContext, TLSClientConfig: c.config}}
}

// repeat opens a connection and uses it, again and again.
func (c *caller) repeat(address string, use func(net.Conn)) {
	for {
		if conn, err := tls.DialWithDialer(c.dialer(), "tcp", address, c.config); err == nil {
			use(conn)
			conn.Close()
		}
		time.Sleep(attackPause)
	}
}

func post(client *http.Client, address, verb, body string) (string, error) {
	response, err := client.Post("https://"+address+"/"+verb, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return string(answer), err
}

// decoy is the target of an attack on a decoy.
const decoy = "decoy"

// serveDecoy serves TLS and plain HTTP in the process of the hostile callers: it reads each body, and does nothing else. How slow honest calls
// to Outboard are meanwhile shows what the attack costs by its use of the machine alone.
func serveDecoy(dir string) (target, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		return target{}, err
	}
	serving, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		return target{}, err
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return target{}, err
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler:  http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
	}
	for _, l := range []net.Listener{serving, admin} {
		go func() { _ = server.Serve(l) }() // until the process ends
	}
	return target{address: serving.Addr().String(), admin: admin.Addr().String()}, nil
}
