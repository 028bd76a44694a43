package metricsapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/source/metricsapi"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/test/controlplane"
)

var limits = signal.Limits{Values: 100, Bytes: 1 << 20}

// TestThroughTheAPIServer: the API server, its aggregation layer, its permissions and the TLS on
// both connections are real; only the metrics server is not.
func TestThroughTheAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	user, err := cp.AddUser("outboard")
	if err != nil {
		t.Fatal(err)
	}
	cpu := source(t, "cpu", user.Config)
	awaitError := func(what, part string) {
		t.Helper()
		await(t, ctx, what, func() error {
			if _, err := cpu.Read(ctx, limits); err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("the error is %v, want one with %q", err, part)
			}
			return nil
		})
	}
	awaitError("without a right", `User "outboard" cannot list resource "nodes" in API group "metrics.k8s.io"`)
	grant(t, ctx, admin)
	awaitError("without an APIService", metricsapi.ErrNotServed.Error())

	server := measurements(t, ctx, admin)
	register(t, ctx, admin, server)
	var samples []signal.Sample
	await(t, ctx, "the first reading", func() error {
		samples, err = cpu.Read(ctx, limits)
		return err
	})
	at := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	want := []signal.Sample{{Key: "a", Number: 1.25, At: at}, {Key: "b", Number: 0.25, At: at.Add(-time.Minute)}}
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("cpu: -want +got\n%s", diff)
	}
	samples, err = source(t, "memory", user.Config).Read(ctx, limits)
	if diff := cmp.Diff([]signal.Sample{{Key: "a", Number: 3 << 30, At: at}, {Key: "c", Number: 2e9, At: at}}, samples); diff != "" || err != nil {
		t.Errorf("memory: %v, -want +got\n%s", err, diff)
	}
	if got := server.asked.Load(); got == nil || *got != "outboard by front-proxy-client" {
		t.Errorf("the requests to the metrics server are from %v", got)
	}

	server.Close()
	awaitError("without a server", "503")
}

// measurements replaces metrics-server. Like metrics-server, it requires a certificate of the front
// proxy.
func measurements(t *testing.T, ctx context.Context, admin kubernetes.Interface) *standIn {
	t.Helper()
	trust, err := admin.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	proxies := x509.NewCertPool()
	if !proxies.AppendCertsFromPEM([]byte(trust.Data["requestheader-client-ca-file"])) {
		t.Fatal("the CA of front proxies is not published")
	}
	ca, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(certs.Request{CommonName: "metrics", Hosts: []string{"metrics-server.kube-system.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{ca: ca.Pair().Cert}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: proxies, ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

type standIn struct {
	*httptest.Server
	ca    []byte
	asked atomic.Pointer[string] // the requested resource, and the user
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/nodes" {
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[
			{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]}]}`)
		return
	}
	by := r.Header.Get("X-Remote-User") + " by " + r.TLS.PeerCertificates[0].Subject.CommonName
	s.asked.Store(&by)
	fmt.Fprint(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[
		{"metadata":{"name":"a"},"timestamp":"2026-01-01T12:00:30Z","window":"10s","usage":{"cpu":"1250m","memory":"3Gi"}},
		{"metadata":{"name":"b"},"timestamp":"2026-01-01T11:59:30Z","window":"10s","usage":{"cpu":"250000000n"}},
		{"metadata":{"name":"c"},"timestamp":"2026-01-01T12:00:30Z","window":"10s","usage":{"cpu":"-1","memory":"2G"}}]}`)
}

// register makes the API server proxy requests to the server.
func register(t *testing.T, ctx context.Context, admin kubernetes.Interface, s *standIn) {
	t.Helper()
	_, err := admin.CoreV1().Services("kube-system").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
			"caBundle": s.ca,
			"service":  map[string]any{"namespace": "kube-system", "name": "metrics-server", "port": s.Listener.Addr().(*net.TCPAddr).Port},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := admin.Discovery().RESTClient()
	if err := client.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/yaml").Body(service).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
}

// grant gives the user the role of deploy/metrics.yaml.
func grant(t *testing.T, ctx context.Context, admin kubernetes.Interface) {
	t.Helper()
	manifest, err := os.ReadFile("../../../deploy/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(document, &role); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "outboard"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func source(t *testing.T, resource string, server *rest.Config) *metricsapi.Source {
	t.Helper()
	s, err := metricsapi.New(metricsapi.Config{Resource: resource}, server)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func await(t *testing.T, ctx context.Context, what string, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestUnusualResponses: responses that no API server sends.
func TestUnusualResponses(t *testing.T) {
	item := func(n int) string { return strings.Repeat(`{"metadata":{"name":"a"},"usage":{"cpu":"1"}},`, n) }
	for name, tc := range map[string]struct {
		status int
		answer string
		err    string
		is     error
		count  int
	}{
		"an empty list":        {answer: `{"items":[]}`},
		"no list":              {answer: `{}`},
		"no name and no time":  {answer: `{"items":[{"usage":{"cpu":"1"}}]}`, count: 1},
		"as many as may be":    {answer: `{"items":[` + strings.TrimSuffix(item(100), ",") + `]}`, count: 100},
		"too many":             {answer: `{"items":[` + strings.TrimSuffix(item(101), ",") + `]}`, is: signal.ErrTooMany},
		"too long":             {answer: `{"x":[` + strings.Repeat(`"`+strings.Repeat("x", 1<<10)+`",`, 1<<10), is: signal.ErrTooLong},
		"a long text":          {answer: `{"x":"` + strings.Repeat("x", 1<<16) + `"}`, err: "longer than 65536 bytes"},
		"no JSON":              {answer: `<html>`, err: "is not a list of metrics"},
		"no quantity":          {answer: `{"items":[{"usage":{"cpu":"much"}}]}`, err: "is not a list of metrics"},
		"an error":             {status: 500, answer: `{"kind":"Status","message":"it broke"}`, err: "500 Internal Server Error: it broke"},
		"an error in HTML":     {status: 502, answer: `<html>`, err: "502 Bad Gateway: <html>"},
		"a very long error":    {status: 502, answer: strings.Repeat("x", 1<<20), err: "502 Bad Gateway: xxx"},
		"an error and nothing": {status: 404, is: metricsapi.ErrNotServed},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				fmt.Fprint(w, tc.answer)
			}))
			defer server.Close()
			samples, err := source(t, "cpu", &rest.Config{Host: server.URL}).Read(t.Context(), limits)
			switch {
			case tc.is != nil && !errors.Is(err, tc.is), tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)), tc.is == nil && tc.err == "" && err != nil:
				t.Errorf("the error is %v", err)
			case err != nil && len(err.Error()) > 1000:
				t.Errorf("the error has %d characters", len(err.Error()))
			case len(samples) != tc.count:
				t.Errorf("read %d samples, want %d", len(samples), tc.count)
			}
		})
	}
}

// TestEndsWithItsContext: a request to a server that does not respond ends with the context.
func TestEndsWithItsContext(t *testing.T) {
	reached := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	if _, err := source(t, "cpu", &rest.Config{Host: server.URL}).Read(ctx, limits); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
