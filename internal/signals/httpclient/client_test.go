package httpclient_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get makes one request, and returns the content or the error.
func get(t *testing.T, c httpclient.Config, url string) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	must(t, err)
	content, err := ask(t.Context(), c, request)
	if err != nil {
		return "error: " + err.Error()
	}
	return content
}

// ask sends the request, and returns the content.
func ask(ctx context.Context, c httpclient.Config, request *http.Request) (string, error) {
	answer, err := httpclient.New(c).Do(ctx, request, signal.Limits{Bytes: 1000})
	if err != nil {
		return "", err
	}
	defer answer.Close()
	if err := answer.Check(); err != nil {
		return "", err
	}
	content, err := io.ReadAll(answer.Body)
	return string(content), err
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	fmt.Fprintf(w, "%s|%s|%s", r.Header.Get("Authorization"), user, password)
}

// TestCredentials: each request reads the credentials, so rotated ones take effect.
func TestCredentials(t *testing.T) {
	server := serve(t, echo)
	expect(t, "nothing", get(t, httpclient.Config{}, server.URL), "||")
	token := httpclient.Config{BearerTokenFile: file(t, "first\n")}
	expect(t, "a token", get(t, token, server.URL), "Bearer first|")
	must(t, os.WriteFile(token.BearerTokenFile, []byte("second"), 0o600))
	expect(t, "another token", get(t, token, server.URL), "Bearer second|")
	basic := httpclient.Config{Username: "ann", PasswordFile: file(t, "pass: word\r\n")}
	expect(t, "a password", get(t, basic, server.URL), "|ann|pass: word")
	for _, text := range []string{"", "\n", "a\nb"} {
		c := httpclient.Config{BearerTokenFile: file(t, text)}
		expect(t, fmt.Sprintf("token %q", text), get(t, c, server.URL), "error: bearerTokenFile: "+c.BearerTokenFile+" must contain one line of text")
	}
	expect(t, "no token", get(t, httpclient.Config{BearerTokenFile: "/nowhere"}, server.URL), "error: bearerTokenFile must be the path of a file: no such file")
	expect(t, "an endless token", get(t, httpclient.Config{BearerTokenFile: "/dev/zero"}, server.URL), "is not a regular file")
}

// TestNoSecretInErrors: errors contain no secret, even if the server's response repeats the
// request, truncated anywhere.
func TestNoSecretInErrors(t *testing.T) {
	const secret = "correcthorsebatterystaple"
	for name, c := range map[string]httpclient.Config{
		"bearer": {BearerTokenFile: file(t, secret)},
		"basic":  {Username: "ann", PasswordFile: file(t, secret)},
	} {
		for _, fill := range []int{0, 180, 190} {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, password, _ := r.BasicAuth()
				http.Error(w, strings.Repeat("x", fill)+" refused: "+r.Header.Get("Authorization")+" "+password, http.StatusForbidden)
			})
			got := get(t, c, server.URL+"/?key=topsecret")
			expect(t, name, got, "error: 403 Forbidden: ")
			for _, part := range []string{secret[:8], "topsecret", "YW5uOmNv"} {
				if strings.Contains(got, part) {
					t.Errorf("%s: %q is in the error %q", name, part, got)
				}
			}
		}
	}
	got := get(t, httpclient.Config{BearerTokenFile: file(t, secret)}, "http://127.0.0.1:1/?key=topsecret")
	expect(t, "no server", got, "error: dial tcp 127.0.0.1:1")
	if strings.Contains(got, "topsecret") {
		t.Errorf("the query is in the error %q", got)
	}
}

func TestRedirects(t *testing.T) {
	var asked atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/there":
			echo(w, r)
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		default:
			http.Redirect(w, r, other.URL+"/?key=topsecret", http.StatusTemporaryRedirect)
		}
	})
	c := httpclient.Config{BearerTokenFile: file(t, "token")}
	expect(t, "to itself", get(t, c, server.URL+"/here"), "Bearer token")
	expect(t, "in a circle", get(t, c, server.URL+"/around"), "error: more than 5 redirects")
	got := get(t, c, server.URL+"/away")
	expect(t, "to another", got, "error: redirected to "+other.URL+": if that is correct, configure it")
	if asked.Load() > 0 || strings.Contains(got, "topsecret") {
		t.Errorf("the other server got %d requests: %s", asked.Load(), got)
	}
}

// TestLength: the limit applies to the uncompressed response, and the client reads no more than
// that.
func TestLength(t *testing.T) {
	const mib = 1 << 20
	var sent atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var to io.Writer = w
		if r.URL.Path == "/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			defer zip.Close()
			to = zip
		}
		if r.URL.Path == "/just" {
			io.WriteString(w, strings.Repeat("x", 1000))
			return
		}
		zeros := make([]byte, mib)
		for range 100 {
			n, err := to.Write(zeros)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	if got := get(t, httpclient.Config{}, server.URL+"/just"); len(got) != 1000 {
		t.Errorf("a response of exactly the maximum length: %s", got)
	}
	for _, path := range []string{"/long", "/bomb"} {
		request, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		must(t, err)
		if _, err := ask(t.Context(), httpclient.Config{}, request); !errors.Is(err, signal.ErrTooLong) {
			t.Errorf("%s: %v", path, err)
		}
	}
	header := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", strings.Repeat("x", mib)) })
	expect(t, "a long header", get(t, httpclient.Config{}, header.URL), "error: ")
}

func TestHangEndsWithTheContext(t *testing.T) {
	cause := errors.New("no response within 10s")
	for _, head := range []string{"", "begin"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if io.WriteString(w, head); head != "" {
				w.(http.Flusher).Flush()
			}
			cancel(cause)
			<-r.Context().Done()
		})
		request, err := http.NewRequest(http.MethodGet, server.URL, nil)
		must(t, err)
		if _, err := ask(ctx, httpclient.Config{}, request); !errors.Is(err, cause) {
			t.Errorf("after %q: %v", head, err)
		}
	}
}

// TestTLS: the trusted CAs and the client certificate follow their files.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	authority := func(name string) *certs.Authority {
		a, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: name})
		must(t, err)
		return a
	}
	ours, others := authority("ours"), authority("others")
	issue := func(a *certs.Authority, r certs.Request, cert, key string) certs.Pair {
		pair, err := a.Issue(r)
		must(t, err)
		must(t, pair.WriteFiles(path(cert), path(key)))
		return pair
	}
	serving := issue(ours, certs.Request{CommonName: "server", Hosts: []string{"127.0.0.1"}, Server: true}, "s.crt", "s.key")
	issue(others, certs.Request{CommonName: "old", Client: true}, "c.crt", "c.key")
	must(t, others.Pair().WriteFiles(path("ca.crt"), path("ca.key")))

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	must(t, err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ours.Pair().Cert)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)

	c := httpclient.Config{CAFile: path("ca.crt"), CertFile: path("c.crt"), KeyFile: path("c.key")}
	expect(t, "an authority that did not sign it", get(t, c, server.URL), "certificate signed by unknown authority")
	must(t, ours.Pair().WriteFiles(path("ca.crt"), path("ca.key")))
	expect(t, "a client it does not know", get(t, c, server.URL), "remote error: tls: ") // net/http may wrap the error, depending on what it notices first
	issue(ours, certs.Request{CommonName: "new", Client: true}, "c.crt", "c.key")
	expect(t, "all right", get(t, c, server.URL), "new")
	expect(t, "another name", get(t, c, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)), "wanted to match localhost")
	must(t, os.WriteFile(path("ca.crt"), []byte("nothing"), 0o600))
	expect(t, "no authority", get(t, c, server.URL), "error: caFile: "+path("ca.crt")+" contains no certificate")
	c.CAFile, c.KeyFile = "", "/nowhere"
	expect(t, "no key", get(t, c, server.URL), "error: certFile and keyFile: open /nowhere")
}
