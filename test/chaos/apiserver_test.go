package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// apiServer is the API server as one replica sees it: a proxy that holds a request at a given point.
type apiServer struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	mu      sync.Mutex
	trap    *trap
	ledgers map[string]*ledger.Object // as last written by the replica
	refused map[string]bool           // pods of which a Binding was rejected, by name
}

// trap holds the request that reaches its point.
type trap struct {
	point   string
	times   int           // how often the point must be reached
	happens chan struct{} // closed when the request is held
	ended   chan struct{} // closed when the request is no longer held
	dropped bool          // the request ends without a response, and is not forwarded if it was not yet; set before ended
}

// resume lets the request go on.
func (t *trap) resume() { close(t.ended) }

// drop ends the request of a replica that was killed.
func (t *trap) drop() {
	t.dropped = true
	close(t.ended)
}

// newAPIServer returns a proxy to the API server with the replica's credentials.
func newAPIServer(t *testing.T, config *rest.Config) *apiServer {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{ledgers: map[string]*ledger.Object{}, refused: map[string]bool{}}
	a.proxy = &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:    transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the connection breaks
	}
	a.Server = httptest.NewUnstartedServer(a)
	a.EnableHTTP2 = true
	a.Config.ErrorLog = log.New(io.Discard, "", 0) // connections end in the middle of anything
	a.StartTLS()
	t.Cleanup(func() { a.Config.Close() }) // without waiting for watches
	return a
}

// CA is the PEM of the certificate that clients must trust.
func (a *apiServer) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

// arm returns a trap for the request with which the replica reaches the point for the given time from now on.
func (a *apiServer) arm(point string, times int) *trap {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trap = &trap{point: point, times: times, happens: make(chan struct{}), ended: make(chan struct{})}
	return a.trap
}

// disarm removes the trap. It may hold a request already.
func (a *apiServer) disarm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trap = nil
}

// reach holds the request if a trap waits for it.
func (a *apiServer) reach(when string, writes []string) {
	a.mu.Lock()
	t := a.trap
	if t == nil || !slices.ContainsFunc(writes, func(w string) bool { return t.point == when+w }) {
		a.mu.Unlock()
		return
	}
	if t.times--; t.times > 0 {
		a.mu.Unlock()
		return
	}
	a.trap = nil
	a.mu.Unlock()
	close(t.happens)
	<-t.ended
	if t.dropped {
		panic(http.ErrAbortHandler)
	}
}

// ServeHTTP forwards a request. The API server gets a write whose replica has given up waiting, as if it were on its way.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		a.proxy.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the replica has ended
	}
	writes, object := a.classify(r, body)
	a.reach("before-", writes)
	response := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()
	forwarded := r.Clone(ctx)
	forwarded.Body = io.NopCloser(bytes.NewReader(body))
	a.proxy.ServeHTTP(response, forwarded)
	a.record(r, object, response.Code)
	a.reach("after-", writes)
	for name, values := range response.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes()) // otherwise the replica has ended
}

// classify returns what the request writes, as in points, and the ledger if it writes one.
func (a *apiServer) classify(r *http.Request, body []byte) (writes []string, object *ledger.Object) {
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/binding"):
		return []string{"binding"}, nil
	case r.Method == http.MethodPatch && bytes.Contains(body, []byte(cluster.ReleaseAnnotation)):
		return []string{"touch"}, nil
	case r.Method == http.MethodDelete || !strings.HasPrefix(r.URL.Path, ledgersPath):
		return nil, nil
	}
	object = new(ledger.Object)
	if err := json.Unmarshal(body, object); err != nil {
		panic(fmt.Sprintf("%s %s: %v: %s", r.Method, r.URL, err, body))
	}
	writes = []string{"ledger-write"}
	a.mu.Lock()
	defer a.mu.Unlock()
	if former := a.ledgers[object.Name]; former != nil && slices.ContainsFunc(former.Spec.Pods, func(p snapshot.LedgerPod) bool {
		return a.refused[p.Name] && !slices.ContainsFunc(object.Spec.Pods, func(q snapshot.LedgerPod) bool { return q.UID == p.UID })
	}) {
		writes = append(writes, "release")
	}
	return writes, object
}

// record remembers what classify needs.
func (a *apiServer) record(r *http.Request, object *ledger.Object, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pod, ok := strings.CutSuffix(r.URL.Path, "/binding"); ok && code >= http.StatusBadRequest {
		a.refused[pod[strings.LastIndexByte(pod, '/')+1:]] = true
	}
	if object != nil && code < http.StatusBadRequest {
		a.ledgers[object.Name] = object
	}
}
