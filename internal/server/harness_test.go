package server_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/lastevent"
	"outboard.dev/outboard/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A replica is a running server of a test.
type replica struct {
	*server.Server
	addr     string
	adminURL string
	registry *prometheus.Registry
	log      *logBook
	stop     context.CancelFunc
	ended    chan struct{}
	err      error // valid after ended is closed
}

// start runs a server on free ports until the end of the test or a call of stop. Without
// ShutdownDelay there is no delay. Other times that the test does not set are so long that they do
// not end on a busy machine.
func start(t testing.TB, opts server.Options, adjust ...func(*server.Server)) *replica {
	t.Helper()
	r := &replica{registry: prometheus.NewRegistry(), log: newLogBook(), ended: make(chan struct{})}
	opts.Address, opts.Admin.Address = "127.0.0.1:0", cmp.Or(opts.Admin.Address, "127.0.0.1:0")
	for _, d := range []*time.Duration{&opts.ReadHeaderTimeout, &opts.BodyTimeout, &opts.BusyTimeout, &opts.DrainTimeout} {
		*d = cmp.Or(*d, 2*time.Minute)
	}
	opts.Logger = slog.New(r.log)
	opts.Registerer, opts.Admin.Gatherer = r.registry, r.registry
	if opts.ShutdownDelay == 0 {
		opts.ShutdownDelay = -1
	}
	var err error
	if r.Server, err = server.New(opts); err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(); err != nil {
		t.Fatal(err)
	}
	for _, f := range adjust {
		f(r.Server)
	}
	if r.adminURL = "http://" + r.AdminAddr().String(); opts.Handler != nil {
		r.addr = r.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		r.err = r.Run(ctx)
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// metric returns the value of a counter or gauge, with a label value if it has a label.
func (r *replica) metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if len(label) == 0 || hasLabel(m, label[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s%q", name, label)
	return 0
}

// example returns the example of a counter with the label value.
func (r *replica) example(t testing.TB, name, label string) (example string) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabel(m, label) {
				_, example = lastevent.Latest(m.GetCounter())
			}
		}
	}
	return example
}

func hasLabel(m *dto.Metric, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetValue() == value {
			return true
		}
	}
	return false
}

// A logBook is a slog.Handler that keeps the records and can wait for a record.
type logBook struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with every line
}

func newLogBook() *logBook { return &logBook{more: make(chan struct{})} }

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logBook) WithGroup(string) slog.Handler            { return b }

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	close(b.more)
	b.more = make(chan struct{})
	return nil
}

func (b *logBook) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

// wait blocks until n lines contain the text, and returns the last of them.
func (b *logBook) wait(t testing.TB, text string, n int) string {
	t.Helper()
	for {
		b.mu.Lock()
		found, last := 0, ""
		for _, line := range b.lines {
			if strings.Contains(line, text) {
				found, last = found+1, line
			}
		}
		more := b.more
		b.mu.Unlock()
		if found >= n {
			return last
		}
		select {
		case <-more:
		case <-time.After(time.Minute):
			t.Fatalf("the log does not hold %q %d times:\n%s", text, n, b.all())
		}
	}
}

// A pki holds the files of a server and the authorities of both sides.
type pki struct {
	serverCA, clientCA *certs.Authority
	dir                string
}

func newPKI(t testing.TB) *pki {
	t.Helper()
	p := &pki{serverCA: newAuthority(t), clientCA: newAuthority(t), dir: t.TempDir()}
	p.writeServerPair(t)
	p.writeClientCA(t, p.clientCA)
	return p
}

func newAuthority(t testing.TB) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) options(allowed ...string) *server.TLSOptions {
	return &server.TLSOptions{
		CertFile: p.file("tls.crt"), KeyFile: p.file("tls.key"), ClientCAFile: p.file("ca.crt"), AllowedClients: allowed,
		ReloadInterval: 20 * time.Millisecond,
	}
}

func (p *pki) writeServerPair(t testing.TB, change ...func(*certs.Request)) {
	t.Helper()
	request := certs.Request{CommonName: "outboard", Server: true, Hosts: []string{"127.0.0.1"}}
	for _, f := range change {
		f(&request)
	}
	pair, err := p.serverCA.Issue(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.WriteFiles(p.file("tls.crt"), p.file("tls.key")); err != nil {
		t.Fatal(err)
	}
}

func (p *pki) writeClientCA(t testing.TB, authorities ...*certs.Authority) {
	t.Helper()
	var bundle certs.Pair
	for _, a := range authorities {
		bundle.Cert = append(bundle.Cert, a.Pair().Cert...)
	}
	if err := bundle.WriteFiles(p.file("ca.crt"), p.file("unused.key")); err != nil {
		t.Fatal(err)
	}
}

func (p *pki) issue(t testing.TB, by *certs.Authority, req certs.Request) *tls.Certificate {
	t.Helper()
	pair, err := by.Issue(req)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &cert
}

// config returns the TLS configuration of a client, with or without a certificate.
func (p *pki) config(cert *tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.serverCA.Pair().Cert)
	config := &tls.Config{RootCAs: roots}
	if cert != nil {
		// The client sends it for any authorities that the server names, as a hostile client would.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return config
}

// newClient returns a client with its own connections.
func newClient(t testing.TB, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// post sends a body and returns the status and the body of the response.
func post(client *http.Client, url, body string) (int, string, error) {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

func mustPost(t testing.TB, client *http.Client, url, body string, wantStatus int) string {
	t.Helper()
	status, answer, err := post(client, url, body)
	if err != nil || status != wantStatus {
		t.Fatalf("POST %s = %d %q, %v; want status %d", url, status, answer, err, wantStatus)
	}
	return answer
}

// get sends a GET request to the admin listener.
func (r *replica) get(t testing.TB, path string) (int, string) {
	t.Helper()
	// A connection for each request, so that none stays open after the test.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(r.adminURL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo responds with the body that it read, or with the error, as the real handler does.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fmt.Fprintf(w, "Error: %v", err)
		return
	}
	_, _ = w.Write(body)
})
