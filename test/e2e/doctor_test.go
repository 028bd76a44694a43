package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// doctor runs outboard doctor on a file and returns its findings, and the corrected file.
func (th *theater) doctor(config string, args ...string) (codes []string, fixed string) {
	th.t.Helper()
	file := filepath.Join(th.t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		th.t.Fatal(err)
	}
	// The exit status shows whether there are errors.
	report, _ := exec.CommandContext(th.ctx, th.Binary(), append([]string{"doctor", file, "-o", "json"}, args...)...).Output()
	var found struct{ Findings []doctor.Finding }
	if err := json.Unmarshal(report, &found); err != nil {
		th.t.Fatalf("%v: %s", err, report)
	}
	for _, f := range found.Findings {
		codes = append(codes, f.Code)
	}
	_ = exec.CommandContext(th.ctx, th.Binary(), append([]string{"doctor", file, "--fix", "--write"}, args...)...).Run()
	text, err := os.ReadFile(file)
	if err != nil {
		th.t.Fatal(err)
	}
	return codes, string(text)
}

// diagnosed fails the test unless the doctor finds the code; it returns the corrected file.
func (th *theater) diagnosed(code, config string, args ...string) string {
	th.t.Helper()
	codes, fixed := th.doctor(config, args...)
	if !slices.Contains(codes, code) {
		th.t.Errorf("the doctor reports %v, and not %s", codes, code)
	}
	return fixed
}

// impostor is a server that passes all nodes, over HTTPS with a certificate that it has created
// itself, or over plain HTTP. It counts calls.
func impostor(t *testing.T, start func(http.Handler) *httptest.Server) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args struct{ NodeNames []string }
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		calls.Add(1)
		if err := json.NewEncoder(w).Encode(args); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, calls
}

// Without a CA kube-scheduler places a pod by the response of an impostor. With the doctor's
// corrected file it does not.
func TestDoctorUnverifiedHTTPS(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	url, calls := impostor(t, httptest.NewTLSServer)
	o := th.outboard(webLimit + mutualTLS) // for its CA
	config := strings.Replace(schedulerConfig(extender{o: o, verbs: "filter"}), o.URL, url, 1)
	config = config[:strings.Index(config, "  tlsConfig:")]
	fixed := th.diagnosed("UnverifiedHTTPS", config, "--certificate-dir", filepath.Dir(o.CAFile))

	scheduler := th.scheduler(config)
	th.bound(controlplane.PodSpec{Name: "first"})
	if calls.Load() == 0 {
		t.Error("the impostor got no call")
	}
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	calls.Store(0)
	th.scheduler(fixed)
	if placed := th.place(controlplane.PodSpec{Name: "second"}); !strings.Contains(placed.Waiting, "certificate") {
		t.Errorf("with a CA the pod waits because of %q", placed.Waiting)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("with a CA the impostor got %d calls", n)
	}
}

// If an ignorable binder does not respond, kube-scheduler binds pods without their allocations.
// With the doctor's corrected file the pods wait.
func TestDoctorIgnorableBinder(t *testing.T) {
	th := open(t)
	th.nodes(gpus("a", 1, 8))
	o := th.outboard(gpushare)
	config := strings.ReplaceAll(gpushareScheduler(o), "ignorable: false", "ignorable: true")
	fixed := th.diagnosed("IgnorableBinder", config, "--config", o.ConfigFile)

	scheduler := th.scheduler(config)
	if with := th.bound(gpuPod("with", 2)); with.Annotations["ALIYUN_COM_GPU_MEM_IDX"] != "0" {
		t.Errorf("the annotations are %v", with.Annotations)
	}
	o.Kill()
	if without := th.bound(gpuPod("without", 2)); without.Annotations["ALIYUN_COM_GPU_MEM_IDX"] != "" {
		t.Errorf("the annotations are %v, and Outboard has ended", without.Annotations)
	}
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	th.scheduler(fixed)
	if placed := th.place(gpuPod("later", 2)); placed.Waiting == "" {
		t.Errorf("the pod is on %s, and Outboard has ended", placed.Pod.Spec.NodeName)
	}
}

// leastAllocated places pods on the node with the largest free part.
const leastAllocated = `profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 1}]
`

// After a filter call with whole nodes, kube-scheduler counts a busy node as idle. With the
// doctor's corrected file it does not. The busy node is the larger one, so it has the larger free
// part if it is idle.
func TestDoctorEmptyNodeInfos(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "busy", CPU: "16", Memory: "64Gi"}, controlplane.NodeSpec{Name: "idle", CPU: "8"})
	o := th.outboard("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\nprofiles:\n- policies: [{type: ImageLocality, weight: 0}]\n")
	th.create(controlplane.PodSpec{Name: "hog", NodeName: "busy", CPU: "12", Memory: "48Gi"})
	config := schedulerConfig(extender{o: o, verbs: "filter", nodes: true}) + leastAllocated
	fixed := th.diagnosed("EmptyNodeInfos", config, "--config", o.ConfigFile)

	pod := controlplane.PodSpec{Name: "whole-nodes", CPU: "1", Memory: "1Gi"}
	scheduler := th.scheduler(config)
	if got := th.bound(pod).Spec.NodeName; got != "busy" {
		t.Errorf("with whole nodes the pod is on %s: kube-scheduler knows the pods of the nodes", got)
	}
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	th.scheduler(fixed)
	pod.Name = "names"
	if got := th.bound(pod).Spec.NodeName; got != "idle" {
		t.Errorf("with names the pod is on %s", got)
	}
}

// What kube-scheduler does with other files that the doctor reports, and with the corrected ones.
func TestDoctorConsequences(t *testing.T) {
	th := open(t)
	th.nodes(gpus("a", 4, 8))
	shared := th.outboard(gpushare)
	plain := th.outboard(oneWeb)
	secret := th.outboard(webLimit + mutualTLS)
	alone := th.outboard("clientConnection: {enabled: false}\n" + oneWeb)
	for _, tt := range []struct {
		code, config string
		o            *stage.Outboard
		pod          controlplane.PodSpec
		wrong, right func(stage.Outcome) bool
	}{
		{
			code: "BindNotCalled", o: shared, pod: gpuPod("gpu", 2),
			config: strings.Replace(gpushareScheduler(shared), "  bindVerb: bind\n", "", 1),
			wrong: func(p stage.Outcome) bool {
				return p.Waiting == "" && p.Pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] == ""
			},
			right: func(p stage.Outcome) bool {
				return p.Waiting == "" && p.Pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"] != ""
			},
		},
		{
			code: "VerbNotServed", o: plain, pod: controlplane.PodSpec{Name: "verb"},
			config: schedulerConfig(extender{o: plain, verbs: "filter=predicates"}),
			wrong:  func(p stage.Outcome) bool { return strings.Contains(p.Waiting, "404") }, right: placed,
		},
		{
			code: "NoClientCertificate", o: secret, pod: controlplane.PodSpec{Name: "certificate"},
			config: strings.Replace(schedulerConfig(extender{o: secret, verbs: "filter"}), ", certFile: "+secret.CertFile+", keyFile: "+secret.KeyFile, "", 1),
			// kube-scheduler has sent its request when Outboard refuses it. It may report that the connection is closed instead of
			// the reason, which Outboard counts.
			wrong: func(p stage.Outcome) bool {
				refused := th.metric(secret, `outboard_server_refused_callers_total{reason="no_certificate"} `)
				return p.Waiting != "" && refused != "" && refused != "0"
			},
			right: placed,
		},
		{
			code: "NamesWithoutCluster", o: alone, pod: controlplane.PodSpec{Name: "names"},
			config: schedulerConfig(extender{o: alone, verbs: "filter"}),
			wrong:  func(p stage.Outcome) bool { return strings.Contains(p.Waiting, "only node names") }, right: placed,
		},
	} {
		fixed := th.diagnosed(tt.code, tt.config, "--config", tt.o.ConfigFile, "--certificate-dir", filepath.Dir(tt.o.CAFile))
		for which, config := range map[string]string{"wrong": tt.config, "right": fixed} {
			pod := tt.pod
			pod.Name += "-" + which
			scheduler := th.scheduler(config)
			got, is := th.place(pod), tt.right
			if which == "wrong" {
				is = tt.wrong
			}
			if !is(got) {
				t.Errorf("%s: with the %s file the pod is on %q, and waits because of %q:\n%s", tt.code, which, got.Pod.Spec.NodeName, got.Waiting, config)
			}
			if err := scheduler.Stop(); err != nil {
				t.Error(err)
			}
			if err := controlplane.DeletePod(th.ctx, th.Client, got.Pod); err != nil {
				t.Error(err)
			}
		}
	}
}

// placed reports whether a pod is on a node.
func placed(p stage.Outcome) bool { return p.Waiting == "" }

// The doctor reads the cluster: kube-scheduler's pod, the resources of nodes, Services.
func TestDoctorReadsTheCluster(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	static, err := os.ReadFile(filepath.Join("testdata", "kubeadm-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	th.apply(static, "-f", "-")
	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"), "-f", filepath.Join(th.Root, "deploy", "outboard.yaml"))
	o := th.outboard(gpushare)
	config := strings.ReplaceAll(gpushareScheduler(o), o.URL, "http://outboard.outboard-system.svc")
	codes, _ := th.doctor(config, "--kubeconfig", th.Kubeconfig())
	for _, code := range []string{"SchedulerWithoutConfig", "ClusterDNS", "NoEndpoints", "ResourceNotReported"} {
		if !slices.Contains(codes, code) {
			t.Errorf("the doctor reports %v, and not %s", codes, code)
		}
	}
}
