package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/internal/ledger"
)

// The clock gets the API server's time from the dates of its responses, and of no other responses.
func TestTransportLearnsTheTime(t *testing.T) {
	ahead := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		code    int
		date    string
		learned bool
	}{
		"answered":                             {200, ahead.UTC().Format(http.TimeFormat), true},
		"refused":                              {403, ahead.UTC().Format(http.TimeFormat), true},
		"somebody fails, perhaps in its place": {500, ahead.UTC().Format(http.TimeFormat), false},
		"in its place, somebody says that it is not there": {503, ahead.UTC().Format(http.TimeFormat), false},
		"no date":  {200, "", false},
		"nonsense": {200, "yesterday", false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := ledger.NewClock(nil)
			next := roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: test.code, Header: http.Header{"Date": {test.date}}, Body: http.NoBody}, nil
			})
			resp, err := (&transport{next, new(atomic.Uint64), clock}).RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if learned := !clock.Earliest().Before(ahead); learned != test.learned {
				t.Errorf("the clock returns %v, and the response has date %q", clock.Earliest(), test.date)
			}
		})
	}
}

// The log explains a failed request and its solution, once until the explanation changes.
func TestMeaningOfFailures(t *testing.T) {
	resource := schema.GroupResource{Group: "outboard.dev", Resource: "ledgers"}
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no"))
	missing := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", resource, "", "404 page not found", 0, true)
	var log bytes.Buffer
	f := &feed{resource: "ledgers", failed: func() {}, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for i, step := range []struct {
		err          error
		want, logged string
	}{
		{nil, "", ""},
		{missing, "ledgers (the API server does not serve a resource: the server could not find the requested resource (list ledgers.outboard.dev); kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml)", "does not serve"},
		{missing, "ledgers (the API server does not serve a resource: the server could not find the requested resource (list ledgers.outboard.dev); kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml)", ""},
		{forbidden, "ledgers (the API server denies reading a resource: ledgers.outboard.dev is forbidden: no; grant the verbs list and watch on ledgers.outboard.dev)", `hint="grant the verbs list and watch`},
		{apierrors.NewMethodNotSupported(resource, "list"), "ledgers (the API server does not serve a resource: list is not supported on resources of kind \"ledgers.outboard.dev\"; kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml)", "does not serve"},
		{apierrors.NewResourceExpired("too old"), "ledgers (the API server rejects a request: too old)", "rejects a request"},
		{errors.New("timeout"), "ledgers (the API server does not respond: timeout)", "does not respond"},
		{errors.New("another"), "ledgers (the API server does not respond: another)", ""},
		{&url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis?watch=true&limit=500", Err: errors.New("refused")}, "ledgers (the API server does not respond: https://10.0.0.1:6443: refused)", ""},
		{&url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
			"ledgers (the certificate of the API server is not accepted: https://10.0.0.1:6443: tls: failed to verify certificate: x509: certificate signed by unknown authority; see server and certificate-authority in clientConnection.kubeconfig)", "error=\"https://10.0.0.1:6443: tls: failed"},
		{apierrors.NewUnauthorized("who"), "ledgers (the API server does not accept the credentials: who; check the ServiceAccount of the pod, or clientConnection.kubeconfig if it is set)", "credentials"},
		{nil, "", "responds again"},
		{nil, "", ""},
	} {
		log.Reset()
		_ = f.observe(t.Context(), step.err)
		if got := f.warning(); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
		if got := log.String(); (got == "") != (step.logged == "") || !strings.Contains(got, step.logged) {
			t.Errorf("step %d: got log %q, want %q", i, got, step.logged)
		}
	}
}

// While requests fail for the same reason, the log has one line for each resource.
func TestRepeatedFailuresAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	client := fake.NewClientset()
	requests := make(chan struct{}, 100)
	client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		requests <- struct{}{}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	})
	c, err := New(Options{Client: client, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for range 3 {
		<-requests
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "resource=nodes") {
		t.Errorf("the log is:\n%s", got)
	}
}

// The error of a write that the API server denies names the solution, and a warning lasts until a write succeeds; a write
// without a response does not affect it.
func TestDeniedWrites(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(pods, "p", errors.New(`User "outboard" cannot create resource "pods/binding"`))
	said := `pods "p" is forbidden: User "outboard" cannot create resource "pods/binding"; grant it: deploy/outboard.yaml has the permissions that Outboard always needs, and deploy/allocations.yaml those for allocations`
	var d denials
	for i, step := range []struct {
		err            error
		text, warnings string
	}{
		{nil, "", ""},
		{forbidden, said, "cluster: binding pods fails: " + said},
		{errors.New("timeout"), "timeout", "cluster: binding pods fails: " + said},
		{apierrors.NewConflict(pods, "p", errors.New("no")), `Operation cannot be fulfilled on pods "p": no`, "cluster: binding pods fails: " + said},
		{nil, "", ""},
		{apierrors.NewUnauthorized("who"), "the API server does not accept the credentials: who; check the ServiceAccount of the pod, or clientConnection.kubeconfig if it is set",
			"cluster: binding pods fails: the API server does not accept the credentials: who; check the ServiceAccount of the pod, or clientConnection.kubeconfig if it is set"},
	} {
		got := d.observe(writeBinding, step.err)
		if (got == nil) != (step.err == nil) || got != nil && got.Error() != step.text || !errors.Is(got, step.err) {
			t.Errorf("step %d: got error %v, want %s", i, got, step.text)
		}
		if got := strings.Join(d.lines(), "\n"); got != step.warnings {
			t.Errorf("step %d: got warnings %q, want %q", i, got, step.warnings)
		}
	}
	_ = d.observe(writeLedger, nil)
	if got := len(d.lines()); got != 1 {
		t.Errorf("%d warnings after another write", got)
	}
}

// The same with client-go itself: the failure of the first attempt is reported before the second attempt.
func TestBrokenConnectionIsReportedBeforeTheNextAttempt(t *testing.T) {
	attempts, checked := make(chan struct{}), make(chan struct{})
	broken := roundTripper(func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/pods") {
			attempts <- struct{}{}
			<-checked
		}
		return nil, io.EOF
	})
	c, err := New(Options{Config: &rest.Config{Host: "https://10.0.0.1:6443", Transport: broken}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-attempts
	checked <- struct{}{}
	<-attempts
	if err := c.Synced(); err == nil || !strings.Contains(err.Error(), "pods (the API server does not respond: https://10.0.0.1:6443: EOF)") {
		t.Errorf("got %v", err)
	}
	cancel()
	close(checked)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
