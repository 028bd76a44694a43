package wiring_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

const (
	mutualTLS = "serving:\n  address: 0.0.0.0:8443\n  tls: {certFile: server.crt, keyFile: server.key, clientCAFile: ca.crt}\n"
	gpus      = "- path: /gpu\n  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}, {name: example.com/more, ignoredByScheduler: true}]\n  policies: [{type: GPUMemory, weight: 5}, {type: ImageLocality}]\n"
	images    = "- path: /images\n  policies: [{type: ImageLocality, weight: 2}]\n"
)

// load parses a configuration without its header. Without serving, it serves plain HTTP.
func load(tb testing.TB, text string) *config.Config {
	tb.Helper()
	if !strings.Contains(text, "serving:") {
		text = "serving: {insecure: true}\n" + text
	}
	c, err := config.Parse("outboard.yaml", []byte("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\n"+text), config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// strictly decodes a KubeSchedulerConfiguration as kube-scheduler does: unknown fields are errors.
func strictly(tb testing.TB, text []byte) schedulerv1.KubeSchedulerConfiguration {
	tb.Helper()
	var c schedulerv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	return c
}

func TestExtenders(t *testing.T) {
	soft := schedulerv1.Extender{ // of policies that only score
		PrioritizeVerb: "prioritize", Weight: 1,
		NodeCacheCapable: true, Ignorable: true, HTTPTimeout: metav1.Duration{Duration: time.Second},
	}
	strict := schedulerv1.Extender{
		FilterVerb: "filter", PrioritizeVerb: "prioritize", PreemptVerb: "preempt", BindVerb: "bind", Weight: 1,
		NodeCacheCapable: true, HTTPTimeout: metav1.Duration{Duration: 3 * time.Second},
	}
	with := func(e schedulerv1.Extender, change func(*schedulerv1.Extender)) schedulerv1.Extender {
		change(&e)
		return e
	}
	tls := func(e *schedulerv1.Extender) {
		e.EnableHTTPS = true
		e.TLSConfig = &schedulerv1.ExtenderTLSConfig{
			CAFile: "/etc/kubernetes/outboard/ca.crt", CertFile: "/etc/kubernetes/outboard/client.crt", KeyFile: "/etc/kubernetes/outboard/client.key",
		}
	}
	for _, tt := range []struct {
		name, config string
		options      wiring.Options
		want         []schedulerv1.Extender
	}{
		{"a profile that scores", "profiles:\n" + images, wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) { e.URLPrefix, e.Weight = "http://127.0.0.1:8888/images", 2 })}},
		{"strict before soft", "profiles:\n" + images + gpus, wiring.Options{}, []schedulerv1.Extender{
			with(strict, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight = "http://127.0.0.1:8888/gpu", 6
				e.ManagedResources = []schedulerv1.ExtenderManagedResource{{Name: "aliyun.com/gpu-mem"}, {Name: "aliyun.com/gpu-count"}, {Name: "example.com/more", IgnoredByScheduler: true}}
			}),
			with(soft, func(e *schedulerv1.Extender) { e.URLPrefix, e.Weight = "http://127.0.0.1:8888/images", 2 }),
		}},
		{"managed resources that nothing allocates need no bind", "profiles:\n- managedResources: [{name: example.com/x}]\n  policies: [{type: ImageLocality}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.BindVerb = "http://127.0.0.1:8888", ""
				e.ManagedResources = []schedulerv1.ExtenderManagedResource{{Name: "example.com/x"}}
			})}},
		{"allocation without managed resources", "profiles:\n- managedResources: []\n  policies: [{type: GPUMemory}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) { e.URLPrefix = "http://127.0.0.1:8888" })}},
		{"managed resources follow from the policies", "profiles:\n- policies: [{type: GPUMemory}, {type: Devices, config: {resource: example.com/fpga}}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight = "http://127.0.0.1:8888", 2
				e.ManagedResources = []schedulerv1.ExtenderManagedResource{{Name: "aliyun.com/gpu-mem"}, {Name: "aliyun.com/gpu-count"}, {Name: "example.com/fpga"}}
			})}},
		{"strict on demand", "profiles:\n" + images, wiring.Options{Strict: true},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) { e.URLPrefix, e.Weight = "http://127.0.0.1:8888/images", 2 })}},
		{"a filter without scores", "profiles:\n- policies: [{type: PodLimit, weight: 0, config: {max: 1, selector: {}}}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.FilterVerb, e.PrioritizeVerb, e.Weight = "http://127.0.0.1:8888", "filter", "", 0
			})}},
		{"a filter and scores", "profiles:\n- policies: [{type: ImageLocality}, {type: Rules, config: {filters: [{name: none, expression: \"false\"}]}}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.FilterVerb, e.Weight = "http://127.0.0.1:8888", "filter", 1
			})}},
		{"rules that score", "profiles:\n- policies: [{type: Rules, config: {scores: [{name: one, expression: \"1\"}]}}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) { e.URLPrefix = "http://127.0.0.1:8888" })}},
		{"a shortlist", "profiles:\n- shortlist: 3\n  policies: [{type: ImageLocality}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) { e.URLPrefix, e.FilterVerb = "http://127.0.0.1:8888", "filter" })}},
		{"scores without a weight", "profiles:\n- policies: [{type: ImageLocality, weight: 0}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.FilterVerb, e.PrioritizeVerb, e.Weight = "http://127.0.0.1:8888", "filter", "", 0
			})}},
		{"one verb at its own path", "profiles:\n- path: /a/image_score\n  verb: Prioritize\n  policies: [{type: ImageLocality}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.FilterVerb, e.PrioritizeVerb = "http://127.0.0.1:8888/a", "", "image_score"
			})}},
		{"one verb at the top", "profiles:\n- path: /place\n  verb: Bind\n  policies: [{type: ImageLocality}]\n", wiring.Options{},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.FilterVerb, e.PrioritizeVerb, e.PreemptVerb, e.BindVerb, e.Weight = "http://127.0.0.1:8888", "", "", "", "place", 0
			})}},
		{"without a cluster", "clientConnection: {enabled: false}\nprofiles:\n" + images, wiring.Options{Strict: true},
			[]schedulerv1.Extender{with(strict, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.NodeCacheCapable, e.PreemptVerb, e.BindVerb = "http://127.0.0.1:8888/images", 2, false, "", ""
			})}},
		{"one profile of two", mutualTLS + "profiles:\n" + images + gpus, wiring.Options{URL: "https://outboard.example:443/", Profiles: []string{"/images"}},
			[]schedulerv1.Extender{with(with(soft, tls), func(e *schedulerv1.Extender) { e.URLPrefix, e.Weight = "https://outboard.example:443/images", 2 })}},
		{"the IP address of a Service", mutualTLS + "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm, URL: "https://10.96.0.20"},
			[]schedulerv1.Extender{with(with(soft, tls), func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.TLSConfig.ServerName = "https://10.96.0.20/images", 2, "outboard.outboard-system.svc"
			})}},
		{"an IP address of any topology", mutualTLS + "profiles:\n" + images, wiring.Options{URL: "https://10.0.0.5:8443"},
			[]schedulerv1.Extender{with(with(soft, tls), func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.TLSConfig.ServerName = "https://10.0.0.5:8443/images", 2, "outboard.outboard-system.svc"
			})}},
		{"an IP address of any topology, as serving.address", strings.Replace(mutualTLS, "0.0.0.0", "10.0.0.5", 1) + "profiles:\n" + images, wiring.Options{},
			[]schedulerv1.Extender{with(with(soft, tls), func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.TLSConfig.ServerName = "https://10.0.0.5:8443/images", 2, "outboard.outboard-system.svc"
			})}},
		{"beside a static pod", mutualTLS + "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm, URL: "https://127.0.0.1:8443"},
			[]schedulerv1.Extender{with(with(soft, tls), func(e *schedulerv1.Extender) { e.URLPrefix, e.Weight = "https://127.0.0.1:8443/images", 2 })}},
		{"NodePort", mutualTLS + "profiles:\n" + images, wiring.Options{For: wiring.NodePort, CertificateDir: "/tls/"},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.EnableHTTPS = "https://127.0.0.1:32766/images", 2, true
				e.TLSConfig = &schedulerv1.ExtenderTLSConfig{CAFile: "/tls/ca.crt", CertFile: "/tls/client.crt", KeyFile: "/tls/client.key", ServerName: "outboard.outboard-system.svc"}
			})}},
		{"sidecar, server certificate only", "serving: {address: ':8443', insecure: true, tls: {certFile: a, keyFile: b}}\nprofiles:\n" + images, wiring.Options{For: wiring.Sidecar},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.EnableHTTPS = "https://127.0.0.1:8443/images", 2, true
				e.TLSConfig = &schedulerv1.ExtenderTLSConfig{CAFile: "/etc/kubernetes/outboard/ca.crt"}
			})}},
		{"Service", mutualTLS + "profiles:\n" + images, wiring.Options{For: wiring.Service},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.EnableHTTPS = "https://outboard.outboard-system.svc/images", 2, true
				e.TLSConfig = &schedulerv1.ExtenderTLSConfig{CAFile: "/etc/kubernetes/outboard/ca.crt", CertFile: "/etc/kubernetes/outboard/tls.crt", KeyFile: "/etc/kubernetes/outboard/tls.key"}
			})}},
		{"Service, without serving: the chart adds TLS", "profiles:\n" + images, wiring.Options{For: wiring.Service},
			[]schedulerv1.Extender{with(soft, func(e *schedulerv1.Extender) {
				e.URLPrefix, e.Weight, e.EnableHTTPS = "https://outboard.outboard-system.svc/images", 2, true
				e.TLSConfig = &schedulerv1.ExtenderTLSConfig{CAFile: "/etc/kubernetes/outboard/ca.crt", CertFile: "/etc/kubernetes/outboard/tls.crt", KeyFile: "/etc/kubernetes/outboard/tls.key"}
			})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := wiring.New(load(t, tt.config), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strictly(t, w.YAML()).Extenders); diff != "" {
				t.Errorf("the extenders differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchedulers(t *testing.T) {
	named := "profiles:\n- schedulerNames: [gpu, default-scheduler]\n  policies: [{type: ImageLocality}]\n"
	for _, tt := range []struct {
		name, config string
		options      wiring.Options
		want         string // names of kube-scheduler's profiles
		lease        string
	}{
		{"of any scheduler", "profiles:\n" + images, wiring.Options{}, "", ""},
		{"the cluster's own serves other names, too", named, wiring.Options{}, "default-scheduler gpu", ""},
		{"the name that the profile accepts", "profiles:\n- schedulerNames: [gpu]\n  policies: [{type: ImageLocality}]\n", wiring.Options{For: wiring.Sidecar}, "gpu", "gpu"},
		{"the default name", "profiles:\n" + images, wiring.Options{For: wiring.Service}, "outboard-scheduler", "outboard-scheduler"},
		{"a name at a NodePort", "profiles:\n" + images, wiring.Options{For: wiring.NodePort, SchedulerName: "a"}, "a", "a"},
		{"a name anywhere", "profiles:\n" + images, wiring.Options{SchedulerName: "a"}, "a", "a"},
		{"not the name of the cluster's own", "profiles:\n- schedulerNames: [default-scheduler, gpu]\n  policies: [{type: ImageLocality}]\n", wiring.Options{For: wiring.Service}, "gpu", "gpu"},
		{"a name that is given", named, wiring.Options{For: wiring.Service, SchedulerName: "gpu"}, "gpu", "gpu"},
		{"kubeadm", "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm}, "", "kube-scheduler"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := wiring.New(load(t, tt.config), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			c := strictly(t, w.YAML())
			var names []string
			for _, p := range c.Profiles {
				names = append(names, *p.SchedulerName)
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("the schedulers are %q, want %q", got, tt.want)
			}
			if elects := c.LeaderElection.LeaderElect != nil && *c.LeaderElection.LeaderElect; elects != (tt.lease != "") {
				t.Errorf("leaderElect is %t", elects)
			}
			if got := c.LeaderElection.ResourceName; tt.lease != "kube-scheduler" && got != tt.lease {
				t.Errorf("the lease is %q, want %q", got, tt.lease)
			}
		})
	}
}

// The pods of a scheduler that bind does not accept stay pending: all of them is an error, and those that request a managed resource are in
// a comment.
func TestSchedulerNotAccepted(t *testing.T) {
	for _, tt := range []struct {
		name, profile string
		options       wiring.Options
		err, comment  string
	}{
		{"every pod", "- managedResources: []\n  schedulerNames: [gpu]\n  policies: [{type: GPUMemory}]\n", wiring.Options{},
			"profile / is for every pod, and binds pods of gpu only, so that those of default-scheduler would stay pending", ""},
		{"every pod, with the default scheduler", "- managedResources: []\n  schedulerNames: [gpu, default-scheduler]\n  policies: [{type: GPUMemory}]\n", wiring.Options{}, "", ""},
		{"every pod of a second scheduler", "- managedResources: []\n  schedulerNames: [gpu]\n  policies: [{type: GPUMemory}]\n", wiring.Options{SchedulerName: "gpu"}, "", ""},
		{"a profile that does not bind", "- schedulerNames: [gpu]\n  policies: [{type: ImageLocality}]\n", wiring.Options{}, "", ""},
		{"some pods", "- schedulerNames: [gpu]\n  policies: [{type: GPUMemory}]\n", wiring.Options{}, "",
			"Profile / binds pods of gpu only. This kube-scheduler also places the other pods of default-scheduler: those that request a managed resource of the profile stay pending."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := wiring.New(load(t, "profiles:\n"+tt.profile), tt.options)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("the error is %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			comments := strings.Join(strings.Fields(strings.ReplaceAll(string(w.YAML()), "#", "")), " ")
			if !strings.Contains(comments, tt.comment) || strings.Contains(comments, "binds pods of") != (tt.comment != "") {
				t.Errorf("the comment is not %q:\n%s", tt.comment, w.YAML())
			}
		})
	}
}

// A kube-scheduler in another pod does not reach a loopback address, unless the chart or a proxy changes what the file says.
func TestLoopbackAddress(t *testing.T) {
	const tls = "serving: {tls: {certFile: server.crt, keyFile: server.key, clientCAFile: ca.crt}}\n"
	local := strings.Replace(tls, "{tls", "{address: 'localhost:9000', tls", 1)
	const problem = "a loopback address, which only callers on the same machine or in the same pod reach: set serving.address: 0.0.0.0:8443"
	for _, tt := range []struct {
		name, serving string
		options       wiring.Options
		err, note     string
	}{
		{"a Service", tls, wiring.Options{For: wiring.Service}, "serving.address is 127.0.0.1:8443, " + problem, ""},
		{"a Service at another URL", tls, wiring.Options{For: wiring.Service, URL: "https://10.96.0.20"}, "serving.address is 127.0.0.1:8443, " + problem, ""},
		{"a NodePort", local, wiring.Options{For: wiring.NodePort}, "serving.address is localhost:9000, " + problem, ""},
		{"the chart", "", wiring.Options{For: wiring.Service}, "", "serving.address is 127.0.0.1:8888, " + problem + " with serving.tls, unless the Helm chart installs the file: the chart sets both"},
		{"another host", local, wiring.Options{URL: "https://10.0.0.5"}, "", "serving.address is localhost:9000, " + problem + ", unless something on the machine of Outboard forwards the calls"},
		{"the same host", local, wiring.Options{}, "", ""},
		{"the same host by a URL", local, wiring.Options{For: wiring.Kubeadm, URL: "https://127.0.0.1:9000"}, "", ""},
		{"the same pod", tls, wiring.Options{For: wiring.Sidecar}, "", ""},
		{"all addresses", mutualTLS, wiring.Options{For: wiring.Service}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := wiring.New(load(t, tt.serving+"profiles:\n"+images), tt.options)
			if err != nil {
				if err.Error() != tt.err {
					t.Errorf("the error is %q, want %q", err, tt.err)
				}
				return
			}
			if tt.err != "" || w.Note() != tt.note {
				t.Errorf("the note is %q, want %q, and the error %q", w.Note(), tt.note, tt.err)
			}
		})
	}
}

// The namespace of Outboard is in the URL of the Service, in the name of the certificate, and in the
// lease.
func TestNamespace(t *testing.T) {
	for options, want := range map[[2]string][3]string{
		{"service"}:         {"https://outboard.sched.svc/images", "", "sched"},
		{"sidecar"}:         {"https://127.0.0.1:8443/images", "", "sched"},
		{"nodeport"}:        {"https://127.0.0.1:32766/images", "outboard.sched.svc", ""},
		{"nodeport", "gpu"}: {"https://127.0.0.1:32766/images", "outboard.sched.svc", "sched"},
	} {
		topology := wiring.Topology(options[0])
		w, err := wiring.New(load(t, mutualTLS+"profiles:\n"+images), wiring.Options{For: topology, Namespace: "sched", SchedulerName: options[1]})
		if err != nil {
			t.Fatal(err)
		}
		c := strictly(t, w.YAML())
		e := c.Extenders[0]
		if c.LeaderElection.ResourceNamespace == "kube-system" {
			c.LeaderElection.ResourceNamespace = "" // the default of kube-scheduler
		}
		if got := [3]string{e.URLPrefix, e.TLSConfig.ServerName, c.LeaderElection.ResourceNamespace}; got != want {
			t.Errorf("for %q: %q, want %q", options, got, want)
		}
	}
}

// Hosts are DNS names and IP addresses.
func TestHosts(t *testing.T) {
	for url, name := range map[string]string{
		"https://outboard.example:65535": "",
		"https://10.96.0.20":             "outboard.outboard-system.svc",
		"https://[2001:db8::20]:1/":      "outboard.outboard-system.svc",
		"https://localhost":              "",
	} {
		w, err := wiring.New(load(t, mutualTLS+"profiles:\n"+images), wiring.Options{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		e := strictly(t, w.YAML()).Extenders[0]
		if want := strings.TrimRight(url, "/") + "/images"; e.URLPrefix != want || e.TLSConfig.ServerName != name {
			t.Errorf("urlPrefix is %q and serverName %q, want %q and %q", e.URLPrefix, e.TLSConfig.ServerName, want, name)
		}
	}
}

func TestErrors(t *testing.T) {
	two := "profiles:\n- path: /a\n  policies: [{type: GPUMemory}]\n- path: /b\n  policies: [{type: Devices, config: {resource: example.com/fpga}}]\n"
	for _, tt := range []struct {
		name, config string
		options      wiring.Options
		want         string
	}{
		{"two binders", two, wiring.Options{}, "one extender with bind, and the profiles /a, /b need it"},
		{"no such profile", two, wiring.Options{Profiles: []string{"/c"}}, `no profile has the path "/c": there are /a, /b`},
		{"any address", mutualTLS + "profiles:\n" + images, wiring.Options{}, "serving.address is 0.0.0.0:8443: give the URL by which kube-scheduler reaches Outboard with --url, or where kube-scheduler runs with --for"},
		{"any address, static pod", mutualTLS + "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm}, "no cluster DNS"},
		{"any port", "serving: {address: '127.0.0.1:0', insecure: true}\nprofiles:\n" + images, wiring.Options{}, "chosen at the start"},
		{"another scheme", mutualTLS + "profiles:\n" + images, wiring.Options{URL: "http://a:1"}, "must be https://"},
		{"another scheme", "profiles:\n" + images, wiring.Options{URL: "https://localhost:1"}, "must be http://"},
		{"plain HTTP to the Service", "profiles:\n" + images, wiring.Options{For: wiring.Service, URL: "http://outboard.outboard-system.svc"}, "must be https://: the configuration serves its own host only, and the chart adds serving.tls"},
		{"plain HTTP to the IP address of the Service", "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm, URL: "http://10.96.0.20"}, "must be https://: the configuration serves its own host only"},
		{"no scheme", mutualTLS + "profiles:\n" + images, wiring.Options{URL: "10.96.0.20:443"}, `--url="10.96.0.20:443": must begin with http:// or https://`},
		{"a path", "profiles:\n" + images, wiring.Options{URL: "http://a:1/images"}, "paths are those of the profiles"},
		{"no URL", "profiles:\n" + images, wiring.Options{URL: "a:1"}, "must be http://HOST:PORT"},
		{"no port", "profiles:\n" + images, wiring.Options{URL: "http://a:http"}, `--url="http://a:http": invalid port`},
		{"the cluster's own has a name", "profiles:\n" + images, wiring.Options{For: wiring.Kubeadm, URL: "https://10.96.0.20", SchedulerName: "a"}, "the scheduler of --for kubeadm is the cluster's own"},
		{"a name that no lease can have", "profiles:\n" + images, wiring.Options{For: wiring.Sidecar, SchedulerName: "GPU_scheduler"}, `scheduler name "GPU_scheduler": it is also the name of a lease, so `},
		{"the name of the cluster's own", "profiles:\n" + images, wiring.Options{For: wiring.Service, SchedulerName: "default-scheduler"}, `scheduler name "default-scheduler": it is that of the cluster's own scheduler`},
		{"the name of the cluster's own at a NodePort", "profiles:\n" + images, wiring.Options{For: wiring.NodePort, SchedulerName: "default-scheduler"}, `scheduler name "default-scheduler": it is that of the cluster's own scheduler`},
		{"no namespace", "profiles:\n" + images, wiring.Options{Namespace: "a.b"}, `--outboard-namespace="a.b": `},
		{"a relative directory", "profiles:\n" + images, wiring.Options{CertificateDir: "tls"}, `certificate directory "tls": must be an absolute path`},
		{"a scheduler whose pods are not bound", "profiles:\n- schedulerNames: [gpu]\n  policies: [{type: ImageLocality}]\n", wiring.Options{For: wiring.Service, SchedulerName: "a"}, "binds pods of gpu only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wiring.New(load(t, tt.config), tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want it to say %q", err, tt.want)
			}
		})
	}
}

// TestGolden runs testdata/*.txtar: each has a configuration, outboard.yaml, followed by what is
// written for it. Run with -update to write what is now.
func TestGolden(t *testing.T) {
	golden(t, "testdata/*.txtar", func(t *testing.T, file txtar.File) (written []txtar.File) {
		c, err := config.Parse(file.Name, file.Data, config.Types{Policies: standard.Types(), Signals: signals.Types()})
		if err != nil {
			t.Fatal(err)
		}
		kubeadm, err := wiring.New(c, wiring.Options{For: wiring.Kubeadm, URL: "https://10.96.0.20"})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range kubeadm.Kubeadm() {
			written = append(written, txtar.File{Name: f.Name, Data: f.Data})
		}
		service, err := wiring.New(c, wiring.Options{For: wiring.Service})
		if err != nil {
			t.Fatal(err)
		}
		return append(written, txtar.File{Name: "service.yaml", Data: service.YAML()})
	})
}

// golden compares each archive that matches the pattern with its first file and what write returns for that. With -update, it writes
// the archive instead.
func golden(t *testing.T, pattern string, write func(t *testing.T, input txtar.File) []txtar.File) {
	archives, err := filepath.Glob(pattern)
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			input := archive.Files[0]
			got := &txtar.Archive{Comment: archive.Comment, Files: append([]txtar.File{input}, write(t, input)...)}
			if *update {
				if err := os.WriteFile(name, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

// In the cluster's own kube-scheduler, an entry that is strict for every pod also holds back
// Outboard's own pods. Those never use a second kube-scheduler.
func TestStrictForEveryPodConcernsOutboardsPods(t *testing.T) {
	for topology, concerns := range map[wiring.Topology]bool{
		"": true, wiring.Kubeadm: true, wiring.NodePort: true, wiring.Service: false, wiring.Sidecar: false,
	} {
		for _, profile := range []string{"{policies: [{type: ImageLocality}]}", "{managedResources: [], policies: [{type: GPUMemory}]}"} {
			w, err := wiring.New(load(t, mutualTLS+"profiles: ["+profile+"]"), wiring.Options{For: topology, Strict: true, URL: "https://outboard.example"})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(strings.Fields(strings.ReplaceAll(string(w.YAML()), "#", "")), " ")
			if !strings.Contains(text, "Strict, and for every pod") || strings.Contains(text, "not even Outboard's own") != concerns {
				t.Errorf("for %q, %s:\n%s", topology, profile, w.YAML())
			}
		}
	}
}
