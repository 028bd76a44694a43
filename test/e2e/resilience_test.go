package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
