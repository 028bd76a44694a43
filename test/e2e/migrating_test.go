package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/theater"
)

// Outboard replaces the gpushare extender, with the manifests and the steps of the page on
// migrating: allocations by gpushare count, and do not change.
func TestMigratingFromGpushare(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("gpu-node", 2, 16))
	before := theater.GPUPod("before", 10)
	before.NodeName = "gpu-node"
	before.Annotations = map[string]string{
		GPUIndex: "1", "ALIYUN_COM_GPU_MEM_DEV": "16", "ALIYUN_COM_GPU_MEM_POD": "10", gpuTaken: "true", gpuAssumed: "1700000000000000000",
	}
	old := th.Create(before)
	manifests := filepath.Join(th.Root, "deploy", "gpushare.yaml")
	th.Apply(nil, "-f", manifests)
	o := th.Outboard(configMap(t, manifests, "outboard.yaml"))
	config, err := o.SchedulerConfig(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://127.0.0.1:32766/gpushare-scheduler
  filterVerb: filter
  bindVerb: bind
  enableHTTPS: false
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - {name: aliyun.com/gpu-mem, ignoredByScheduler: false}
`)
	if err != nil {
		t.Fatal(err)
	}
	th.Scheduler(config)
	// If the pod were smaller, best fit would choose GPU 1, with 6 left.
	if pod := th.Bound(theater.GPUPod("after", 7)); pod.Annotations[GPUIndex] != "0" {
		t.Errorf("the pod is on GPU %s, want 0", pod.Annotations[GPUIndex])
	}
	const want = `{"id":0,"totalGPU":16,"usedGPU":7,"pods":[{"name":"after","namespace":"default","usedGPU":7}]},` +
		`{"id":1,"totalGPU":16,"usedGPU":10,"pods":[{"name":"before","namespace":"default","usedGPU":10}]}`
	th.Eventually("inspect shows both pods", func() bool { return strings.Contains(th.Get(o.URL+"/gpushare-scheduler/inspect/gpu-node"), want) })
	if waits := th.Placed(theater.GPUPod("too-large", 10)); !strings.Contains(waits.Waiting, "Insufficient GPU Memory in one device") {
		t.Errorf("too-large: bound to %q, waiting: %q", waits.Pod.Spec.NodeName, waits.Waiting)
	}
	now, err := th.Client.CoreV1().Pods("default").Get(th.Ctx, "before", metav1.GetOptions{})
	if err != nil || now.ResourceVersion != old.ResourceVersion {
		t.Errorf("the pod that gpushare has bound was changed: %v\n%v", err, now)
	}
}

// While it finishes, a service that was told to stop answers from what is, and not from what was.
func TestStoppingServiceFollowsTheCluster(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(theater.GPUs("gpu-node", 1, 16))
	o := th.Outboard(strings.Replace(theater.GPUShare, "insecure: true", "insecure: true, shutdownDelay: 2m", 1))
	go func() { _ = o.Stop() }() // the service is killed long before it has finished
	defer o.Kill()
	th.Eventually("the service is stopping", func() bool {
		res, err := http.Get(o.Admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
	spec := theater.GPUPod("late", 6)
	spec.NodeName, spec.Annotations = "gpu-node", map[string]string{GPUIndex: "0"}
	th.Create(spec)
	th.Eventually("inspect shows the pod", func() bool {
		return strings.Contains(th.Get(o.URL+"/gpushare-scheduler/inspect"), `"usedGPU":6`)
	})
}
