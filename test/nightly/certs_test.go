package nightly

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// load calls filter repeatedly, each time on a new connection, and with certificates as
// kube-scheduler reads them.
type load struct {
	*theater.Theater
	outboard *stage.Outboard
	cancel   context.CancelFunc
	running  sync.WaitGroup
	calls    atomic.Int64
	failed   chan error
}

// start starts the callers, which read the CA at that time.
func (l *load) start(callers int) {
	l.T.Helper()
	ctx, cancel := context.WithCancel(l.Ctx)
	l.cancel = cancel
	for range callers {
		config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: l.outboard.CAFile, CertFile: l.outboard.CertFile, KeyFile: l.outboard.KeyFile}})
		if err != nil {
			l.T.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		l.running.Go(func() {
			for ctx.Err() == nil {
				if err := call(ctx, client, l.outboard.URL+"/filter"); err != nil && ctx.Err() == nil {
					select {
					case l.failed <- err:
					default: // one is enough
					}
				}
				l.calls.Add(1)
			}
		})
	}
}

func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

func call(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"u"}},"NodeNames":["a"]}`))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || !strings.Contains(string(body), `"NodeNames":["a"]`)) {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return err
}

// While kube-scheduler places pods and other callers call, the test renews the certificates, and no
// handshake fails.
func TestCertificatesAreRenewed(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	dir := t.TempDir()
	th.Command("setup", "certs", "--dir", dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	o := th.Outboard(fmt.Sprintf(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {tls: {certFile: %q, keyFile: %q, clientCAFile: %q}}
profiles: [{policies: [{type: ImageLocality}]}] # which counts no pods: no call waits for the pods of the others
`, file("server.crt"), file("server.key"), file("ca.crt")))
	config := th.Command("setup", "scheduler", o.ConfigFile, "--url", o.URL, "--certificate-dir", dir, "--strict")
	th.Scheduler(config)
	calls := &load{Theater: th, outboard: o, failed: make(chan error, 1)}
	calls.start(4)
	t.Cleanup(func() { calls.stop() })
	check := func(step string) {
		t.Helper()
		// Each caller opens a connection after the last change, and kube-scheduler places a pod.
		seen := calls.calls.Load()
		th.Eventually("new connections", func() bool { return calls.calls.Load() >= seen+200 })
		th.Bound(controlplane.PodSpec{Name: step})
		select {
		case err := <-calls.failed:
			t.Fatalf("%s: a call failed: %v", step, err)
		default:
		}
	}
	check("before")
	for i := range 3 {
		reloads := func() string { return th.Metric(o, `outboard_server_tls_reloads_total{outcome="success"} `) }
		before := reloads()
		th.Command("setup", "certs", "--dir", dir, "--renew")
		th.Eventually("the files are reloaded", func() bool { return reloads() != before })
		check(fmt.Sprintf("renewed-%d", i))
	}

	for line := range strings.Lines(th.Get(o.Admin + "/metrics")) {
		if strings.HasPrefix(line, "outboard_server_refused_callers_total{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			t.Errorf("Outboard rejected a caller: %s", line)
		}
	}
	t.Logf("%d connections", calls.calls.Load())
}
