package e2e

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
)

const sharedGPUs = mutualTLS + `
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
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "gpu-node", Resources: map[string]string{"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"}})
	shared := map[string]string{"aliyun.com/gpu-mem": "4"}
	// It was bound before Outboard ran, so it is not new. It makes the second look at the cluster come soon.
	th.create(controlplane.PodSpec{Name: "earlier", NodeName: "gpu-node", Resources: shared, Annotations: map[string]string{"ALIYUN_COM_GPU_MEM_IDX": "0"}})
	a, b := th.outboard(sharedGPUs), th.outboard(sharedGPUs)
	p := th.prometheus(fmt.Sprintf(`
global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [%q]
scrape_configs:
- {job_name: outboard, static_configs: [{targets: [%q, %q]}]}
`, impatient(t, th.Root), strings.TrimPrefix(a.Admin, "http://"), strings.TrimPrefix(b.Admin, "http://")))
	th.fires(p)

	th.create(controlplane.PodSpec{Name: "untried", SchedulerName: "nobody", Resources: shared})
	th.misroute(a, controlplane.PodSpec{Name: "past", Resources: shared})
	th.callWithShortCertificate(a)
	th.reconfigure(b, "shortlist: 5\n")
	th.fires(p,
		"OutboardAuditFindings unannotated", "OutboardBypassed", "OutboardCallerCertificateExpires kube-scheduler", "OutboardCallsNotServed filter",
		"OutboardConfigurationsDiffer", "OutboardHandshakesFail plaintext", "OutboardHandshakesFail rejected_by_client",
		"OutboardNotCalled", "OutboardPodsBoundWithoutClaim", "OutboardRestartRequired")

	b.Kill()
	th.firesAmongOthers(p, "OutboardReplicaDown")
	a.Kill()
	th.firesAmongOthers(p, "OutboardDown")
}

// misroute lets kube-scheduler place the pod with three entries for Outboard that are ignorable and wrong: their calls have another path, no
// TLS, and a CA that did not issue Outboard's certificate.
func (th *theater) misroute(o *stage.Outboard, spec controlplane.PodSpec) {
	th.t.Helper()
	other, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	dir := th.t.TempDir()
	if err := other.Pair().WriteFiles(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")); err != nil {
		th.t.Fatal(err)
	}
	plain, untrusted := *o, *o
	plain.URL, plain.CAFile = strings.Replace(o.URL, "https:", "http:", 1), ""
	untrusted.CAFile = filepath.Join(dir, "ca.crt")
	th.scheduler(schedulerConfig(
		extender{o: o, path: "/gpushare-scheduler", verbs: "filter", ignorable: true},
		extender{o: &plain, verbs: "filter", ignorable: true},
		extender{o: &untrusted, verbs: "filter", ignorable: true},
	))
	th.bound(spec)
}

// callWithShortCertificate calls as kube-scheduler, with a certificate that is valid for a day.
func (th *theater) callWithShortCertificate(o *stage.Outboard) {
	th.t.Helper()
	pair, err := th.Authority().Issue(certs.Request{CommonName: "kube-scheduler", Client: true, NotAfter: time.Now().Add(24 * time.Hour)})
	if err != nil {
		th.t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		th.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(th.Authority().Pair().Cert)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
	}}
	res, err := client.Get(o.URL + "/")
	if err != nil {
		th.t.Fatal(err)
	}
	res.Body.Close()
}

// reconfigure adds a line to the profile at the end of the configuration, and changes a field that is read only at the start.
func (th *theater) reconfigure(o *stage.Outboard, line string) {
	th.t.Helper()
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		th.t.Fatal(err)
	}
	changed := strings.Replace(string(text), "- policies:", "- "+line+"  policies:", 1)
	changed = strings.Replace(changed, "log:\n", "log:\n  level: Debug\n", 1)
	if err := os.WriteFile(o.ConfigFile, []byte(changed), 0o600); err != nil {
		th.t.Fatal(err)
	}
	th.logs(o, "reloaded the configuration")
}

// prometheus starts a Prometheus server with the configuration.
func (th *theater) prometheus(config string) *controlplane.Prometheus {
	th.t.Helper()
	p, err := controlplane.StartPrometheus(th.ctx, controlplane.PrometheusOptions{Config: config})
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			th.t.Error(err)
		}
	})
	return p
}

// fires waits until exactly these alerts fire, each with the value of the label that tells it from others with its name.
func (th *theater) fires(p *controlplane.Prometheus, want ...string) {
	th.t.Helper()
	th.awaitAlerts(p, func(firing []string) bool { return slices.Equal(firing, want) }, "exactly", want)
}

// firesAmongOthers waits until the alert fires.
func (th *theater) firesAmongOthers(p *controlplane.Prometheus, want string) {
	th.t.Helper()
	th.awaitAlerts(p, func(firing []string) bool { return slices.Contains(firing, want) }, "also", []string{want})
}

func (th *theater) awaitAlerts(p *controlplane.Prometheus, ok func([]string) bool, how string, want []string) {
	th.t.Helper()
	for {
		firing := th.firing(p)
		if ok(firing) {
			return
		}
		select {
		case <-th.ctx.Done():
			th.t.Fatalf("%q fire, want %s %q", firing, how, want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// firing returns the alerts that fire, in order, once Prometheus has read both replicas at some time.
func (th *theater) firing(p *controlplane.Prometheus) []string {
	th.t.Helper()
	var read struct {
		Data struct{ Result []any }
	}
	th.query(p, "query?query=count_over_time(outboard_build_info[10m])", &read)
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
	th.query(p, "rules", &rules)
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

func (th *theater) query(p *controlplane.Prometheus, path string, into any) {
	th.t.Helper()
	if err := json.Unmarshal([]byte(th.get("http://"+p.Address+"/api/v1/"+path)), into); err != nil {
		th.t.Fatal(err)
	}
}
