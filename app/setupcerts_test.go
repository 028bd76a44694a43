package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policies/standard"
)

// certsDir runs the command and returns the files of the directory by name.
func certsDir(t *testing.T, dir string, flags ...string) map[string]string {
	t.Helper()
	if _, err := execute(t, append([]string{"setup", "certs", "--dir", dir}, flags...)...); err != nil {
		t.Fatal(err)
	}
	return filesOf(t, dir)
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

// leafOf returns the certificate of a key pair.
func leafOf(t *testing.T, cert, key string) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func verifies(leaf *x509.Certificate, cas, host string, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cas))
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// A second run keeps every file, so a pipeline can run the command each time.
func TestCertsKeepsWhatExists(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first := certsDir(t, dir)
	if len(first) != 6 {
		t.Errorf("%d files, want 6: %v", len(first), first)
	}
	second := certsDir(t, dir)
	for name, data := range first {
		if second[name] != data {
			t.Errorf("%s has changed", name)
		}
	}
	if info, _ := os.Stat(filepath.Join(dir, "ca.key")); info.Mode().Perm() != 0o600 {
		t.Errorf("ca.key has mode %v", info.Mode().Perm())
	}
}

// Outboard permits the client by default. TestSchedulerConfigFitsTheCertificate checks the server's names.
func TestCertsFitTheDefaults(t *testing.T) {
	files := certsDir(t, t.TempDir())
	client := leafOf(t, files["client.crt"], files["client.key"])
	c, err := config.Parse("outboard.yaml", []byte(header+`serving: {address: ":8443", tls: {certFile: a, keyFile: b, clientCAFile: c}}
profiles: [{policies: [{type: ImageLocality}]}]
`), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	if names := c.Serving.TLS.AllowedClients; len(names) != 1 || names[0] != client.Subject.CommonName {
		t.Errorf("the client is %q, and %v are allowed", client.Subject.CommonName, names)
	}
	if err := verifies(client, files["ca.crt"], "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
}

// Names are added, on the first run and when the certificate is renewed, and never removed.
func TestCertsNames(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"--server-name", "outboard.example,10.0.0.1"}, []string{"outboard.outboard-system.svc", "localhost", "outboard.example", "127.0.0.1", "::1", "10.0.0.1"}},
		{[]string{"--renew"}, []string{"outboard.outboard-system.svc", "localhost", "outboard.example", "127.0.0.1", "::1", "10.0.0.1"}},
		{[]string{"--renew", "--server-name", "*.example", "--outboard-namespace", "other"},
			[]string{"outboard.outboard-system.svc", "localhost", "outboard.example", "outboard.other.svc", "*.example", "127.0.0.1", "::1", "10.0.0.1"}},
		{[]string{"--outboard-namespace", "other", "--server-name", "more.example"},
			[]string{"outboard.outboard-system.svc", "localhost", "outboard.example", "outboard.other.svc", "*.example", "127.0.0.1", "::1", "10.0.0.1"}},
	} {
		files := certsDir(t, dir, step.flags...)
		if got := certs.Hosts(leafOf(t, files["server.crt"], files["server.key"])); !slices.Equal(got, step.want) {
			t.Errorf("%v: the server has the names %v, want %v", step.flags, got, step.want)
		}
	}
}

// Renewing keeps the CA, the names and the keys, and replaces the certificates, so that the key
// fits both the former and the new certificate. A key that was deleted is replaced.
func TestCertsRenew(t *testing.T) {
	dir := t.TempDir()
	before := certsDir(t, dir)
	after := certsDir(t, dir, "--renew")
	for name := range before {
		if kept := before[name] == after[name]; kept == slices.Contains([]string{"server.crt", "client.crt"}, name) {
			t.Errorf("%s is kept: %t", name, kept)
		}
	}
	if err := os.Remove(filepath.Join(dir, "server.key")); err != nil {
		t.Fatal(err)
	}
	last := certsDir(t, dir, "--renew")
	if last["server.key"] == after["server.key"] || last["client.key"] != after["client.key"] {
		t.Error("the wrong keys are replaced")
	}
	server, client := leafOf(t, last["server.crt"], last["server.key"]), leafOf(t, last["client.crt"], last["client.key"])
	if err := verifies(server, before["ca.crt"], "outboard.outboard-system.svc", x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if err := verifies(client, before["ca.crt"], "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
}

func TestCertsSecrets(t *testing.T) {
	dir := t.TempDir()
	out, err := execute(t, "setup", "certs", "--dir", dir, "--secrets", "--outboard-namespace", "somewhere")
	if err != nil {
		t.Fatal(err)
	}
	_, manifests, _ := strings.Cut(out, "---\n") // after the report
	secrets := map[string]corev1.Secret{}
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		var s corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if s.Namespace != "somewhere" {
			t.Errorf("%s is in namespace %q", s.Name, s.Namespace)
		}
		for key, data := range s.Data {
			if block, _ := pem.Decode(data); key != "tls.key" && block.Type != "CERTIFICATE" {
				t.Errorf("%s of %s is a %s", key, s.Name, block.Type)
			}
		}
		secrets[s.Name] = s
	}
	files := filesOf(t, dir)
	for name, file := range map[string]string{"outboard-server": "server", "outboard-client": "client"} {
		data := secrets[name].Data
		if string(data["ca.crt"]) != files["ca.crt"] || string(data["tls.crt"]) != files[file+".crt"] || string(data["tls.key"]) != files[file+".key"] {
			t.Errorf("%s does not have the files of the directory", name)
		}
		for key, value := range data {
			if bytes.Contains(value, []byte(files["ca.key"])) {
				t.Errorf("%s of %s has the key of the CA", key, name)
			}
		}
	}
	if err := leafOf(t, files["server.crt"], files["server.key"]).VerifyHostname("outboard.somewhere.svc"); err != nil {
		t.Error(err)
	}
}

func TestCertsErrors(t *testing.T) {
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	otherCA := func(dir string) error {
		a, err := certs.NewAuthority(certs.AuthorityOptions{})
		if err != nil {
			return err
		}
		return a.Pair().WriteFiles(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	}
	for _, tt := range []struct {
		name   string
		flags  []string
		change func(dir string) error // of an existing directory
		want   string
	}{
		{"no key of the CA", nil, remove("ca.key"), "ca.key does not exist"},
		{"no CA", nil, remove("ca.crt"), "ca.crt does not exist"},
		{"another CA", nil, otherCA, "server.crt: x509: certificate signed by unknown authority"},
		{"a key of another certificate", nil, func(dir string) error {
			return os.Rename(filepath.Join(dir, "client.key"), filepath.Join(dir, "server.key"))
		}, "private key does not match public key: replace it with --renew"},
		{"another server name", []string{"--server-name", "other.example"}, nil, "the certificate is for outboard.outboard-system.svc, localhost, 127.0.0.1, ::1, not for other.example: replace it with --renew"},
		{"another namespace", []string{"--outboard-namespace", "other", "--secrets"}, nil, "the certificate is for outboard.outboard-system.svc, localhost, 127.0.0.1, ::1, not for outboard.other.svc: replace it with --renew"},
		{"not a namespace", []string{"--outboard-namespace", "Not one"}, nil, `--outboard-namespace="Not one": a lowercase RFC 1123 label must`},
		{"no certificate in the file", nil, func(dir string) error { return os.WriteFile(filepath.Join(dir, "server.crt"), []byte("other"), 0o600) },
			"server.crt: tls: failed to find any PEM data in certificate input: replace it with --renew"},
		{"no key of a certificate", nil, remove("client.key"), "client.crt: its key does not exist: replace it with --renew"},
		{"not a name", []string{"--renew", "--server-name", "not a name"}, nil, `host "not a name" is neither an IP address nor a DNS name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			certsDir(t, dir)
			if tt.change != nil {
				if err := tt.change(dir); err != nil {
					t.Fatal(err)
				}
			}
			before := filesOf(t, dir)
			_, err := execute(t, append([]string{"setup", "certs", "--dir", dir}, tt.flags...)...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			for name, data := range filesOf(t, dir) {
				if before[name] != data {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
	if _, err := execute(t, "setup", "certs", "--dir", t.TempDir(), "--renew"); err == nil || !strings.Contains(err.Error(), "no certificates yet") {
		t.Errorf("renewing nothing: %v", err)
	}
}

// secretsAPI serves the Secrets of a namespace as the API server does, which rejects an update of a
// version that is no longer the current one.
type secretsAPI map[string]*corev1.Secret

func (s secretsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	secret := s[strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/outboard-system/secrets/")]
	status, answer := http.StatusOK, any(secret)
	switch {
	case secret == nil:
		status, answer = http.StatusNotFound, apierrors.NewNotFound(corev1.Resource("secrets"), r.URL.Path).Status()
	case r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		now, ok := object.(*corev1.Secret)
		if !ok || now.ResourceVersion != secret.ResourceVersion {
			status, answer = http.StatusConflict, apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, err).Status()
			break
		}
		now.ResourceVersion += "1"
		s[secret.Name], answer = now, now
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s secretsAPI) copy() secretsAPI {
	all := secretsAPI{}
	for name, secret := range s {
		all[name] = secret.DeepCopy()
	}
	return all
}

// The command fills the empty Secrets of an installation, keeps what is valid for long, and renews
// what is not. It never touches certificates of others.
func TestCertsInTheCluster(t *testing.T) {
	api := secretsAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := "{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: " + server.URL + "}}]}"
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(flags ...string) (secretsAPI, string) {
		t.Helper()
		out, err := execute(t, append([]string{"setup", "certs", "--cluster", "--kubeconfig", file}, flags...)...)
		if err != nil {
			out += err.Error()
		}
		return api.copy(), out
	}
	leaf := func(s *corev1.Secret) *x509.Certificate {
		t.Helper()
		return leafOf(t, string(s.Data["tls.crt"]), string(s.Data["tls.key"]))
	}
	if _, out := run(); !strings.Contains(out, "in the namespace outboard-system: install Outboard first") {
		t.Errorf("without the Secrets: %s", out)
	}
	names := []string{"outboard-ca", "outboard-server", "outboard-client"}
	for _, name := range names {
		api[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "outboard-system", ResourceVersion: "1"}}
	}
	first, out := run()
	if err := verifies(leaf(first["outboard-server"]), string(first["outboard-client"].Data["ca.crt"]), "outboard.outboard-system.svc", x509.ExtKeyUsageServerAuth); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := verifies(leaf(first["outboard-client"]), string(first["outboard-server"].Data["ca.crt"]), "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if second, out := run(); !reflect.DeepEqual(second, first) {
		t.Errorf("the second run has changed something:\n%s", out)
	}

	set, err := certs.NewSet(pairOf(first["outboard-ca"]), pairOf(first["outboard-server"]), pairOf(first["outboard-client"]))
	if err != nil {
		t.Fatal(err)
	}
	soon, err := set.Authority.Issue(certs.Request{CommonName: "system:kube-scheduler", Client: true, Former: set.Client, NotAfter: time.Now().Add(20 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	api["outboard-client"].Data["tls.crt"] = soon.Cert
	renewed, out := run()
	if end := leaf(renewed["outboard-client"]).NotAfter; time.Until(end) < 300*24*time.Hour {
		t.Errorf("the certificate ends %s\n%s", end, out)
	}
	if !bytes.Equal(renewed["outboard-client"].Data["tls.key"], first["outboard-client"].Data["tls.key"]) || !reflect.DeepEqual(renewed["outboard-ca"], first["outboard-ca"]) {
		t.Error("the key or the CA is another one")
	}
	for _, name := range names {
		api[name].Data = nil
	}
	if replaced, out := run(); bytes.Equal(replaced["outboard-server"].Data["ca.crt"], first["outboard-server"].Data["ca.crt"]) {
		t.Errorf("the CA is not replaced: %s", out)
	}

	api["outboard-ca"].Data = nil
	before := api.copy()
	if after, out := run(); !reflect.DeepEqual(after, before) || !strings.Contains(out, "leaves them alone") {
		t.Errorf("without the key of their CA, the certificates have changed: %s", out)
	}
	delete(api["outboard-client"].Data, "tls.crt")
	if _, out := run(); !strings.Contains(out, "the Secrets of the namespace outboard-system: ca.crt does not exist") {
		t.Errorf("with a certificate of a CA that is missing: %s", out)
	}
}

func pairOf(s *corev1.Secret) certs.Pair {
	return certs.Pair{Cert: s.Data["tls.crt"], Key: s.Data["tls.key"]}
}
