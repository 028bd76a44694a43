package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// SchedulerConfig returns the KubeSchedulerConfiguration with the address and certificate files of
// o in every extender, and without what belongs to another cluster. It keeps paths.
func (o *Outboard) SchedulerConfig(config string) (string, error) {
	return o.schedulerConfig(config, func(string) bool { return true })
}

// schedulerConfig is SchedulerConfig, but changes only the extenders whose URL prefix own accepts.
func (o *Outboard) schedulerConfig(config string, own func(urlPrefix string) bool) (string, error) {
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(config), &parsed); err != nil {
		return "", fmt.Errorf("kube-scheduler's configuration: %w", err)
	}
	extenders, err := extendersOf(parsed)
	if err != nil {
		return "", err
	}
	for _, extender := range extenders {
		prefix := fmt.Sprint(extender["urlPrefix"])
		if !own(prefix) {
			continue
		}
		_, path, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(prefix, "http://"), "https://"), "/")
		extender["urlPrefix"] = o.URL + "/" + path
		if o.CAFile != "" {
			extender["enableHTTPS"] = true
			extender["tlsConfig"] = map[string]any{"caFile": o.CAFile, "certFile": o.CertFile, "keyFile": o.KeyFile}
		}
	}
	return withoutCluster(parsed)
}

// WithoutCluster returns the KubeSchedulerConfiguration without what belongs to the cluster that it was written for.
func WithoutCluster(config string) (string, error) {
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(config), &parsed); err != nil {
		return "", fmt.Errorf("kube-scheduler's configuration: %w", err)
	}
	return withoutCluster(parsed)
}

// withoutCluster removes leases, their namespace and the kubeconfig.
func withoutCluster(config map[string]any) (string, error) {
	delete(config, "leaderElection")
	if connection, ok := config["clientConnection"].(map[string]any); ok {
		delete(connection, "kubeconfig")
	}
	text, err := yaml.Marshal(config)
	return string(text), err
}

func extendersOf(config map[string]any) (extenders []map[string]any, _ error) {
	list, _ := config["extenders"].([]any)
	for _, e := range list {
		extender, ok := e.(map[string]any)
		if !ok {
			return nil, errors.New("kube-scheduler's configuration: an extender is not a mapping")
		}
		extenders = append(extenders, extender)
	}
	return extenders, nil
}

// Address returns the address at which Outboard serves according to its configuration.
func (e *Example) Address() (string, error) {
	var config struct {
		Serving struct {
			Address string
			TLS     *struct{}
		}
	}
	if err := yaml.Unmarshal([]byte(e.Outboard), &config); err != nil {
		return "", fmt.Errorf("outboard's configuration: %w", err)
	}
	switch {
	case config.Serving.Address != "":
		return config.Serving.Address, nil
	case config.Serving.TLS != nil: // the defaults
		return "127.0.0.1:8443", nil
	}
	return "127.0.0.1:8888", nil
}

// calls reports whether requests to the URL from this machine go to a server at the address.
func calls(rawURL, address string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	return err == nil && portOf(u) == port && (u.Hostname() == host || isLocal(u.Hostname()) && isLocal(host))
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// isLocal reports whether a server at the host, or a client that calls the host, is on this machine for certain.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip.IsLoopback() || ip.IsUnspecified()
}

// awaitForeign returns an error if an extender that is not Outboard, and without which kube-scheduler places no pod, does not listen.
func (e *Example) awaitForeign(ctx context.Context) error {
	address, err := e.Address()
	if err != nil {
		return err
	}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(e.Scheduler), &parsed); err != nil {
		return fmt.Errorf("kube-scheduler's configuration: %w", err)
	}
	extenders, err := extendersOf(parsed)
	if err != nil {
		return err
	}
	for i, extender := range extenders {
		prefix := fmt.Sprint(extender["urlPrefix"])
		u, err := url.Parse(prefix)
		if err != nil || calls(prefix, address) || extender["ignorable"] == true {
			continue // what is no URL, kube-scheduler reports
		}
		dialer := net.Dialer{Timeout: 5 * time.Second}
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), portOf(u)))
		if err != nil {
			return fmt.Errorf("scheduler.yaml: extenders[%d]: nothing listens at %s (%w): start that extender first. "+
				"If it should be Outboard, which serves at %s, correct urlPrefix or serving.address in outboard.yaml", i, prefix, err, address)
		}
		connection.Close()
	}
	return nil
}
