package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/snapshot"
)

// The pods with allocations are counted for which no policy is responsible after a change, and no
// others.
func TestRisksCountPodsWithAllocations(t *testing.T) {
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
	for name, requested := range map[string]corev1.ResourceName{"a": "aliyun.com/gpu-mem", "b": "aliyun.com/gpu-mem", "c": "example.com/fpga", "unallocated": "aliyun.com/gpu-mem", "other": "cpu"} {
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
	t.Run("how allocations count", func(t *testing.T) {
		sized := strings.NewReplacer("{type: GPUMemory}", "{type: GPUMemory, config: {sizesFrom: {label: sizes}}}", "fpga}", "fpga, units: Numbered}")
		risks := config.Compare(load(gpus+fpgas), load(sized.Replace(gpus+fpgas)), config.Observed{View: b.View()}).Risks
		want := []string{"profile /gpu: a change of sizesFrom of GPUMemory does not change the allocations that pods hold (pods with allocations: 2): ",
			"profile /fpga: a change of units of Devices does not change the allocations that pods hold (pods with allocations: 1): "}
		if len(risks) != 2 || !strings.HasPrefix(risks[0], want[0]) || !strings.HasPrefix(risks[1], want[1]) {
			t.Errorf("got %q, want %q", risks, want)
		}
		var empty snapshot.Builder
		if risks := config.Compare(load(gpus), load(sized.Replace(gpus)), config.Observed{View: empty.View()}).Risks; len(risks) > 0 {
			t.Errorf("without allocations: %q", risks)
		}
	})
	const gone = "%s (pods with allocations: %d)"
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
		{"no allocations before", images, gpus, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var allocations []string
			for _, risk := range config.Compare(load(tt.old), load(tt.new), config.Observed{View: b.View()}).Risks {
				if strings.Contains(risk, "no policy allocates") {
					allocations = append(allocations, risk)
				}
			}
			want := []string{}
			if len(tt.want) > 0 {
				want = append(want, "no policy allocates "+strings.Join(tt.want, " or ")+" any more: Outboard does not count the allocations that pods hold, and pods that are bound from then on have none: kubectl get ledgers lists them")
			}
			if !slices.Equal(allocations, want) {
				t.Errorf("got %q, want %q", allocations, want)
			}
		})
	}
}

// Until kube-scheduler is restarted, it calls as for the former configuration. The plugin has no
// extender.
func TestRisks(t *testing.T) {
	const until = " until kube-scheduler is restarted with what outboard setup scheduler prints"
	const pending = " stay pending, or are placed without it if the extender has ignorable: true or only prioritizeVerb," + until
	const lost = "no policy allocates aliyun.com/gpu-count or aliyun.com/gpu-mem any more: Outboard does not count the allocations that pods hold, and pods that are bound from then on have none: kubectl get ledgers lists them"
	const other, images, gpus = "{path: /o, policies: [{type: ImageLocality}]}, ", "policies: [{type: ImageLocality}]", "policies: [{type: GPUMemory}]"
	named := func(names string) string { return "{schedulerNames: " + names + ", " + gpus + "}" }
	for _, tt := range []struct {
		name, old, new string
		plugin         bool
		want           []string
	}{
		{"removed", other + "{path: /g, " + gpus + "}", other, false, []string{
			"profile /g: nothing serves /g/filter, /g/prioritize, /g/preempt, /g/bind any more: calls fail with status 404, and its pods (pods that request aliyun.com/gpu-mem or aliyun.com/gpu-count)" + pending, lost}},
		{"removed from a plugin", other + "{path: /g, " + gpus + "}", other, true, []string{lost}},
		{"one verb is left", "{path: /a, " + images + "}", "{path: /a/prioritize, verb: Prioritize, " + images + "}", false, []string{
			"profile /a: nothing serves /a/filter, /a/preempt, /a/bind any more: calls fail with status 404, and its pods (every pod)" + pending}},
		{"fewer schedulers", named("[a, b]"), named("[b, c]"), false, []string{"profile /: bind fails for pods whose scheduler is not b or c, and these pods stay pending"}},
		{"the first schedulers", named("[]"), named("[b]"), false, []string{"profile /: bind fails for pods whose scheduler is not b, and these pods stay pending"}},
		{"more schedulers", named("[a]"), named("[a, b]"), false, nil},
		{"any scheduler", named("[a]"), named("[]"), false, nil},
		{"allocations", "{" + images + "}", "{" + gpus + "}", false, []string{"profile /: kube-scheduler binds pods without allocations of GPUMemory" + until}},
		{"every pod", "{" + gpus + "}", "{managedResources: [], " + gpus + "}", false, []string{
			"profile /: kube-scheduler calls for the pods of the former managedResources, and counts resources as these say," + until}},
		{"the same resources", "{" + gpus + "}", "{managedResources: [{name: aliyun.com/gpu-count}, {name: aliyun.com/gpu-mem}], " + gpus + "}", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var configs []*config.Config
			for _, profiles := range []string{tt.old, tt.new} {
				c, err := config.Parse("f", []byte(plain+"profiles: ["+profiles+"]\n"), realTypes)
				if err != nil {
					t.Fatal(err)
				}
				configs = append(configs, c)
			}
			if got := config.Compare(configs[0], configs[1], config.Observed{Plugin: tt.plugin}).Risks; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A profile that allocates has a shortlist, unless another one can reject all of its nodes.
func TestDefaultShortlist(t *testing.T) {
	const gpus, images = "- {path: /gpu, policies: [{type: GPUMemory}]}\n", "- {path: /images, policies: [{type: ImageLocality}]}\n"
	for profiles, want := range map[string]int{
		gpus: config.DefaultShortlist, gpus + images: config.DefaultShortlist, images: 0,
		gpus + "- policies: [{type: PodLimit, config: {max: 1, selector: {}}}]\n": 0,
		"- policies: [{type: GPUMemory, weight: 0}]\n":                            0,
		"- {shortlist: 0, policies: [{type: GPUMemory}]}\n":                       0,
		"- {shortlist: 3, policies: [{type: ImageLocality}]}\n":                   3,
	} {
		c, err := config.Parse("f", []byte(plain+"profiles:\n"+profiles), realTypes)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Profiles[0].Listed(); got != want {
			t.Errorf("%s: %d, want %d", profiles, got, want)
		}
	}
}
