package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
)

// One scheduler has a required extender and an ignorable one. Without the ignorable one,
// kube-scheduler places pods anyway. Without the required one, they wait, and kube-scheduler places
// them when it is back.
func TestStrictAndIgnorable(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b", Images: map[string]int64{nginx: 1 << 27}})
	strict := th.outboard(oneWeb)
	ignorable := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies: [{type: ImageLocality}]
`)
	th.scheduler(schedulerConfig(
		extender{o: strict, verbs: "filter"},
		extender{o: ignorable, verbs: "filter prioritize", ignorable: true},
	))
	both := controlplane.PodSpec{Name: "both", Image: "nginx"}
	if pod := th.bound(both); pod.Spec.NodeName != "b" {
		t.Errorf("both is on %s, the image on b", pod.Spec.NodeName)
	}

	ignorable.Kill()
	<-ignorable.Done()
	th.bound(controlplane.PodSpec{Name: "without-the-ignorable"})

	strict.Kill()
	<-strict.Done()
	waiting := th.create(controlplane.PodSpec{Name: "without-the-strict"})
	event, err := controlplane.WaitForPodEvent(th.ctx, th.Client, waiting, "FailedScheduling")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(event.Message, strict.URL) {
		t.Errorf("the event is %q", event.Message)
	}
	if err := strict.Start(th.ctx); err != nil {
		t.Fatal(err)
	}
	// A cluster event makes kube-scheduler retry.
	th.nodes(controlplane.NodeSpec{Name: "c"})
	th.awaitBound(waiting)
}

// A caller without the right certificate changes nothing.
func TestWrongCertificateChangesNothing(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(webLimit + mutualTLS)
	pod := th.create(controlplane.PodSpec{Name: "target", SchedulerName: "nobody"})
	body := `{"PodName":"target","PodNamespace":"default","PodUID":"` + string(pod.UID) + `","Node":"a"}`

	call := func(client *tls.Certificate) (status int, answer string, err error) {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		config := &tls.Config{RootCAs: roots}
		if client != nil {
			config.Certificates = []tls.Certificate{*client}
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(th.ctx, http.MethodPost, o.URL+"/bind", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, string(text), err
	}
	certificate := func(issuer *certs.Authority, name string) *tls.Certificate {
		pair, err := issuer.Issue(certs.Request{CommonName: name, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	stranger, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*tls.Certificate{
		"no certificate":     nil,
		"another authority":  certificate(stranger, "kube-scheduler"),
		"another name":       certificate(th.Authority(), "kubelet"),
		"a name that begins": certificate(th.Authority(), "kube-scheduler-2"),
	} {
		status, answer, err := call(client)
		known := name == "another name" || name == "a name that begins" // such a caller gets the reason, as kube-scheduler shows it in the pod's events
		if known != (err == nil) || known && (status != http.StatusOK || !strings.Contains(answer, "is not allowed to call: add a name of its certificate to serving.tls.allowedClients")) {
			t.Errorf("%s: the response is %d %s, %v", name, status, answer, err)
		}
	}
	now, err := th.Client.CoreV1().Pods("default").Get(th.ctx, "target", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.Spec.NodeName != "" || now.ResourceVersion != pod.ResourceVersion {
		t.Errorf("the pod was changed: %+v", now)
	}
	// A caller with the right certificate is permitted.
	if status, answer, err := call(certificate(th.Authority(), "kube-scheduler")); err != nil || status != http.StatusOK || answer != `{"Error":""}` {
		t.Errorf("the right certificate: %d %s %v", status, answer, err)
	}
	th.awaitBound(pod)
}

// The service follows the configuration file; an invalid one changes nothing, and the log shows it.
func TestReload(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(oneWeb)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter"}))
	th.boundAndSeen(o, web("web-1"))
	second := th.place(web("web-2"))
	if second.Waiting == "" {
		t.Fatal("web-2 is placed before the limit was raised")
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text []byte) { // atomically: half a file would also be invalid
		if err := th.WriteFile(filepath.Base(o.ConfigFile), text); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Replace(text, []byte("max: 1"), []byte("maximum: 1"), 1))
	th.eventually("the invalid file is reported", func() bool {
		return th.metric(o, `outboard_config_reloads_total{outcome="error"} `) == "1"
	})
	th.logs(o, "maximum")
	if doc := th.explainPending(o, "web-2"); len(doc.Now) != 1 || doc.Now[0].Fit != 0 {
		t.Errorf("the former configuration is not in use: %+v", doc)
	}
	write(bytes.Replace(text, []byte("max: 1"), []byte("max: 2"), 1))
	th.eventually("the valid file is in force", func() bool {
		return th.metric(o, `outboard_config_reloads_total{outcome="success"} `) == "1"
	})
	th.willBeBound(second.Pod)
}

// A reload starts what the first policy with claims needs, once the CRD is installed.
func TestReloadStartsLedgers(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 16))
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgers.outboard.dev"
	if err := th.Client.Discovery().RESTClient().Delete().AbsPath(path).Do(th.ctx).Error(); err != nil {
		t.Fatal(err)
	}
	o := th.outboard(strings.Replace(gpushare, "{type: GPUMemory, weight: 1}", "{type: ImageLocality}", 1))
	th.scheduler(gpushareScheduler(o))
	th.boundAndSeen(o, gpuPod("before", 1))
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("type: ImageLocality"), []byte("type: GPUMemory"), 1)
	if err := th.WriteFile(filepath.Base(o.ConfigFile), text); err != nil {
		t.Fatal(err)
	}
	th.eventually("/readyz says what is missing", func() bool {
		ready := th.get(o.Admin + "/readyz")
		return strings.Contains(ready, "[!] cannot reload the configuration") && strings.Contains(ready, installLedgers) && !strings.Contains(ready, "[-]")
	})
	if got := th.metric(o, "outboard_config_last_reload_successful "); got != "0" {
		t.Errorf("the gauge is %q", got)
	}
	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "chart", "crds", "ledgers.yaml"))
	th.eventually("the configuration is in force", func() bool { return th.metric(o, "outboard_config_last_reload_successful ") == "1" })
	if got := th.metric(o, `outboard_cluster_synced{resource="ledgers"} `); got != "1" {
		t.Errorf("the metric of the resource is %q", got)
	}
	pod := th.bound(gpuPod("after", 16))
	if pod.Annotations[gpuIndex] == "" {
		t.Errorf("the pod has no GPU: %v", pod.Annotations)
	}
	claimed := false
	for _, l := range th.ledgers() {
		claimed = claimed || slices.ContainsFunc(l.Spec.Pods, func(p snapshot.LedgerPod) bool { return p.UID == pod.UID })
	}
	if !claimed {
		t.Errorf("no ledger has a claim of the pod: %+v", th.ledgers())
	}
}

// A replica that is stopping serves until it gets no more calls.
func TestStopLosesNoCall(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(strings.Replace(oneWeb, "insecure: true", "insecure: true, shutdownDelay: 3s", 1))
	body := `{"Pod":{"metadata":{"name":"p","namespace":"default"}},"NodeNames":["a"]}`
	ctx, cancel := context.WithCancel(th.ctx)
	defer cancel()
	stopped := make(chan error, 1)
	calls := 0
	for {
		if calls == 100 {
			go func() { stopped <- o.Stop() }()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL+"/filter", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("call %d: %v", calls, err)
		}
		answer, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(answer), `"NodeNames":["a"]`) {
			t.Fatalf("call %d: %s %v", calls, answer, err)
		}
		calls++
		if calls > 100 && res.Close {
			break // the response asks the caller to close the connection
		}
	}
	if res, err := http.Get(o.Admin + "/readyz"); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("/readyz responds %s while stopping", res.Status)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("outboard ended: %v", err)
	}
}
