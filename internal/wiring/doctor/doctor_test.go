package doctor_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// failer is a test of package testing, or of package rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func parseConfig(tb failer, text []byte) *config.Config {
	tb.Helper()
	c, err := config.ParseManifest("outboard.yaml", text, config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// parseCluster reads objects, and the version from the first line, "# v1.37.0".
func parseCluster(tb testing.TB, text []byte) *doctor.Cluster {
	tb.Helper()
	version, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	c := &doctor.Cluster{Version: version}
	maps := map[string]*corev1.ConfigMap{}
	c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) {
		if m := maps[namespace+"/"+name]; m != nil {
			return m, nil
		}
		return nil, fs.ErrNotExist
	}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		into := func(object any) {
			tb.Helper()
			if err := yaml.UnmarshalStrict(doc, object); err != nil {
				tb.Fatalf("%v in:\n%s", err, doc)
			}
		}
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			tb.Fatal(err)
		}
		switch kind.Kind {
		case "Node":
			c.Nodes = append(c.Nodes, corev1.Node{})
			into(&c.Nodes[len(c.Nodes)-1])
		case "Pod":
			c.Pods = append(c.Pods, corev1.Pod{})
			into(&c.Pods[len(c.Pods)-1])
		case "Service":
			c.Services = append(c.Services, corev1.Service{})
			into(&c.Services[len(c.Services)-1])
		case "EndpointSlice":
			c.EndpointSlices = append(c.EndpointSlices, discoveryv1.EndpointSlice{})
			into(&c.EndpointSlices[len(c.EndpointSlices)-1])
		case "ValidatingAdmissionPolicyBinding":
			c.AdmissionBindings = append(c.AdmissionBindings, admissionv1.ValidatingAdmissionPolicyBinding{})
			into(&c.AdmissionBindings[len(c.AdmissionBindings)-1])
		case "ResourceSlice":
			c.ResourceSlices = append(c.ResourceSlices, resourcev1.ResourceSlice{})
			into(&c.ResourceSlices[len(c.ResourceSlices)-1])
		case "Deployment":
			c.Deployments = append(c.Deployments, appsv1.Deployment{})
			into(&c.Deployments[len(c.Deployments)-1])
		case "ConfigMap":
			m := new(corev1.ConfigMap)
			into(m)
			maps[m.Namespace+"/"+m.Name] = m
		default:
			tb.Fatalf("kind %q", kind.Kind)
		}
	}
	return c
}

// certificatesOf returns the files that test data names: ca.crt, an authority, with certificates
// client.crt for kube-scheduler and server.crt for outboard.outboard-system.svc; and another
// authority, soon.crt, that ends 30 days from now, with last.crt for 127.0.0.1 that ends in 7; and ended.crt, which has ended with stale.crt.
func certificatesOf(tb testing.TB) fs.ReadFileFS {
	tb.Helper()
	dir := tb.TempDir()
	begin := now.AddDate(-1, 0, 0)
	for name, a := range map[string]struct {
		end    time.Time
		leaves map[string]certs.Request
	}{
		"ca.crt": {now.AddDate(5, 0, 0), map[string]certs.Request{
			"client.crt": {CommonName: "kube-scheduler", Client: true},
			"server.crt": {CommonName: "outboard", Hosts: []string{"outboard.outboard-system.svc"}, Server: true},
		}},
		"soon.crt": {now.AddDate(0, 0, 30), map[string]certs.Request{
			"last.crt": {CommonName: "outboard", Hosts: []string{"127.0.0.1"}, Server: true, NotAfter: now.AddDate(0, 0, 7)},
			"over.crt": {CommonName: "kube-scheduler", Client: true, NotAfter: now.AddDate(0, 0, -1)},
		}},
		"ended.crt": {now.AddDate(0, 0, -2), map[string]certs.Request{"stale.crt": {CommonName: "outboard", Hosts: []string{"127.0.0.1"}, Server: true}}},
	} {
		ca, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: "outboard", NotBefore: begin, NotAfter: a.end})
		if err != nil {
			tb.Fatal(err)
		}
		files := map[string][]byte{name: ca.Pair().Cert}
		for leaf, request := range a.leaves {
			request.NotBefore = begin
			if request.NotAfter.IsZero() {
				request.NotAfter = a.end
			}
			pair, err := ca.Issue(request)
			if err != nil {
				tb.Fatal(err)
			}
			files[leaf], files[strings.TrimSuffix(leaf, "crt")+"key"] = pair.Cert, pair.Key
		}
		for file, data := range files {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return os.DirFS(dir).(fs.ReadFileFS)
}

// input makes the input of an archive: scheduler.yaml, and outboard.yaml, cluster.yaml, configz.json, namespace
// and version if they are there. Files that scheduler.yaml names are those with such a path; certificates are in /tls.
func input(t *testing.T, archive *txtar.Archive, certificates fs.ReadFileFS) doctor.Input {
	t.Helper()
	in := doctor.Input{File: archive.Files[0].Name, Data: archive.Files[0].Data, Types: types, Now: now}
	in.ReadFile = func(name string) ([]byte, error) {
		for _, f := range archive.Files {
			if f.Name == name {
				return f.Data, nil
			}
		}
		return certificates.ReadFile(strings.TrimPrefix(name, "/tls/"))
	}
	in.ReadConfigFile = in.ReadFile
	for _, f := range archive.Files[1:] {
		switch f.Name {
		case "outboard.yaml":
			in.Config, in.ConfigFile = parseConfig(t, f.Data), f.Name
		case "cluster.yaml":
			in.Cluster = parseCluster(t, f.Data)
		case "configz.json":
			in.Cluster.Configz = func(namespace, pod string, port int) ([]byte, error) {
				if where := fmt.Sprintf("%s/%s:%d", namespace, pod, port); where != "kube-system/kube-scheduler-host:10259" {
					return nil, fmt.Errorf("%s is not kube-scheduler", where)
				}
				return f.Data, nil
			}
		case "namespace": // in which there are no Secrets
			in.Cluster.Secret = func(_, name string) (*corev1.Secret, error) {
				return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
			}
			if err := in.FromNamespace(strings.TrimSpace(string(f.Data)), types); err != nil {
				t.Fatal(err)
			}
		case "version":
			in.Version = strings.TrimSpace(string(f.Data))
		}
	}
	return in
}

// TestFindings runs testdata/*.txtar. An archive is named after the code that it shows, CODE.txtar or
// CODE-VARIANT.txtar, and begins with its input. The rest is what is expected: the findings. Run with -update to write what
// is now.
func TestFindings(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	certificates := certificatesOf(t)
	for _, name := range archives {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: archive.Comment, Files: slices.DeleteFunc(slices.Clone(archive.Files), func(f txtar.File) bool {
				return f.Name == "findings"
			})}
			in := input(t, got, certificates)
			findings, _, err := doctor.Check(in)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, f := range findings {
				text.WriteString(f.Text())
			}
			got.Files = append(got.Files, txtar.File{Name: "findings", Data: []byte(text.String())})
			code, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".txtar"), "-")
			if code != "None" && !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Code == code }) {
				t.Errorf("%s is not found", code)
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" && !*update {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

var (
	codeInSource = regexp.MustCompile(`(?:(?:Error|Warning|Note|severity), |(?:refuse|refuseAt|misread)\()"([A-Z][A-Za-z0-9]+)",`)
	codeInDocs   = regexp.MustCompile(`(?m)^### ([A-Z][A-Za-z0-9]+)$`)
)

// The files that are shipped have no errors, each with the configuration of Outboard that it is for.
func TestShippedFiles(t *testing.T) {
	files := []string{"../../../deploy/scheduler.yaml"}
	for _, pattern := range []string{"../../../examples/*/scheduler.yaml", "../../../examples/from-the-tutorials/*/scheduler.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 5 {
			t.Fatalf("%s: there are %d files: %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.Contains(name, "own-policy") { // which has another program
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		in := doctor.Input{File: name, Data: data, Now: now, ConfigFile: filepath.Join(filepath.Dir(name), "outboard.yaml")}
		if filepath.Base(filepath.Dir(name)) != "deploy" {
			if in.Config, err = config.Load(in.ConfigFile, config.Types{Policies: standard.Types(), Signals: signals.Types()}); err != nil {
				t.Fatal(err)
			}
		}
		findings, _, err := doctor.Check(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Severity == doctor.Error {
				t.Error(f.Text())
			}
		}
	}
}

// Versions are those that people write, and that API servers and images have.
func TestVersions(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/EmptyNodeInfos.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for version, empty := range map[string]bool{
		"": true, "1.32": false, "v1.32.4": false, "1.33": true, "v1.33.0-alpha.1+0123": true, "v1.32.6-eks-1234": false,
	} {
		findings, _, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: archive.Files[0].Data, Version: version})
		if found := slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Code == "EmptyNodeInfos" }); err != nil || found != empty {
			t.Errorf("version %q: found: %t, %v", version, found, err)
		}
	}
	for _, version := range []string{"2.0", "latest", "1"} {
		if _, _, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: archive.Files[0].Data, Version: version}); err == nil {
			t.Errorf("version %q is accepted", version)
		}
	}
}

// The plugin is built with the kube-scheduler of kubernetes/go.mod, for this version of the API server and the next one.
func TestPluginVersions(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/PluginVersion.txtar")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile("../../../kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var built int
	fmt.Sscanf(string(regexp.MustCompile(`k8s\.io/kubernetes v\S+`).Find(modules)), "k8s.io/kubernetes v1.%d", &built)
	for minor, wrong := range map[int]bool{built - 1: true, built: false, built + 1: false, built + 2: true} {
		findings, _, err := doctor.Check(doctor.Input{File: "scheduler.yaml", Data: archive.Files[0].Data, Version: fmt.Sprint("1.", minor)})
		if found := slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Code == "PluginVersion" }); err != nil || found != wrong {
			t.Errorf("version 1.%d: found: %t, %v", minor, found, err)
		}
	}
}

// Every code has test data and a heading in the documentation, and there are no others.
func TestCodes(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codeInSource.FindAllSubmatch(text, -1) {
			codes = append(codes, string(m[1]))
		}
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	if len(codes) < 30 {
		t.Fatalf("the source has %d codes", len(codes))
	}
	page, err := os.ReadFile("../../../docs/reference/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range codeInDocs.FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("the codes of the source and the headings of the page differ (-source +docs):\n%s", diff)
	}
	for _, code := range codes {
		if found, err := filepath.Glob(fmt.Sprintf("testdata/%s*.txtar", code)); err != nil || len(found) == 0 {
			t.Errorf("%s has no test data", code)
		}
	}
}
