package nightly

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

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

// Without a CA kube-scheduler places a pod by the response of an impostor. With the file that the
// doctor asks for, it does not.
func TestDoctorUnverifiedHTTPS(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	url, calls := impostor(t, httptest.NewTLSServer)
	o := th.Outboard(theater.WebLimit + theater.MutualTLS) // for its CA
	right := strings.Replace(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter"}), o.URL, url, 1)
	config := right[:strings.Index(right, "  tlsConfig:")]
	th.Diagnosed("UnverifiedServer", config, right)

	scheduler := th.Scheduler(config)
	th.Bound(controlplane.PodSpec{Name: "first"})
	if calls.Load() == 0 {
		t.Error("the impostor got no call")
	}
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	calls.Store(0)
	th.Scheduler(right)
	if placed := th.Placed(controlplane.PodSpec{Name: "second"}); !strings.Contains(placed.Waiting, "certificate") {
		t.Errorf("with a CA the pod waits because of %q", placed.Waiting)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("with a CA the impostor got %d calls", n)
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

// After a filter call with whole nodes, kube-scheduler counts a busy node as idle. With the file
// that the doctor asks for, it does not. The busy node is the larger one, so it has the larger free
// part if it is idle.
func TestDoctorEmptyNodeInfos(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "busy", CPU: "16", Memory: "64Gi"}, controlplane.NodeSpec{Name: "idle", CPU: "8"})
	o := th.Outboard("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nserving: {insecure: true}\nprofiles:\n- policies: [{type: ImageLocality, weight: 0}]\n")
	th.Create(controlplane.PodSpec{Name: "hog", NodeName: "busy", CPU: "12", Memory: "48Gi"})
	config := theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter", Nodes: true}) + leastAllocated
	right := theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter"}) + leastAllocated
	th.Diagnosed("EmptyNodeInfos", config, right, o.ConfigFile)

	pod := controlplane.PodSpec{Name: "whole-nodes", CPU: "1", Memory: "1Gi"}
	scheduler := th.Scheduler(config)
	if got := th.Bound(pod).Spec.NodeName; got != "busy" {
		t.Errorf("with whole nodes the pod is on %s: kube-scheduler knows the pods of the nodes", got)
	}
	if err := scheduler.Stop(); err != nil {
		t.Error(err)
	}
	th.Scheduler(right)
	pod.Name = "names"
	if got := th.Bound(pod).Spec.NodeName; got != "idle" {
		t.Errorf("with names the pod is on %s", got)
	}
}

// The doctor reads the cluster: kube-scheduler's pod, the resources of nodes, Services.
func TestDoctorReadsTheCluster(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	static, err := os.ReadFile(filepath.Join(th.Root, "test", "e2e", "testdata", "kubeadm-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	th.Apply(static, "-f", "-")
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"), "-f", filepath.Join(th.Root, "deploy", "outboard.yaml"))
	o := th.Outboard(theater.GPUShare)
	config := strings.ReplaceAll(theater.GPUShareScheduler(o), o.URL, "http://outboard.outboard-system.svc")
	codes := th.Doctor(config, "--kubeconfig", th.Kubeconfig())
	for _, code := range []string{"SchedulerWithoutConfig", "ClusterDNS", "NoEndpoints", "ResourceNotReported"} {
		if !slices.Contains(codes, code) {
			t.Errorf("the doctor reports %v, and not %s", codes, code)
		}
	}
}
