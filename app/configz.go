package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/portforward"
)

const (
	// configzTimeout bounds the request of what one kube-scheduler has loaded.
	configzTimeout = 10 * time.Second
	// maxConfigz bounds the response; a configuration has some kilobytes.
	maxConfigz = 4 << 20
)

// configz requests /configz of kube-scheduler in a pod, through a port-forward: kube-scheduler of
// kubeadm listens on the loopback address of its node, and the proxy of the API server passes no
// credentials on.
//
// kube-scheduler has a certificate that nobody can verify, so the request has no token, which the
// pod could use elsewhere. It has the client certificate of the kubeconfig, if there is one: its
// key stays here.
func configz(ctx context.Context, client *rest.Config, api kubernetes.Interface, namespace, pod string, port int) ([]byte, error) {
	config, err := rest.TLSConfigFor(client)
	if err != nil {
		return nil, err
	}
	if config == nil || config.GetClientCertificate == nil && len(config.Certificates) == 0 {
		return nil, errors.New("the kubeconfig has no client certificate, and a token is sent to the API server only")
	}
	config.InsecureSkipVerify, config.RootCAs, config.ServerName = true, nil, "localhost"
	config.NextProtos = nil // HTTP/1.1 suffices

	ctx, cancel := context.WithTimeout(ctx, configzTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost/configz", nil)
	if err != nil {
		return nil, err
	}
	forward := &portforward.Transport{Config: client, API: api.CoreV1().RESTClient(), Namespace: namespace, Pod: pod, Port: port, TLS: config}
	res, err := forward.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxConfigz))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading /configz: %w", err)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("kube-scheduler does not allow the user to get /configz (status %d)", res.StatusCode)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("/configz: status %d", res.StatusCode)
	}
	return body, nil
}
