package httpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode"

	"outboard.dev/outboard/signal"
)

const (
	// maxRedirects is the maximum number of redirects.
	maxRedirects = 5
	// maxHeader bounds the header of a response, in bytes.
	maxHeader = 256 << 10
	// maxSecret bounds the length of a token or a password.
	maxSecret = 64 << 10
	// maxStart bounds the part of a response that may be quoted, in bytes: a secret in it is hidden
	// as a whole.
	maxStart = maxSecret
	// maxExcerpt bounds the part of a response in an error, in bytes.
	maxExcerpt = 200
)

// Client sends requests. It is safe for concurrent use.
type Client struct{ config Config }

// New returns a Client. The configuration is valid; its files are not read yet.
func New(c Config) *Client { return &Client{c} }

// Response is the response of a server.
type Response struct {
	Response *http.Response
	// Body is the decompressed content. It has at most the bytes of the limits, and ends with the
	// context of the request.
	Body io.Reader

	start   []byte // of what was read
	secrets []string
}

// Do sends the request. It returns the response whatever its status. The caller reads its Body, and
// closes it.
func (c *Client) Do(ctx context.Context, req *http.Request, limits signal.Limits) (*Response, error) {
	who, err := c.credentials()
	if err != nil {
		return nil, err
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport, CheckRedirect: sameHost}
	req = req.Clone(ctx)
	req.Header.Set("User-Agent", "outboard")
	if who.authorization != "" {
		req.Header.Set("Authorization", who.authorization)
	}
	response, err := client.Do(req)
	if err != nil {
		return nil, who.clean(reason(ctx, err))
	}
	r := &Response{Response: response, secrets: who.secrets}
	r.Body = &body{ctx, who, limits.Reader(response.Body), r}
	return r, nil
}

// Close ends the response.
func (r *Response) Close() { _ = r.Response.Body.Close() } // what was read is good

// body is the content of an Response, which remembers its start.
type body struct {
	ctx  context.Context
	who  credentials
	from io.Reader
	of   *Response
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.of.start = append(b.of.start, p[:min(n, maxStart-len(b.of.start))]...)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.who.clean(reason(b.ctx, err))
	}
	return n, err
}

// reason returns why a request failed, without the URL that http.Client adds.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// sameHost permits redirects only to the same host.
func sameHost(to *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if from := via[0].URL; to.URL.Scheme != from.Scheme || to.URL.Host != from.Host {
		return fmt.Errorf("redirected to %s://%s: if that is correct, configure it as the address", to.URL.Scheme, to.URL.Host)
	}
	return nil
}

// credentials authenticate a request.
type credentials struct {
	authorization string
	secrets       []string // texts that must not be shown
}

func (c *Client) credentials() (credentials, error) {
	switch {
	case c.config.BearerTokenFile != "":
		token, err := readSecret("bearerTokenFile", c.config.BearerTokenFile)
		return credentials{"Bearer " + token, []string{token}}, err
	case c.config.PasswordFile != "":
		password, err := readSecret("passwordFile", c.config.PasswordFile)
		encoded := base64.StdEncoding.EncodeToString([]byte(c.config.Username + ":" + password))
		return credentials{"Basic " + encoded, []string{encoded, password}}, err
	}
	return credentials{}, nil
}

// readSecret reads a file with one line.
func readSecret(field, file string) (string, error) {
	data, err := readFile(file, maxSecret)
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return "", fmt.Errorf("%s must be the path of a file: %w", field, path.Err) // without the path, which may be the secret itself
	} else if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" || strings.ContainsFunc(secret, unicode.IsControl) {
		return "", fmt.Errorf("%s: %s must contain one line of text", field, file)
	}
	return secret, nil
}

func readFile(name string, maxBytes int64) ([]byte, error) {
	// Check before opening, because opening a named pipe waits for its writer.
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", name, maxBytes)
	}
	return os.ReadFile(name)
}

// clean removes secrets from the text of an error.
func (c credentials) clean(err error) error {
	if text := hide(err.Error(), c.secrets); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func hide(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}

func (c *Client) transport() (*http.Transport, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.config.CAFile != "" {
		pem, err := os.ReadFile(c.config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile: %s contains no certificate", c.config.CAFile)
		}
	}
	if c.config.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.config.CertFile, c.config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certFile and keyFile: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        settings,
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// Check returns an error unless the status is 200 OK.
func (r *Response) Check() error {
	code := r.Response.StatusCode
	if code == http.StatusOK {
		return nil
	}
	text := strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
	if excerpt := r.Excerpt(); excerpt != "" {
		text += ": " + excerpt
	}
	return errors.New(text)
}

// Excerpt returns the start of the response, as one line.
func (r *Response) Excerpt() string {
	_, _ = io.CopyN(io.Discard, r.Body, int64(maxStart-len(r.start))) // what there is of it
	return r.Line(string(r.start))
}

// Line returns text of the server in a form for errors: short, one line, and without secrets.
func (r *Response) Line(text string) string {
	text = hide(strings.ToValidUTF8(text, "?"), r.secrets)
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	text = strings.Join(words, " ")
	if len(text) > maxExcerpt {
		return strings.ToValidUTF8(text[:maxExcerpt], "") + "…"
	}
	return text
}

// Address returns the URL in a form for errors and logs: without user, query and fragment.
func Address(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
