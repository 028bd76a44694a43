package nightly

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// The file of decisions has where each pod went, and by how much, and why a pod waits, after the process has ended.
func TestDecisionLog(t *testing.T) {
	th := theater.Open(t)
	gpus := map[string]string{"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"}
	th.Nodes(controlplane.NodeSpec{Name: "a", Resources: gpus}, controlplane.NodeSpec{Name: "b", Resources: gpus})
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	o := th.Outboard(fmt.Sprintf(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true, shutdownDelay: 0s}
log: {decisions: %q}
profiles:
- policies: [{type: GPUMemory}]
`, file))
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter prioritize bind", Managed: []string{"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}}))
	first := th.BoundAndSeen(o, controlplane.PodSpec{Name: "first", Resources: map[string]string{"aliyun.com/gpu-mem": "4"}})
	second := th.Bound(controlplane.PodSpec{Name: "second", Resources: map[string]string{"aliyun.com/gpu-mem": "4"}})
	th.Placed(controlplane.PodSpec{Name: "too-large", Resources: map[string]string{"aliyun.com/gpu-mem": "17"}})
	if err := o.Stop(); err != nil {
		t.Error(err)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	latest := map[string]decision.Record{} // by verb and pod
	for written := range strings.Lines(string(text)) {
		var l decision.Record
		if err := json.Unmarshal([]byte(written), &l); err != nil {
			t.Fatalf("%v: %s", err, written)
		}
		latest[string(l.Verb)+" "+l.Pod.Name] = l
	}
	if l := latest["bind first"]; l.Bound != first.Spec.NodeName {
		t.Errorf("first: %+v", l)
	}
	if l := latest["bind second"]; l.Bound != second.Spec.NodeName || l.Bound != first.Spec.NodeName || !strings.HasPrefix(l.Summary, "scored ") {
		t.Errorf("second, which is packed with the first: %+v", l)
	}
	if l := latest["prioritize second"]; len(l.Top) != 2 || l.Top[0].Node != second.Spec.NodeName || l.Top[0].Total <= l.Top[1].Total {
		t.Errorf("second, which is packed with the first: %+v", l)
	}
	if l := latest["filter too-large"]; l.Fit != 0 || len(l.Rejections) != 1 || l.Rejections[0].Policy != "GPUMemory" || l.Rejections[0].Nodes != 2 {
		t.Errorf("too-large: %+v", l)
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}
