// Package portforward sends HTTP requests to a port on the loopback address of a pod, through the
// API server and the kubelet, as kubectl port-forward does. It opens no local port, which other
// users of this machine could use.
package portforward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// protocol is that of kubectl port-forward.
const protocol = "portforward.k8s.io"

// Transport is an http.RoundTripper to one port of a pod. Each request has a connection of its own,
// which ends with the body of the response or with the context of the request.
type Transport struct {
	// Config is the client configuration of the cluster, and API the client of its core/v1 API.
	Config *rest.Config
	API    rest.Interface

	Namespace, Pod string
	Port           int
	// TLS is the configuration for https URLs.
	TLS *tls.Config
}

// RoundTrip implements http.RoundTripper. The request arrives at a loopback address of the pod, so
// its Host is localhost. If the kubelet cannot connect to the port, the error has its message.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	forwarded, err := t.connect(req.Context())
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	overForwarded := &http.Transport{
		TLSClientConfig:   t.TLS,
		DisableKeepAlives: true, // closes the connection after the response
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return forwarded, nil },
	}
	there := req.Clone(req.Context())
	there.Host = "localhost"
	res, err := overForwarded.RoundTrip(there)
	if err != nil {
		return nil, forwarded.explain(err)
	}
	return res, nil
}

// connect is dial that returns when ctx ends: requests for an upgrade do not always.
func (t *Transport) connect(ctx context.Context) (*connection, error) {
	type dialed struct {
		*connection
		error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := t.dial(ctx)
		done <- dialed{c, err}
	}()
	select {
	case d := <-done:
		return d.connection, d.error
	case <-ctx.Done():
		go func() {
			if d := <-done; d.error == nil {
				d.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// connection is a connection to a port of a pod.
type connection struct {
	net.Conn
	streams io.Closer
	refused chan string // gets one message of the kubelet, "" if there is none
}

func (t *Transport) dial(ctx context.Context) (*connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(t.Config)
	if err != nil {
		return nil, err
	}
	target := t.API.Post().Resource("pods").Namespace(t.Namespace).Name(t.Pod).SubResource("portforward").URL()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return nil, err
	}
	streams, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, req, protocol)
	if err != nil {
		return nil, err
	}
	failures, err := t.stream(streams, corev1.StreamTypeError)
	if err == nil {
		err = failures.Close() // nothing is written to it
	}
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	data, err := t.stream(streams, corev1.StreamTypeData)
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	here, there := net.Pipe()
	c := &connection{Conn: here, streams: streams, refused: make(chan string, 1)}
	go func() {
		message, _ := io.ReadAll(io.LimitReader(failures, 1<<10))
		c.refused <- strings.TrimSpace(string(message))
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
	return c, nil
}

func (t *Transport) stream(streams httpstream.Connection, kind string) (httpstream.Stream, error) {
	header := http.Header{}
	header.Set(corev1.StreamType, kind)
	header.Set(corev1.PortHeader, strconv.Itoa(t.Port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	return streams.CreateStream(header)
}

// explain returns what the kubelet reported about the connection, or err.
func (c *connection) explain(err error) error {
	c.Close()
	if message := <-c.refused; message != "" {
		return fmt.Errorf("port-forward: %s", message)
	}
	return err
}

// Close closes the connection to the API server, too.
func (c *connection) Close() error {
	return errors.Join(c.Conn.Close(), c.streams.Close())
}
