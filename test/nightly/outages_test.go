package nightly

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

const sharedGPUs = theater.MutualTLS + `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
profiles:
- policies: [{type: GPUMemory}]
`

// impatient are the alerts of the chart without the time for which a condition must hold, and with smaller numbers in conditions.
func impatient(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAll(text, nil)
	short := string(text)
	for _, change := range [][2]string{
		{`outboard_request_duration_seconds_count[15m]`, `outboard_request_duration_seconds_count[5s]`},
		{`{reason=~"not_tried|scheduler_error"}) > 600`, `{reason=~"not_tried|scheduler_error"}) > 1`},
		{`max(outboard_recently_bound_pods) >= 5`, `max(outboard_recently_bound_pods) >= 1`},
	} {
		if !strings.Contains(short, change[0]) {
			t.Fatalf("the alerts have no %s", change[0])
		}
		short = strings.ReplaceAll(short, change[0], change[1])
	}
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(file, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A real Prometheus server reads two replicas, with the alerts of the chart. Nothing fires while nothing is wrong. Then each alert about
// what is wrong fires, and no other.
func TestOutagesFireAlerts(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "gpu-node", Resources: map[string]string{"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"}})
	shared := map[string]string{"aliyun.com/gpu-mem": "4"}
	// It was bound before Outboard ran, so it is not new. It makes the second look at the cluster come soon.
	th.Create(controlplane.PodSpec{Name: "earlier", NodeName: "gpu-node", Resources: shared, Annotations: map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0"}})
	a, b := th.Outboard(sharedGPUs), th.Outboard(sharedGPUs)
	p := startPrometheus(th, fmt.Sprintf(`
global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [%q]
scrape_configs:
- {job_name: outboard, static_configs: [{targets: [%q, %q]}]}
`, impatient(t, th.Root), strings.TrimPrefix(a.Admin, "http://"), strings.TrimPrefix(b.Admin, "http://")))
	fires(th, p)

	th.Create(controlplane.PodSpec{Name: "untried", SchedulerName: "nobody", Resources: shared})
	misroute(th, a, controlplane.PodSpec{Name: "past", Resources: shared})
	callWithShortCertificate(th, a)
	reconfigure(th, b, "shortlist: 5\n")
	fires(th, p,
		"OutboardAuditFindings unannotated", "OutboardBypassed", "OutboardCallerCertificateExpires kube-scheduler", "OutboardCallsNotServed filter",
		"OutboardConfigurationsDiffer", "OutboardHandshakesFail plaintext", "OutboardHandshakesFail rejected_by_client",
		"OutboardNotCalled", "OutboardPodsBoundWithoutAllocation", "OutboardRestartRequired")

	b.Kill()
	firesAmongOthers(th, p, "OutboardReplicaDown")
	a.Kill()
	firesAmongOthers(th, p, "OutboardDown")
}

// misroute lets kube-scheduler place the pod with three entries for Outboard that are ignorable and wrong: their calls have another path, no
// TLS, and a CA that did not issue Outboard's certificate.
func misroute(th *theater.Theater, o *stage.Outboard, spec controlplane.PodSpec) {
	th.T.Helper()
	other, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	dir := th.T.TempDir()
	if err := other.Pair().WriteFiles(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")); err != nil {
		th.T.Fatal(err)
	}
	plain, untrusted := *o, *o
	plain.URL, plain.CAFile = strings.Replace(o.URL, "https:", "http:", 1), ""
	untrusted.CAFile = filepath.Join(dir, "ca.crt")
	th.Scheduler(theater.SchedulerConfig(
		theater.Extender{Outboard: o, Path: "/gpushare-scheduler", Verbs: "filter", Ignorable: true},
		theater.Extender{Outboard: &plain, Verbs: "filter", Ignorable: true},
		theater.Extender{Outboard: &untrusted, Verbs: "filter", Ignorable: true},
	))
	th.Bound(spec)
}

// callWithShortCertificate calls as kube-scheduler, with a certificate that is valid for a day.
func callWithShortCertificate(th *theater.Theater, o *stage.Outboard) {
	th.T.Helper()
	pair, err := th.Authority().Issue(certs.Request{CommonName: "kube-scheduler", Client: true, NotAfter: time.Now().Add(24 * time.Hour)})
	if err != nil {
		th.T.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		th.T.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(th.Authority().Pair().Cert)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
	}}
	res, err := client.Get(o.URL + "/")
	if err != nil {
		th.T.Fatal(err)
	}
	res.Body.Close()
}

// reconfigure adds a line to the profile at the end of the configuration, and changes a field that is read only at the start.
func reconfigure(th *theater.Theater, o *stage.Outboard, line string) {
	th.T.Helper()
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		th.T.Fatal(err)
	}
	changed := strings.Replace(string(text), "- policies:", "- "+line+"  policies:", 1)
	changed = strings.Replace(changed, "log:\n", "log:\n  level: Debug\n", 1)
	if err := os.WriteFile(o.ConfigFile, []byte(changed), 0o600); err != nil {
		th.T.Fatal(err)
	}
	th.Logs(o, "reloaded the configuration")
}

// startPrometheus starts a Prometheus server with the configuration.
func startPrometheus(th *theater.Theater, config string) *controlplane.Prometheus {
	th.T.Helper()
	p, err := controlplane.StartPrometheus(th.Ctx, controlplane.PrometheusOptions{Config: config})
	if err != nil {
		th.T.Fatal(err)
	}
	th.T.Cleanup(func() {
		if err := p.Stop(); err != nil {
			th.T.Error(err)
		}
	})
	return p
}

// fires waits until exactly these alerts fire, each with the value of the label that tells it from others with its name.
func fires(th *theater.Theater, p *controlplane.Prometheus, want ...string) {
	th.T.Helper()
	awaitAlerts(th, p, func(firing []string) bool { return slices.Equal(firing, want) }, "exactly", want)
}

// firesAmongOthers waits until the alert fires.
func firesAmongOthers(th *theater.Theater, p *controlplane.Prometheus, want string) {
	th.T.Helper()
	awaitAlerts(th, p, func(firing []string) bool { return slices.Contains(firing, want) }, "also", []string{want})
}

func awaitAlerts(th *theater.Theater, p *controlplane.Prometheus, ok func([]string) bool, how string, want []string) {
	th.T.Helper()
	for {
		firing := firing(th, p)
		if ok(firing) {
			return
		}
		select {
		case <-th.Ctx.Done():
			th.T.Fatalf("%q fire, want %s %q", firing, how, want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// firing returns the alerts that fire, in order, once Prometheus has read both replicas at some time.
func firing(th *theater.Theater, p *controlplane.Prometheus) []string {
	th.T.Helper()
	var read struct {
		Data struct{ Result []any }
	}
	query(th, p, "query?query=count_over_time(outboard_build_info[10m])", &read)
	if len(read.Data.Result) < 2 {
		return []string{"Prometheus has not read both replicas"}
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Health string
					Alerts []struct{ Labels map[string]string }
				}
			}
		}
	}
	query(th, p, "rules", &rules)
	var names []string
	for _, rule := range rules.Data.Groups[0].Rules {
		if rule.Health != "ok" {
			return []string{"Prometheus has not evaluated all alerts"}
		}
		for _, alert := range rule.Alerts {
			name := alert.Labels["alertname"]
			for _, label := range []string{"verb", "reason", "finding", "caller"} {
				if value := alert.Labels[label]; value != "" {
					name += " " + value
				}
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func query(th *theater.Theater, p *controlplane.Prometheus, path string, into any) {
	th.T.Helper()
	if err := json.Unmarshal([]byte(th.Get("http://"+p.Address+"/api/v1/"+path)), into); err != nil {
		th.T.Fatal(err)
	}
}
