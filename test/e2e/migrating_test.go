package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outboard replaces the gpushare extender, with the manifests and the steps of the page on
// migrating: allocations by gpushare count, and do not change.
func TestMigratingFromGpushare(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 2, 16))
	before := gpuPod("before", 10)
	before.NodeName = "gpu-node"
	before.Annotations = map[string]string{
		gpuIndex: "1", "ALIYUN_COM_GPU_MEM_DEV": "16", "ALIYUN_COM_GPU_MEM_POD": "10", gpuTaken: "true", gpuAssumed: "1700000000000000000",
	}
	old := th.create(before)
	manifests := filepath.Join(th.Root, "deploy", "gpushare.yaml")
	th.apply(nil, "-f", manifests)
	o := th.outboard(configMap(t, manifests, "outboard.yaml"))
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
	th.scheduler(config)
	// If the pod were smaller, best fit would choose GPU 1, with 6 left.
	if pod := th.bound(gpuPod("after", 7)); pod.Annotations[gpuIndex] != "0" {
		t.Errorf("the pod is on GPU %s, want 0", pod.Annotations[gpuIndex])
	}
	const want = `{"id":0,"totalGPU":16,"usedGPU":7,"pods":[{"name":"after","namespace":"default","usedGPU":7}]},` +
		`{"id":1,"totalGPU":16,"usedGPU":10,"pods":[{"name":"before","namespace":"default","usedGPU":10}]}`
	th.eventually("inspect shows both pods", func() bool { return strings.Contains(th.get(o.URL+"/gpushare-scheduler/inspect/gpu-node"), want) })
	if waits := th.place(gpuPod("too-large", 10)); !strings.Contains(waits.Waiting, "Insufficient GPU Memory in one device") {
		t.Errorf("too-large: bound to %q, waiting: %q", waits.Pod.Spec.NodeName, waits.Waiting)
	}
	now, err := th.Client.CoreV1().Pods("default").Get(th.ctx, "before", metav1.GetOptions{})
	if err != nil || now.ResourceVersion != old.ResourceVersion {
		t.Errorf("the pod that gpushare has bound was changed: %v\n%v", err, now)
	}
}

// While it finishes, a service that was told to stop answers from what is, and not from what was.
func TestStoppingServiceFollowsTheCluster(t *testing.T) {
	th := open(t)
	th.nodes(gpus("gpu-node", 1, 16))
	o := th.outboard(strings.Replace(gpushare, "insecure: true", "insecure: true, shutdownDelay: 2m", 1))
	go func() { _ = o.Stop() }() // the service is killed long before it has finished
	defer o.Kill()
	th.eventually("the service is stopping", func() bool {
		res, err := http.Get(o.Admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
	spec := gpuPod("late", 6)
	spec.NodeName, spec.Annotations = "gpu-node", map[string]string{gpuIndex: "0"}
	th.create(spec)
	th.eventually("inspect shows the pod", func() bool {
		return strings.Contains(th.get(o.URL+"/gpushare-scheduler/inspect"), `"usedGPU":6`)
	})
}
