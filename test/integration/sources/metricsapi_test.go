package sources_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/signal"
)

// TestThroughTheAPIServer: the API server, its aggregation layer, its permissions and the TLS on
// both connections are real; only the metrics server is not.
func TestThroughTheAPIServer(t *testing.T) {
	o := start(t)
	ctx, admin := o.ctx, o.client
	source := func(resource string) *metricsapi.Source {
		s, err := metricsapi.New(metricsapi.Config{Resource: resource}, o.reader.Config)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	cpu := source("cpu")
	await := func(what string, check func() error) {
		t.Helper()
		for err := check(); err != nil; err = check() {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	awaitError := func(what, part string) {
		t.Helper()
		await(what, func() error {
			if _, err := cpu.Read(ctx, limits); err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("the error is %v, want one with %q", err, part)
			}
			return nil
		})
	}
	awaitError("without a right", `User "`+o.reader.Name+`" cannot list resource "nodes" in API group "metrics.k8s.io"`)
	grantMetrics(t, ctx, admin, o.reader.Name)
	awaitError("without an APIService", metricsapi.ErrNotServed.Error())

	server := measurements(t, ctx, admin)
	register(t, ctx, admin, server)
	var samples []signal.Sample
	var err error
	await("the first reading", func() error {
		samples, err = cpu.Read(ctx, limits)
		return err
	})
	at := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	want := []signal.Sample{{Key: "a", Number: 1.25, At: at}, {Key: "b", Number: 0.25, At: at.Add(-time.Minute)}}
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("cpu: -want +got\n%s", diff)
	}
	samples, err = source("memory").Read(ctx, limits)
	if diff := cmp.Diff([]signal.Sample{{Key: "a", Number: 3 << 30, At: at}, {Key: "c", Number: 2e9, At: at}}, samples); diff != "" || err != nil {
		t.Errorf("memory: %v, -want +got\n%s", err, diff)
	}
	if got := server.asked.Load(); got == nil || *got != o.reader.Name+" by front-proxy-client" {
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

// grantMetrics gives the user the role of deploy/metrics.yaml.
func grantMetrics(t *testing.T, ctx context.Context, admin kubernetes.Interface, user string) {
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
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
