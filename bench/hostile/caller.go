package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"outboard.dev/outboard/internal/certs"
)

// A caller has a certificate of its own.
type caller struct{ config *tls.Config }

// The names in the certificates of the callers.
const (
	honestName  = "kube-scheduler"
	hostileName = "hostile"
)

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
	for _, name := range []string{honestName, hostileName} {
		pair, err := ca.Issue(certs.Request{CommonName: name, Client: true})
		errs = append(errs, err, pair.WriteFiles(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")))
	}
	return errors.Join(errs...)
}

// newCaller reads the certificate of the caller.
func newCaller(dir, name string) (*caller, error) {
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
	return &caller{&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: "127.0.0.1"}}, nil
}

// client returns a client that keeps as many connections as kube-scheduler.
func (c *caller) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: c.config}}
}

// repeat opens a connection and uses it, again and again.
func (c *caller) repeat(address string, use func(net.Conn)) {
	for {
		if conn, err := tls.Dial("tcp", address, c.config); err == nil {
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
