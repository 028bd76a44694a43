package nightly

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/test/theater"
)

// gpus shows the GPUs of device plugins and the devices of ResourceClaims, from all replicas.
func TestGPUsShowDevices(t *testing.T) {
	th := theater.Open(t)
	th.DeviceNodes("claimed")
	th.Nodes(theater.GPUs("shared", 1, 16))
	host(th, "shared", kubelet(t))
	config := theater.GPUShare + "- path: /claims\n  policies:\n  - {type: ResourceClaims, config: {scoringStrategy: {driver: " + theater.GPUDriver + "}}}\n"
	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "namespace.yaml"))
	for _, name := range []string{"outboard-1", "outboard-2"} {
		replica(th, name, "shared", th.Outboard(config).Admin, corev1.PodRunning)
	}
	th.Scheduler("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
	if placed, err := th.Place(th.Ctx, th.Claiming("train", "10Gi", 1)); err != nil || placed.Waiting != "" {
		t.Fatal(placed.Waiting, err)
	}
	const devices = `Devices of gpu.example.com
NODE     DEVICE  USED  FREE  OF GiB  PODS
claimed  gpu-0   10    30    40      default/train (10)
claimed  gpu-1   0     40    40      
all              10    70    80      
`
	const all = `NODE    GPU  USED  RESERVED  FREE  OF GiB  PODS
shared  0    0     0         16    16      
all          0     0         16    16      

` + devices
	for node, want := range map[string]string{"": all, "claimed": devices} {
		args := slices.DeleteFunc([]string{"gpus", node}, func(arg string) bool { return arg == "" })
		var status int
		var stdout, stderr string
		th.Eventually("both replicas have seen the claim", func() bool {
			status, stdout, stderr = run(th, th.Kubeconfig(), args...)
			return status == 0 && strings.Contains(stdout, "train") && stderr == ""
		})
		if stdout != want {
			t.Errorf("%q:\n%s\nwant\n%s", args, stdout, want)
		}
	}
	if status, stdout, _ := run(th, th.Kubeconfig(), "gpus", "none"); status != 1 || stdout != "node \"none\" not found\n" {
		t.Errorf("status %d, %q", status, stdout)
	}
}
