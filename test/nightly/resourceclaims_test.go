package nightly

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/stage"
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

// Each pod with a claim gets the node and the devices that outboard simulate predicts from what kubectl prints of the cluster.
func TestSimulatedDevicesAreAllocated(t *testing.T) {
	th := theater.Open(t)
	th.GPUClass()
	th.DeviceNode("a", "8", "40Gi", "40Gi") // of different sizes, so that no two nodes have the same score
	th.DeviceNode("b", "16", "40Gi", "40Gi", "40Gi")
	th.DeviceNode("c", "23", "80Gi", "20Gi")
	config := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies:\n  - {type: ResourceClaims, weight: 10}\n" + theater.PlainHTTP
	o := th.Outboard(config)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "prioritize", Ignorable: true}))
	waiting, used := 0, map[string]bool{}
	for i, shape := range []struct {
		memory string
		gpus   int64
	}{
		{"10Gi", 1}, {"30Gi", 1}, {"15Gi", 1}, {"40Gi", 2}, {"5Gi", 1}, {"20Gi", 2}, {"10Gi", 1}, {"25Gi", 1}, {"50Gi", 1}, {"10Gi", 2},
		{"", 0}, {"5Gi", 1}, {"20Gi", 1}, {"35Gi", 1}, {"10Gi", 1}, {"5Gi", 3}, {"40Gi", 1}, {"3Gi", 1}, {"2Gi", 2}, {"20Gi", 1},
	} {
		name := fmt.Sprintf("p%02d", i)
		var pod *corev1.Pod
		if shape.gpus == 0 {
			pod = theater.WithClaim(name, "p09") // the claim of an earlier pod
		} else {
			pod = th.Claiming(name, shape.memory, shape.gpus)
		}
		predicted := simulated(th, config, pod)
		placed, err := th.Place(th.Ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if placed.Waiting == "" {
			th.Eventually("Outboard has seen "+name+" bound", func() bool { return th.Explain(o, name).Node != "" })
			th.NextView(o)
		} else {
			waiting++
		}
		got := placement(th, placed)
		if got.Node != predicted.Node || !slices.Equal(names(got.Devices), names(predicted.Devices)) {
			t.Errorf("%s: on %q with %v (%s); predicted is %q with %v (%v)", name, got.Node, names(got.Devices), placed.Waiting, predicted.Node, names(predicted.Devices), predicted.Reasons)
		}
		for _, device := range got.Devices {
			used[device.Pool+"/"+device.Device] = true
		}
	}
	if waiting == 0 || len(used) < 6 {
		t.Errorf("%d pods wait, and the others use %v", waiting, used)
	}
}

// simulated returns where outboard simulate places the pod, from what kubectl prints of the cluster.
func simulated(th *theater.Theater, config string, pod *corev1.Pod) simulate.Placement {
	th.T.Helper()
	dump, err := th.Kubectl(th.Ctx, "get", "nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,devicetaintrules", "-A", "-o", "yaml").Output()
	if err != nil {
		th.T.Fatal(err)
	}
	typed := pod.DeepCopy()
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	manifest, err := yaml.Marshal(typed)
	if err != nil {
		th.T.Fatal(err)
	}
	dir := th.T.TempDir()
	for name, data := range map[string]string{"now.yaml": string(dump), "pod.yaml": string(manifest), "outboard.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			th.T.Fatal(err)
		}
	}
	cmd := exec.CommandContext(th.Ctx, th.Binary(), "simulate", "now.yaml", "pod.yaml", "--config", "outboard.yaml", "--list-pods", "-o", "json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		th.T.Fatalf("%v: %s", err, out)
	}
	var result struct {
		Configurations []struct {
			Pods []simulate.Placement `json:"pods"`
		} `json:"configurations"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.Configurations) != 1 {
		th.T.Fatalf("%v: %s", err, out)
	}
	for _, p := range result.Configurations[0].Pods { // pods that wait come first
		if p.Name == pod.Name {
			return p
		}
	}
	th.T.Fatalf("%s is not in %s", pod.Name, out)
	return simulate.Placement{}
}

// placement returns where the pod is, with the devices of its claims.
func placement(th *theater.Theater, placed stage.Outcome) simulate.Placement {
	th.T.Helper()
	p := simulate.Placement{Node: placed.Pod.Spec.NodeName}
	if placed.Waiting != "" {
		return p
	}
	for _, of := range placed.Pod.Spec.ResourceClaims {
		claim, err := th.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(th.Ctx, *of.ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			th.T.Fatal(err)
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			p.Devices = append(p.Devices, simulate.PlacedDevice{Claim: claim.Name, Pool: r.Pool, Device: r.Device})
		}
	}
	return p
}

func names(devices []simulate.PlacedDevice) (names []string) {
	for _, d := range devices {
		names = append(names, d.Pool+"/"+d.Device)
	}
	return names
}
