package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// client calls like kube-scheduler's HTTPExtender: it has the same transport with two
// idle connections per host and the same headers, decodes one JSON value, and closes
// the body without reading the rest. It adds limits. Its methods may be called concurrently.
type client struct {
	http      *http.Client
	transport *http.Transport
	url       string

	calls, connections atomic.Int64
}

// newClient returns a client of the address. With https and no CA it verifies
// nothing, because kube-scheduler with enableHTTPS does not either.
func newClient(address string, https bool, tls rest.TLSClientConfig, timeout time.Duration) (*client, error) {
	transport := &http.Transport{}
	if https {
		if tls.CAFile == "" && len(tls.CAData) == 0 {
			tls.Insecure = true
		}
		config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: tls})
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		transport.TLSClientConfig = config
	}
	transport = utilnet.SetTransportDefaults(transport)
	return &client{
		http:      &http.Client{Transport: transport, Timeout: timeout},
		transport: transport,
		url:       strings.TrimRight(address, "/"),
	}, nil
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// proxy returns the proxy that calls go through, "" for none.
func (c *client) proxy() string {
	request, err := http.NewRequest(http.MethodPost, c.url, nil)
	if err != nil || c.transport.Proxy == nil {
		return ""
	}
	if proxy, err := c.transport.Proxy(request); err == nil && proxy != nil {
		return proxy.Redacted()
	}
	return ""
}

// failure is how a call ended without a response to check.
type failure int

const (
	responded failure = iota
	notAsked          // the run is over, or the verb has had too many timeouts
	noReply           // refused, reset, cut off
	late              // not complete within the timeout
	tooLarge          // longer than the request's limit
	badStatus         // complete, not 200
	notJSON           // 200, and the body is not of the verb's type
)

// response is what came back. result is set when failure is responded.
type response struct {
	failure failure
	err     error
	result  result

	status     int
	proto      string
	chunked    bool // no exact Content-Length
	size       int64
	head       []byte // the beginning of the body
	redirected string // the method and path of the last request, if there was a redirect
	newConn    bool
}

var (
	errTooLarge = errors.New("the response is too large")
	errTooMany  = errors.New("the response lists many times more nodes than the request")
)

// ask sends the request once. It limits the size of the response, and the text that it keeps.
func (c *client) ask(ctx context.Context, q *request) response {
	var a response
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.newConn = a.newConn || !info.Reused
	}})
	request, err := http.NewRequestWithContext(ctx, q.httpMethod(), c.url+"/"+q.path, q.reader())
	if err != nil {
		return response{failure: noReply, err: err}
	}
	request.Header.Set("Content-Type", "application/json")

	c.calls.Add(1)
	response, err := c.http.Do(request)
	if err != nil {
		a.fail(ctx, err)
	}
	// With TLS 1.3, the client's handshake ends before the server checks the client certificate:
	// the first read fails if the server refuses.
	if a.newConn && (a.failure != noReply || request.URL.Scheme != "https") {
		c.connections.Add(1)
	}
	if err != nil {
		return a
	}
	defer response.Body.Close()

	a.status, a.proto = response.StatusCode, response.Proto
	a.chunked = response.ContentLength < 0
	if last := response.Request; last.URL.String() != request.URL.String() || last.Method != request.Method {
		a.redirected = last.Method + " " + last.URL.Path
	}
	body := &meter{reader: response.Body, limit: q.responseLimit(), head: &a.head}
	if a.status != http.StatusOK {
		body.limit = headSize
		_, _ = io.Copy(io.Discard, body)
		a.failure, a.size = badStatus, body.size
		return a
	}
	var value json.RawMessage
	err = json.NewDecoder(body).Decode(&value)
	a.size = body.size
	switch {
	case body.err != nil:
		a.fail(ctx, body.err)
	case err != nil:
		a.failure, a.err = notJSON, err
	default:
		if a.result, err = q.decode(value); err != nil {
			a.failure, a.err = notJSON, err
			if errors.Is(err, errTooMany) || errors.Is(err, errTooLarge) {
				a.failure = tooLarge
			}
		}
	}
	return a
}

func (a *response) fail(ctx context.Context, err error) {
	var timeout net.Error
	a.failure, a.err = noReply, err
	switch {
	case ctx.Err() != nil:
		a.failure = notAsked
	case errors.Is(err, errTooLarge):
		a.failure = tooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		a.failure = late
	}
}

// got describes the response in one line, for the report.
func (a *response) got() string {
	switch {
	case a.failure == notAsked:
		return "not called"
	case a.status == 0:
		return printable("no response: " + a.err.Error())
	}
	text := fmt.Sprintf("%d %s, %d bytes", a.status, http.StatusText(a.status), a.size)
	if a.redirected != "" {
		text += ", redirected to " + a.redirected
	}
	if len(a.head) > 0 {
		text += ": " + shorten(strings.TrimSpace(string(a.head)))
	}
	if a.err != nil {
		text += " (" + shorten(a.err.Error()) + ")"
	}
	return printable(text)
}

func shorten(text string) string {
	const limit = 160
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit]) + "…"
}

// printable prevents an extender from sending control characters to the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

const headSize = 1 << 10

// meter reads up to limit bytes, keeps the first ones, and records the error that
// ended reading before the end of the body.
type meter struct {
	reader io.Reader
	limit  int64
	size   int64
	head   *[]byte
	err    error
}

func (m *meter) Read(p []byte) (int, error) {
	if m.size >= m.limit {
		m.err = errTooLarge
		return 0, errTooLarge
	}
	n, err := m.reader.Read(p[:min(int64(len(p)), m.limit-m.size)])
	m.size += int64(n)
	if room := headSize - len(*m.head); room > 0 {
		*m.head = append(*m.head, p[:min(n, room)]...)
	}
	if err != nil && err != io.EOF {
		m.err = err
	}
	return n, err
}
