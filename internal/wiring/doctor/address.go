package doctor

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/wiring"
)

// url returns urlPrefix; an empty URL if it is none, which is a finding.
func (e *extenderAt) url() *url.URL {
	if u, err := url.Parse(e.extender.URLPrefix); err == nil {
		return u
	}
	return &url.URL{}
}

// prefix returns the host and the path of urlPrefix.
func (e *extenderAt) prefix() (host, prefix string) {
	return e.url().Host, strings.TrimRight(e.url().Path, "/")
}

// address returns the host and the port that the extender calls, with "loopback" for all names of
// this machine. The default ports of both schemes are one: a wrong scheme makes no other server.
func (e *extenderAt) address() string {
	u, port := e.url(), portOf(e.url())
	if other := (url.URL{Scheme: u.Scheme}); port == portOf(&other) {
		port = "default"
	}
	return net.JoinHostPort(hostOf(u.Hostname()), port)
}

func hostOf(name string) string {
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		return "loopback"
	}
	return name
}

// called returns the path at which kube-scheduler calls a verb; "" if it does not.
func (e *extenderAt) called(v decision.Verb) string {
	u, err := url.Parse(e.urlOf(v))
	if err != nil {
		return ""
	}
	return u.Path
}

// urlOf returns the URL at which kube-scheduler calls a verb; "" if it does not.
func (e *extenderAt) urlOf(v decision.Verb) string {
	name := *wiring.VerbField(&e.extender.Extender, v)
	if name == "" {
		return ""
	}
	return strings.TrimRight(e.extender.URLPrefix, "/") + "/" + name
}

// atServing reports whether the extender calls serving.address. Port 0 is any port: the system
// chooses one when Outboard starts.
func (e *extenderAt) atServing() bool {
	host, port, err := net.SplitHostPort(e.Config.Serving.Address)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	u := *e.url()
	if u.Scheme == "http" && e.Config.Serving.TLS != nil {
		u.Scheme = "https" // which scheme reports
	}
	return hostOf(host) == hostOf(u.Hostname()) && (port == "0" || port == portOf(&u))
}

// inCertificate reports whether the extender calls a name in Outboard's certificate.
func (e *extenderAt) inCertificate() bool {
	host := e.url().Hostname()
	if e.Config.Serving.TLS == nil || hostOf(host) == "loopback" {
		return false
	}
	chain := certificates(e.readOrOmit(e.Config.Serving.TLS.CertFile, e.ReadConfigFile))
	return len(chain) > 0 && chain[0].VerifyHostname(host) == nil
}

// port checks that the call arrives at serving.address. Ports of Services on nodes are forwarded.
// Without TLS, WrongScheme reports calls of other machines.
func (e *extenderAt) port() {
	u, address := e.url(), e.Config.Serving.Address
	host, port, err := net.SplitHostPort(address)
	n, _ := strconv.Atoi(portOf(u))
	here := hostOf(u.Hostname()) == "loopback"
	if err != nil || here && (port == portOf(u) || port == "0") {
		return
	}
	switch {
	case here && !onNodes(n):
		corrected := *u
		corrected.Host = net.JoinHostPort(u.Hostname(), port)
		e.report(Error, "NoEndpoints", "urlPrefix", fmt.Sprintf("the port is %s, and Outboard listens at %s", portOf(u), address), "every call fails", "write urlPrefix: "+corrected.String())
		e.extender.URLPrefix = corrected.String() // the other findings are about that
	case hostOf(host) == "loopback" && (here || e.Config.Serving.TLS != nil):
		severity := Error
		if e.chartServes() {
			severity = Warning
		}
		e.elsewhere(severity, "NoEndpoints", e.ConfigFile, "serving.address", fmt.Sprintf("Outboard listens at %s, and kube-scheduler calls %s", address, u.Host),
			"only callers on the same machine or in the same pod reach a loopback address: every call fails",
			"set serving.address: 0.0.0.0:8443, with serving.tls.clientCAFile; if the Helm chart installs the file, ignore this: the chart sets serving.address")
	}
}

// onNodes reports whether a port is one that Services have on nodes, by default.
func onNodes(port int) bool { return port >= 30000 && port <= 32767 }
