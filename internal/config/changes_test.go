package config_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/snapshot"
)

// The pods with claims are counted for which no policy is responsible after a change, and no others.
func TestRisksCountPodsWithClaims(t *testing.T) {
	const gpus = "- path: /gpu\n  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]\n  policies: [{type: GPUMemory}]\n"
	const fpgas = "- path: /fpga\n  policies: [{type: Devices, config: {resource: example.com/fpga}}]\n"
	const images = "- path: /images\n  policies: [{type: ImageLocality}]\n"
	load := func(profiles string) *config.Config {
		c, err := config.Parse("f", []byte(plain+"profiles:\n"+profiles), realTypes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var b snapshot.Builder
	capacity := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("32"), "aliyun.com/gpu-count": resource.MustParse("2"), "example.com/fpga": resource.MustParse("2")}
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}})
	ledgers := map[string]*snapshot.Ledger{}
	for name, requested := range map[string]corev1.ResourceName{"a": "aliyun.com/gpu-mem", "b": "aliyun.com/gpu-mem", "c": "example.com/fpga", "unclaimed": "aliyun.com/gpu-mem", "other": "cpu"} {
		uid := apitypes.UID(name)
		b.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{requested: resource.MustParse("1")}, Requests: corev1.ResourceList{requested: resource.MustParse("1")}},
		}}}})
		if len(name) > 1 {
			continue
		}
		l := ledgers[string(requested)]
		if l == nil {
			l = &snapshot.Ledger{Resource: string(requested), Node: "n", Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 16}}}
			ledgers[l.Resource] = l
		}
		l.Pods = append(l.Pods, snapshot.LedgerPod{UID: uid, Name: name, Node: "n"})
	}
	for _, l := range ledgers {
		b.SetLedger(l)
	}
	const gone = "no policy allocates %s any more, and there are claims of it (pods with claims: %d): "
	for _, tt := range []struct {
		name, old, new string
		want           []string
	}{
		{"nothing changes", gpus + fpgas, gpus + fpgas, nil},
		{"in another profile", fpgas, "- policies: [{type: Devices, config: {resource: example.com/fpga}}, {type: ImageLocality}]\n  path: /fpga\n", nil},
		{"GPUs", gpus + fpgas, fpgas, []string{fmt.Sprintf(gone, "aliyun.com/gpu-mem", 2)}},
		{"devices", gpus + fpgas, gpus, []string{fmt.Sprintf(gone, "example.com/fpga", 1)}},
		{"both", gpus + fpgas, images, []string{fmt.Sprintf(gone, "aliyun.com/gpu-mem", 2), fmt.Sprintf(gone, "example.com/fpga", 1)}},
		{"another resource", fpgas, strings.Replace(fpgas, "fpga}", "fpga2}", 1), []string{fmt.Sprintf(gone, "example.com/fpga", 1)}},
		{"no claims before", images, gpus, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var claims []string
			for _, risk := range config.Compare(load(tt.old), load(tt.new), config.Observed{View: b.View()}).Risks {
				if strings.Contains(risk, "there are claims") {
					claims = append(claims, risk)
				}
			}
			if len(claims) != len(tt.want) {
				t.Fatalf("got %q, want %q", claims, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(claims[i], want) {
					t.Errorf("got %q, want %q", claims[i], want)
				}
			}
		})
	}
}

// LeastWaste learns from all pods, so a profile with it is for every pod unless the profile has managedResources.
func TestRiskOfAProfileForEveryPod(t *testing.T) {
	const before, after = "- path: /gpu\n  policies: [{type: GPUMemory}]\n", "- path: /gpu\n  %spolicies: [{type: GPUMemory, config: {scoringStrategy: {type: LeastWaste}}}]\n"
	for managed, want := range map[string]string{
		"": "profile /gpu: is now for every pod: ",
		"managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}, {name: example.com/other}]\n  ": "profile /gpu: managedResources differ: ",
		"managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]\n  ":                            "",
	} {
		var configs []*config.Config
		for _, profiles := range []string{before, fmt.Sprintf(after, managed)} {
			c, err := config.Parse("f", []byte(plain+"profiles:\n"+profiles), realTypes)
			if err != nil {
				t.Fatal(err)
			}
			configs = append(configs, c)
		}
		risks := config.Compare(configs[0], configs[1], config.Observed{}).Risks
		if want == "" && len(risks) > 0 || want != "" && (len(risks) != 1 || !strings.HasPrefix(risks[0], want)) {
			t.Errorf("%q: the risks are %q, want %q", managed, risks, want)
		}
	}
}
