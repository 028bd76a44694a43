package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
)

const (
	// configzTimeout bounds the request of what one kube-scheduler has loaded.
	configzTimeout = 10 * time.Second
	// maxConfigz bounds the response; a configuration has some kilobytes.
	maxConfigz = 4 << 20
	// portForwardProtocol is that of kubectl port-forward.
	portForwardProtocol = "portforward.k8s.io"
)

// configz requests /configz of kube-scheduler in a pod, through a port-forward: kube-scheduler of kubeadm listens on the loopback address
// of its node, and the proxy of the API server passes no credentials on.
//
// kube-scheduler has a certificate that nobody can verify, so the request has no token, which the pod could use elsewhere. It has
// the client certificate of the kubeconfig, if there is one: its key stays here.
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
	forwarded, err := forward(ctx, client, api, namespace, pod, port)
	if err != nil {
		return nil, err
	}
	defer forwarded.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost/configz", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:   config,
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return forwarded, nil },
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, forwarded.explain(err)
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

// forwardedConn is a connection to a port of a pod.
type forwardedConn struct {
	net.Conn
	connection io.Closer
	refused    chan string // gets one message of the kubelet, "" if there is none
}

// forward connects to a port on the loopback address of a pod.
func forward(ctx context.Context, client *rest.Config, api kubernetes.Interface, namespace, pod string, port int) (*forwardedConn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(client)
	if err != nil {
		return nil, err
	}
	request := api.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, request.URL().String(), nil)
	if err != nil {
		return nil, err
	}
	connection, _, err := spdy.Negotiate(upgrader, &http.Client{Transport: transport}, req, portForwardProtocol)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	stream := func(kind string) (io.ReadWriteCloser, error) {
		header := http.Header{}
		header.Set(corev1.StreamType, kind)
		header.Set(corev1.PortHeader, strconv.Itoa(port))
		header.Set(corev1.PortForwardRequestIDHeader, "0")
		return connection.CreateStream(header)
	}
	failures, err := stream(corev1.StreamTypeError)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("port-forward: %w", err), connection.Close())
	}
	data, err := stream(corev1.StreamTypeData)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("port-forward: %w", err), connection.Close())
	}
	here, there := net.Pipe()
	forwarded := &forwardedConn{Conn: here, connection: connection, refused: make(chan string, 1)}
	go func() {
		message, _ := io.ReadAll(io.LimitReader(failures, 1<<10))
		forwarded.refused <- strings.TrimSpace(string(message))
		if len(message) > 0 {
			there.Close()
		}
	}()
	go func() {
		_, _ = io.Copy(data, there) // the other direction reports the error
		data.Close()
	}()
	go func() {
		_, _ = io.Copy(there, data)
		there.Close()
	}()
	return forwarded, failures.Close() // nothing is written to it
}

// explain returns what the kubelet reported about the connection, or err.
func (c *forwardedConn) explain(err error) error {
	c.Close()
	if message := <-c.refused; message != "" {
		return fmt.Errorf("port-forward: %s", message)
	}
	return err
}

// Close closes the connection to the API server, too.
func (c *forwardedConn) Close() error {
	return errors.Join(c.Conn.Close(), c.connection.Close())
}
