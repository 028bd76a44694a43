package wiring

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/config"
)

// Topology is where kube-scheduler and Outboard run, relative to each other.
type Topology string

// The topologies.
const (
	// SameHost is kube-scheduler on the host of Outboard, or wherever Options.URL is reached from.
	SameHost Topology = ""
	// Kubeadm is the cluster's own kube-scheduler, a static pod that kubeadm manages.
	Kubeadm Topology = "kubeadm"
	// Sidecar is a second kube-scheduler in the pod of Outboard.
	Sidecar Topology = "sidecar"
	// Service is a second kube-scheduler in a pod that calls the Service of Outboard.
	Service Topology = "service"
	// NodePort is a kube-scheduler on the network of its host that calls a NodePort of Outboard.
	NodePort Topology = "nodeport"
)

// Topologies returns all but SameHost.
func Topologies() []Topology { return []Topology{Kubeadm, Sidecar, Service, NodePort} }

const (
	// Directory is where kube-scheduler finds its configuration and certificates on a host or in a
	// pod, unless Options say otherwise.
	Directory = "/etc/kubernetes/outboard"
	// Namespace is the namespace of Outboard in the manifests.
	Namespace = "outboard-system"
	// DefaultNodePort is the port of 127.0.0.1 in the topology NodePort.
	DefaultNodePort = 32766
	// secondScheduler is the default name of a second scheduler.
	secondScheduler = "outboard-scheduler"
	// defaultScheduler is the name of the cluster's own scheduler, which pods without a name have.
	defaultScheduler = "default-scheduler"
)

// ServiceName is the DNS name of Outboard's Service in a namespace.
func ServiceName(namespace string) string { return "outboard." + namespace + ".svc" }

// ServerNames are the hosts for which Outboard's certificate is unless others are given: its
// Service in a namespace, and loopback.
func ServerNames(namespace string) []string {
	return []string{ServiceName(namespace), "localhost", "127.0.0.1", "::1"}
}

// Certificates are the files of certificates as kube-scheduler sees them.
type Certificates struct{ CA, Cert, Key string }

// CertificateNames returns the names of the files of certificates. mounted is true for a
// kube-scheduler in a pod that mounts a Secret.
func CertificateNames(mounted bool) Certificates {
	if mounted {
		return Certificates{CA: "ca.crt", Cert: "tls.crt", Key: "tls.key"} // as in a Secret of type kubernetes.io/tls
	}
	return Certificates{CA: "ca.crt", Cert: "client.crt", Key: "client.key"} // as outboard setup certs writes them
}

// second says whether the topology always has a kube-scheduler beside the cluster's own, in a pod
// with a mounted Secret.
func (t Topology) second() bool { return t == Sidecar || t == Service }

// url returns where kube-scheduler reaches Outboard in the topology. namespace is Outboard's.
func (t Topology) url(s *config.Serving, namespace string) (string, error) {
	scheme := "http"
	if s.TLS != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return "", fmt.Errorf("serving.address: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	everywhere := host == "" || err == nil && ip.IsUnspecified()
	switch {
	case t == Service:
		return scheme + "://" + ServiceName(namespace), nil
	case t == NodePort:
		return fmt.Sprintf("%s://127.0.0.1:%d", scheme, DefaultNodePort), nil
	case port == "0":
		return "", fmt.Errorf("serving.address is %s, a port that is chosen at the start: give the URL with --url", s.Address)
	case everywhere && t == Sidecar:
		host = "127.0.0.1"
	case everywhere && t == Kubeadm:
		return "", fmt.Errorf("serving.address is %s: give the URL by which kube-scheduler reaches Outboard with --url. A static pod has no cluster DNS, so it is the ClusterIP of the Service, or https://127.0.0.1:%s if Outboard runs as a static pod beside kube-scheduler", s.Address, port)
	case everywhere:
		return "", fmt.Errorf("serving.address is %s: give the URL by which kube-scheduler reaches Outboard with --url, or where kube-scheduler runs with --for", s.Address)
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// remote says whether kube-scheduler calls from another host or pod than Outboard's.
func (o *Options) remote() bool {
	if o.URL == "" || o.For.ofCluster() {
		return o.For.ofCluster()
	}
	u, err := url.Parse(o.URL)
	return err == nil && !isLoopback(u.Hostname()) // checkURL reports the error
}

// ownHostOnly is about an Outboard that listens at a loopback address, which this kube-scheduler
// does not reach. It returns an error if no call can arrive, and a note if something else may set
// the address or forward the calls: the chart does the former with any file, and a file with
// serving.tls is not meant for the chart alone.
func (o *Options) ownHostOnly(s *config.Serving) (note string, err error) {
	host, _, invalid := net.SplitHostPort(s.Address)
	if invalid != nil || !isLoopback(host) || !o.remote() {
		return "", nil
	}
	problem := fmt.Sprintf("serving.address is %s, a loopback address, which only callers on the same machine or in the same pod reach: ", s.Address)
	const fix = "set serving.address: 0.0.0.0:8443"
	switch {
	case o.For.ofCluster() && s.TLS != nil:
		return "", errors.New(problem + fix)
	case s.TLS != nil:
		return problem + fix + ", unless something on the machine of Outboard forwards the calls", nil
	}
	return problem + fix + " with serving.tls, unless the Helm chart installs the file: the chart sets both", nil
}

// ofCluster says whether kube-scheduler calls a Service of Outboard, by its name or at a port of a
// node.
func (t Topology) ofCluster() bool { return t == Service || t == NodePort }

// isLoopback says whether only callers on the same machine reach the host.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}

// serverName returns the name in Outboard's certificate if the URL has an IP address that is not in
// it: certificates are issued for the name of the Service, which does not change with its
// ClusterIP. A NodePort is on loopback, but not all certificates have that.
func (t Topology) serverName(prefix, namespace string) string {
	u, err := url.Parse(prefix)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil || t != NodePort && slices.Contains(ServerNames(namespace), ip.String()) {
		return ""
	}
	return ServiceName(namespace)
}

// checkURL returns an error unless text is a URL of a host without a path. Its errors are those of
// the flag --url.
func checkURL(text string, s *config.Serving) error {
	u, err := url.Parse(text)
	rule := ""
	var unparsed *url.Error
	switch {
	case errors.As(err, &unparsed) && !strings.Contains(text, "://"):
		rule = "must begin with http:// or https://"
	case errors.As(err, &unparsed):
		rule = unparsed.Err.Error()
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		rule = "must be http://HOST:PORT or https://HOST:PORT; paths are those of the profiles"
	case u.Scheme == "http" && s.TLS != nil && s.TLS.CertFile == "":
		rule = "must be https://: the configuration serves its own host only, and the chart adds serving.tls to it"
	case u.Scheme == "http" && s.TLS != nil:
		rule = "must be https://, because the configuration has serving.tls"
	case u.Scheme == "https" && s.TLS == nil:
		rule = "must be http://, because the configuration has no serving.tls"
	}
	if rule != "" {
		return fmt.Errorf("--url=%q: %s", text, rule)
	}
	return nil
}
