package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/test/stage"
)

// Each pod with a claim gets the node and the devices that outboard simulate predicts from what kubectl prints of the cluster.
func TestSimulatedDevicesAreAllocated(t *testing.T) {
	th := open(t)
	th.gpuClass()
	th.deviceNode("a", "8", "40Gi", "40Gi") // of different sizes, so that no two nodes have the same score
	th.deviceNode("b", "16", "40Gi", "40Gi", "40Gi")
	th.deviceNode("c", "23", "80Gi", "20Gi")
	config := "apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies:\n  - {type: ResourceClaims}\n" + plainHTTP
	o := th.outboard(config)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "prioritize", ignorable: true}))
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
			pod = withClaim(name, "p09") // the claim of an earlier pod
		} else {
			pod = th.claiming(name, shape.memory, shape.gpus)
		}
		predicted := th.simulated(config, pod)
		placed, err := th.Place(th.ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if placed.Waiting == "" {
			th.eventually("Outboard has seen "+name+" bound", func() bool { return th.explain(o, name).Node != "" })
			th.nextView(o)
		} else {
			waiting++
		}
		got := th.placement(placed)
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
func (th *theater) simulated(config string, pod *corev1.Pod) simulate.Placement {
	th.t.Helper()
	dump, err := th.Kubectl(th.ctx, "get", "nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,devicetaintrules", "-A", "-o", "yaml").Output()
	if err != nil {
		th.t.Fatal(err)
	}
	typed := pod.DeepCopy()
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	manifest, err := yaml.Marshal(typed)
	if err != nil {
		th.t.Fatal(err)
	}
	dir := th.t.TempDir()
	for name, data := range map[string]string{"now.yaml": string(dump), "pod.yaml": string(manifest), "outboard.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			th.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(th.ctx, th.Binary(), "simulate", "--nodes", "now.yaml", "--pods", "pod.yaml", "--config", "outboard.yaml", "--extender-weight", "10", "--list-pods", "-o", "json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		th.t.Fatalf("%v: %s", err, out)
	}
	var result struct {
		Configurations []struct {
			Pods []simulate.Placement `json:"pods"`
		} `json:"configurations"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.Configurations) != 1 {
		th.t.Fatalf("%v: %s", err, out)
	}
	for _, p := range result.Configurations[0].Pods { // pods that wait come first
		if p.Name == pod.Name {
			return p
		}
	}
	th.t.Fatalf("%s is not in %s", pod.Name, out)
	return simulate.Placement{}
}

// placement returns where the pod is, with the devices of its claims.
func (th *theater) placement(placed stage.Outcome) simulate.Placement {
	th.t.Helper()
	p := simulate.Placement{Node: placed.Pod.Spec.NodeName}
	if placed.Waiting != "" {
		return p
	}
	for _, of := range placed.Pod.Spec.ResourceClaims {
		claim, err := th.Client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(th.ctx, *of.ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			th.t.Fatal(err)
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
