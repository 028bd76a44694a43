package config_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// fake is a policy that keeps its configuration.
type fake struct{ config any }

func (fake) Prepare(context.Context, *corev1.Pod, *snapshot.View) (policy.Cycle, error) {
	return nil, nil
}

// allocator allocates resources.
type allocator struct {
	fake
	Resources []corev1.ResourceName `json:"resources"`
	AnyPod    bool                  `json:"anyPod"`
}

func (a allocator) Inputs() policy.Inputs {
	return policy.Inputs{Resources: a.Resources, AnyPod: a.AnyPod}
}

func (allocator) Ledgers(*corev1.Pod, *snapshot.Node) ([]snapshot.LedgerKey, error) { return nil, nil }

func (allocator) Reserve(policy.ReserveRequest) (policy.Allocation, policy.Verdict) {
	return policy.Allocation{}, policy.Verdict{}
}

type gpuMemory struct {
	PerDeviceMiB int                  `json:"perDeviceMiB" limits:"1.."`
	MultiGPU     bool                 `json:"multiGPU"`
	Selector     metav1.LabelSelector `json:"selector"`
	Names        []string             `json:"names" items:"must not be empty"`
	Wait         time.Duration        `json:"wait"`
}

// types are the policies known to the tests: each reports its errors in a different way that the
// contract permits.
var types = config.Types{Signals: standard.Types(), Policies: []policy.Type{
	{Name: "GPUMemory", New: func(decode func(any) error) (policy.Policy, error) {
		c := gpuMemory{PerDeviceMiB: 1024, Wait: time.Second}
		if err := decode(&c); err != nil {
			return nil, err
		}
		var errs field.ErrorList
		if c.PerDeviceMiB <= 0 {
			errs = append(errs, field.Invalid(field.NewPath("perDeviceMiB"), c.PerDeviceMiB, "must be greater than 0"))
		}
		for i, name := range c.Names {
			if name == "" {
				errs = append(errs, field.Required(field.NewPath("names").Index(i), "must not be empty"))
			}
		}
		for key := range c.Selector.MatchLabels {
			if strings.Contains(key, " ") {
				errs = append(errs, field.Invalid(field.NewPath("selector", "matchLabels").Key(key), key, "must be a label"))
			}
		}
		return fake{c}, errs.ToAggregate()
	}},
	{Name: "ImageLocality", New: func(func(any) error) (policy.Policy, error) { return fake{}, nil }},
	{Name: "Expression", New: func(decode func(any) error) (policy.Policy, error) {
		var c struct {
			Rule string `json:"rule" required:"-"`
		}
		if err := decode(&c); err != nil {
			return nil, fmt.Errorf("expression: %w", err)
		}
		switch c.Rule {
		case "":
			return nil, field.Required(field.NewPath("rule"), "must be an expression")
		case "syntax":
			return nil, errors.New("1:1: syntax error\nsecond line")
		case "joined":
			return nil, errors.Join(field.Invalid(field.NewPath("rule"), c.Rule, "is joined"), errors.New("about the whole"))
		case "wrapped":
			return nil, fmt.Errorf("lost: %w", field.Invalid(nil, c.Rule, "is wrapped"))
		}
		return fake{c}, nil
	}},
	policy.TypeOf("Allocator", func() allocator { return allocator{} }, func(a allocator) (policy.Policy, error) {
		var errs field.ErrorList
		for i, name := range a.Resources {
			errs = append(errs, fields.ExtendedResource(field.NewPath("resources").Index(i), string(name))...)
		}
		return a, errs.ToAggregate()
	}),
	{Name: "Careless", New: func(decode func(any) error) (policy.Policy, error) {
		var c struct {
			N int `json:"count"`
		}
		_ = decode(&c)
		return fake{c}, nil
	}},
}}

// TestGolden runs testdata/*.txtar: each case is a file, NAME.yaml, followed by NAME.out, which is
// either the effective configuration or the errors. The effective configuration of a valid file
// must load to the same configuration.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, f := range archive.Files {
			want[f.Name] = string(f.Data)
		}
		var updated []txtar.File
		for _, f := range archive.Files {
			base, isInput := strings.CutSuffix(f.Name, ".yaml")
			if !isInput {
				continue
			}
			got := outcome(t, f.Name, f.Data)
			updated = append(updated, f, txtar.File{Name: base + ".out", Data: []byte(got)})
			if w, ok := want[base+".out"]; !*update && (!ok || got != w) {
				t.Errorf("%s: %s\n%s\ngot:\n%s\nwant:\n%s", name, f.Name, f.Data, got, w)
			}
		}
		if *update {
			archive.Files = updated
			if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func outcome(t *testing.T, file string, data []byte) string {
	c, err := config.Parse(file, data, types)
	if err != nil {
		return err.Error() + "\n"
	}
	text := effective(t, c)
	again, err := config.Parse("/elsewhere/"+file, []byte(text), types)
	if err != nil {
		t.Fatalf("%s: effective configuration: %v\n%s", file, err, text)
	}
	if other := effective(t, again); text != other {
		t.Errorf("%s: was:\n%s\nis:\n%s", file, text, other)
	}
	if differ := config.Compare(c, again, config.Observed{}).Changes; len(differ) > 0 {
		t.Errorf("%s: %v differ from the effective configuration", file, differ)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, here, "/here")
}

func effective(t *testing.T, c *config.Config) string {
	t.Helper()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPoliciesAreBuilt(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal+"    config: {perDeviceMiB: 5}\n  - type: ImageLocality\n"), types)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Profiles[0].Policies
	if got := p[0].Policy.(fake).config.(gpuMemory); got.PerDeviceMiB != 5 || got.Wait != time.Second {
		t.Errorf("got %+v", got)
	}
	if p[1].Policy == nil || p[1].Name != "ImageLocality" || p[1].Weight != 1 || p[1].FailurePolicy != policy.Fail || !p[1].Config.IsZero() {
		t.Errorf("got %+v", p[1])
	}
}

const (
	gpus    = "profiles:\n- policies:\n  - type: GPUMemory\n"
	minimal = plain + gpus
)

func TestRoutes(t *testing.T) {
	for _, tt := range []struct {
		profile config.Profile
		want    string
	}{
		{config.Profile{Path: "/"}, "filter=/filter prioritize=/prioritize preempt=/preempt bind=/bind"},
		{config.Profile{Path: "/a/b"}, "filter=/a/b/filter prioritize=/a/b/prioritize preempt=/a/b/preempt bind=/a/b/bind"},
		{config.Profile{Path: "/a/b", Verb: new(config.Verb("Preempt"))}, "preempt=/a/b"},
	} {
		var got []string
		for _, r := range tt.profile.Routes() {
			got = append(got, string(r.Verb)+"="+r.Path)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.profile, s, tt.want)
		}
	}
}

// A change requires a restart exactly if it is one of Process.
func TestNeedsRestart(t *testing.T) {
	base := header + gpus + "  - {type: ImageLocality, name: x}\nserving: {tls: {certFile: a, keyFile: b, clientCAFile: c}}\n"
	load := func(old, new string) *config.Config {
		c, err := config.Parse("/etc/outboard/config.yaml", []byte(strings.Replace(base, old, new, 1)), types)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := load("", "")
	for _, tt := range []struct{ name, old, new, want string }{
		{"nothing", "", "", ""},
		{"a comment", "", "# hello\n", ""},
		{"a default written out", "serving: {", "serving: {insecure: false, ", ""},
		{"a policy", "as: x", "as: x, weight: 3", ""},
		{"a policy's configuration", "GPUMemory\n", "GPUMemory\n    config: {perDeviceMiB: 7}\n", ""},
		{"a profile", "- policies:", "- path: /more\n  policies: [{type: ImageLocality}]\n- policies:", ""},
		{"the address", "serving: {", "serving: {address: 127.0.0.1:9443, ", "serving.address"},
		{"admin", "serving: {", "admin: {address: 127.0.0.1:9090, pprof: true}\nserving: {", "admin.address admin.pprof"},
		{"tls off", "tls: {certFile: a, keyFile: b, clientCAFile: c}", "insecure: true", "serving.address serving.insecure serving.tls"},
		{"a file", "certFile: a", "certFile: z", "serving.tls.certFile"},
		{"a client", "clientCAFile: c", "clientCAFile: c, allowedClients: [system:kube-scheduler, me]", "serving.tls.allowedClients"},
		{"times", "serving: {", "serving: {shutdownDelay: 1s, ", "serving.shutdownDelay"},
		{"no API server", "serving:", "clientConnection: {enabled: false}\nserving:", "clientConnection.enabled"},
		{"cluster", "serving:", "clientConnection: {context: x, qps: 5}\nserving:", "clientConnection.context clientConnection.qps"},
		{"requeue", "serving:", "requeue: {perSecond: 5}\nserving:", "requeue.perSecond"},
		{"ledgers", "serving:", "ledgers: {reclaimAfter: 1m}\nserving:", "ledgers.reclaimAfter"},
		{"log", "serving:", "log: {level: Debug}\nserving:", "log.level"},
	} {
		const rest = ": no effect until a restart, in a cluster by kubectl --namespace outboard-system rollout restart deployment/outboard"
		compared := config.Compare(old, load(tt.old, tt.new), config.Observed{})
		got := ""
		for _, risk := range compared.Risks {
			if fields, ok := strings.CutSuffix(risk, rest); ok {
				got = strings.ReplaceAll(fields, ",", "")
			}
		}
		if got != tt.want || compared.Restart != (tt.want != "") {
			t.Errorf("%s: got %q, want %q; it requires a restart: %t", tt.name, got, tt.want, compared.Restart)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := config.Load(write("good.yaml", header+gpus+"clientConnection: {kubeconfig: ../kube/config}\nserving: {tls: {certFile: tls/a.crt, keyFile: /abs/a.key}}\n"), types)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.ClientConnection.Kubeconfig, c.Serving.TLS.CertFile, c.Serving.TLS.KeyFile, c.Serving.TLS.ClientCAFile}
	want := []string{filepath.Join(filepath.Dir(dir), "kube/config"), filepath.Join(dir, "tls/a.crt"), "/abs/a.key", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if _, err := config.Load(filepath.Join(dir, "missing.yaml"), types); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := config.Load(dir, types); err == nil {
		t.Error("Load accepts a directory")
	}
	long := write("long.yaml", minimal+strings.Repeat("#", 1<<20))
	var errs config.Errors
	if _, err := config.Load(long, types); !errors.As(err, &errs) || errs[0].File != long || errs[0].Line != 0 {
		t.Errorf("long file: %v", err)
	}
	bad := write("bad.yaml", minimal+"    weight: -1\n")
	if _, err := config.Load(bad, types); !errors.As(err, &errs) {
		t.Fatalf("bad file: %v", err)
	}
	wantErr := config.Error{File: bad, Line: 7, Path: "profiles[0].policies[0].weight", Kind: "Invalid value", Value: "-1", Rule: "must be between 0 and 100"}
	if len(errs) != 1 || *errs[0] != wantErr {
		t.Errorf("got %+v, want %+v", *errs[0], wantErr)
	}
}

// FuzzParse: no file makes Parse panic, and the effective configuration of a valid file loads to
// the same configuration.
func FuzzParse(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f", data, types)
		if err == nil {
			text := effective(t, c)
			again, err := config.Parse("/elsewhere/f", []byte(text), types)
			if err != nil {
				t.Fatalf("effective configuration: %v\n%s", err, text)
			}
			if other := effective(t, again); text != other {
				t.Fatalf("was:\n%s\nis:\n%s", text, other)
			}
			return
		}
		errs, ok := err.(config.Errors)
		if !ok || len(errs) != strings.Count(err.Error(), "\n")+1 {
			t.Fatalf("%T: %d errors: %v", err, len(errs), err)
		}
		byLine := func(a, b *config.Error) int { return a.Line - b.Line }
		if len(errs) <= 100 && !slices.IsSortedFunc(errs, byLine) {
			t.Fatalf("not ordered by line:\n%v", err)
		}
	})
}
