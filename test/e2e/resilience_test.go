package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// One scheduler has a required extender and an ignorable one. Without the ignorable one,
// kube-scheduler places pods anyway. Without the required one, they wait, and kube-scheduler places
// them when it is back.
func TestStrictAndIgnorable(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b", Images: map[string]int64{theater.Nginx: 1 << 27}})
	strict := th.Outboard(theater.OneWeb)
	ignorable := th.Outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - {type: ImageLocality}
  - type: Rules
    config:
      filters:
      - name: team
        matchConditions: [{name: odd, expression: 'pod.metadata.name == "odd" && pod.metadata.labels["team"] == "a"'}]
        expression: 'false'
`)
	th.Scheduler(theater.SchedulerConfig(
		theater.Extender{Outboard: strict, Verbs: "filter"},
		theater.Extender{Outboard: ignorable, Verbs: "filter prioritize", Ignorable: true},
	))
	both := controlplane.PodSpec{Name: "both", Image: "nginx"}
	if pod := th.Bound(both); pod.Spec.NodeName != "b" {
		t.Errorf("both is on %s, the image on b", pod.Spec.NodeName)
	}

	// kube-scheduler ignores the errors of an ignorable extender. A pod that causes one is not
	// placed without the policies nevertheless.
	if odd := th.Placed(controlplane.PodSpec{Name: "odd"}); !strings.Contains(odd.Waiting, "policy Rules: ") {
		t.Errorf("odd is on %q, and waits because of %q", odd.Pod.Spec.NodeName, odd.Waiting)
	}
	large := controlplane.PodSpec{Name: "large"}.Pod()
	for i := range 4000 {
		large.Spec.Volumes = append(large.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i)})
	}
	if placed, err := th.Place(th.Ctx, large); err != nil || !strings.Contains(placed.Waiting, "decoding the pod: ") {
		t.Errorf("large waits because of %q, error %v", placed.Waiting, err)
	}

	ignorable.Kill()
	<-ignorable.Done()
	th.Bound(controlplane.PodSpec{Name: "without-the-ignorable"})

	strict.Kill()
	<-strict.Done()
	waiting := th.Create(controlplane.PodSpec{Name: "without-the-strict"})
	event, err := controlplane.WaitForPodEvent(th.Ctx, th.Client, waiting, "FailedScheduling")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(event.Message, strict.URL) {
		t.Errorf("the event is %q", event.Message)
	}
	if err := strict.Start(th.Ctx); err != nil {
		t.Fatal(err)
	}
	// A cluster event makes kube-scheduler retry.
	th.Nodes(controlplane.NodeSpec{Name: "c"})
	th.AwaitBound(waiting)
}

// The service follows the configuration file; an invalid one changes nothing, and the log shows it.
func TestReload(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	o := th.Outboard(theater.OneWeb)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter"}))
	th.BoundAndSeen(o, web("web-1"))
	second := th.Placed(web("web-2"))
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
	th.Eventually("the invalid file is reported", func() bool {
		return th.Metric(o, `outboard_config_reloads_total{outcome="error"} `) == "1"
	})
	th.Logs(o, "maximum")
	if doc := th.ExplainPending(o, "web-2"); len(doc.Now) != 1 || doc.Now[0].Fit != 0 {
		t.Errorf("the former configuration is not in use: %+v", doc)
	}
	write(bytes.Replace(text, []byte("max: 1"), []byte("max: 2"), 1))
	th.Eventually("the valid file is in force", func() bool {
		return th.Metric(o, `outboard_config_reloads_total{outcome="success"} `) == "1"
	})
	th.WillBeBound(second.Pod)
	third := th.Placed(web("web-3"))
	if third.Waiting == "" {
		t.Fatal("web-3 is placed beyond the limit")
	}
	write(append(bytes.Replace(text, []byte("max: 1"), []byte("max: 2"), 1), "bypass: true\n"...))
	th.WillBeBound(third.Pod) // at once: it is requeued
	if got := th.Metric(o, "outboard_bypass "); got != "1" {
		t.Errorf("outboard_bypass is %q", got)
	}
	if ready := th.Get(o.Admin + "/readyz"); !strings.Contains(ready, "[!] bypass is true") {
		t.Errorf("/readyz says %s", ready)
	}
}

// A reload starts what the first policy with allocations needs, once the CRD is installed.
func TestReloadStartsLedgers(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("gpu-node", 2, 16))
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgers.outboard.dev"
	if err := th.Client.Discovery().RESTClient().Delete().AbsPath(path).Do(th.Ctx).Error(); err != nil {
		t.Fatal(err)
	}
	o := th.Outboard(strings.Replace(theater.GPUShare, "{type: GPUMemory, weight: 1}", "{type: ImageLocality}", 1))
	th.Scheduler(theater.GPUShareScheduler(o))
	th.BoundAndSeen(o, theater.GPUPod("before", 1))
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("type: ImageLocality"), []byte("type: GPUMemory"), 1)
	if err := th.WriteFile(filepath.Base(o.ConfigFile), text); err != nil {
		t.Fatal(err)
	}
	th.Eventually("/readyz says what is missing", func() bool {
		ready := th.Get(o.Admin + "/readyz")
		return strings.Contains(ready, "[!] cannot reload the configuration") && strings.Contains(ready, installLedgers) && !strings.Contains(ready, "[-]")
	})
	if got := th.Metric(o, "outboard_config_last_reload_successful "); got != "0" {
		t.Errorf("the gauge is %q", got)
	}
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "chart", "crds", "ledgers.yaml"))
	th.Eventually("the configuration is in force", func() bool { return th.Metric(o, "outboard_config_last_reload_successful ") == "1" })
	if got := th.Metric(o, `outboard_cluster_synced{resource="ledgers"} `); got != "1" {
		t.Errorf("the metric of the resource is %q", got)
	}
	pod := th.Bound(theater.GPUPod("after", 16))
	if pod.Annotations[GPUIndex] == "" {
		t.Errorf("the pod has no GPU: %v", pod.Annotations)
	}
	allocated := false
	for _, l := range th.Ledgers() {
		allocated = allocated || slices.ContainsFunc(l.Spec.Pods, func(p snapshot.LedgerPod) bool { return p.UID == pod.UID })
	}
	if !allocated {
		t.Errorf("no ledger has an allocation of the pod: %+v", th.Ledgers())
	}
}
