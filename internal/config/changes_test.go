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
				if strings.Contains(risk, "there are allocations") {
					allocations = append(allocations, risk)
				}
			}
			want := []string{}
			if len(tt.want) > 0 {
				want = append(want, "no policy allocates "+strings.Join(tt.want, " or ")+" any more, and there are allocations: Outboard does not count them, and pods that are bound from then on have none: kubectl get ledgers lists them")
			}
			if !slices.Equal(allocations, want) {
				t.Errorf("got %q, want %q", allocations, want)
			}
		})
	}
}

// A removed URL has one risk, which says what kube-scheduler does with the pods until it is
// restarted.
func TestRiskOfARemovedURL(t *testing.T) {
	const other = "- path: /other\n  policies: [{type: PodLimit, config: {max: 1, selector: {}}}]\n"
	const restart = " any more: calls of kube-scheduler fail with status 404 until it is restarted with what outboard setup scheduler --config FILE prints. Until then, "
	const pending = " stay pending, or are placed without the profile if its extender has ignorable: true or only prioritizeVerb"
	for _, tt := range []struct{ name, old, new, want string }{
		{"with allocations", "- path: /gpu\n  policies: [{type: GPUMemory}]\n", "", "profile /gpu: nothing serves /gpu/filter, /gpu/prioritize, /gpu/preempt, /gpu/bind" + restart + "pods that request aliyun.com/gpu-mem or aliyun.com/gpu-count" + pending},
		{"for every pod", "- policies: [{type: ImageLocality}]\n", "", "profile /: nothing serves /filter, /prioritize, /preempt, /bind" + restart + "all pods" + pending},
		{"scores only", "- path: /images\n  verb: Prioritize\n  policies: [{type: ImageLocality}]\n", "", "profile /images: nothing serves /images" + restart + "all pods are placed without its scores"},
		{"one verb is left", "- path: /a\n  policies: [{type: ImageLocality}]\n", "- path: /a/prioritize\n  verb: Prioritize\n  policies: [{type: ImageLocality}]\n", "profile /a: nothing serves /a/filter, /a/preempt, /a/bind" + restart + "all pods" + pending},
	} {
		var configs []*config.Config
		for _, profiles := range []string{tt.old, tt.new} {
			c, err := config.Parse("f", []byte(plain+"profiles:\n"+profiles+other), realTypes)
			if err != nil {
				t.Fatal(err)
			}
			configs = append(configs, c)
		}
		var got []string
		for _, risk := range config.Compare(configs[0], configs[1], config.Observed{}).Risks {
			if strings.Contains(risk, "404") {
				got = append(got, risk)
			} else if strings.Contains(risk, "profile") || strings.Count(risk, "if pods hold allocations") != 1 {
				t.Errorf("%s: another risk: %s", tt.name, risk)
			}
		}
		if !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The risk names the schedulers that schedulerNames excludes, as the finding SchedulerNotAccepted
// of doctor does.
func TestRiskNamesExcludedSchedulers(t *testing.T) {
	const consequence, listed = " fail, and these pods stay pending (kubectl get pods --all-namespaces --field-selector ", ",status.phase=Pending lists them)"
	for _, tt := range []struct{ old, new, want string }{
		{"[a, b, c]", "[b]", "schedulerNames are b, without a and c: bind calls for the pods of a and c" + consequence + "spec.schedulerName!=b" + listed},
		{"[a]", "[b, c]", "schedulerNames are b and c, without a: bind calls for the pods of a" + consequence + "spec.schedulerName=a" + listed},
		{"[]", "[b]", "schedulerNames are b, and were not limited before: bind calls for the pods of all other schedulers" + consequence + "spec.schedulerName!=b" + listed},
		{"[a]", "[a, b]", ""},
		{"[a]", "[]", ""},
		{"[]", "[]", ""},
	} {
		var configs []*config.Config
		for _, names := range []string{tt.old, tt.new} {
			c, err := config.Parse("f", []byte(plain+"profiles: [{schedulerNames: "+names+", policies: [{type: GPUMemory}]}]\n"), realTypes)
			if err != nil {
				t.Fatal(err)
			}
			configs = append(configs, c)
		}
		got := strings.Join(config.Compare(configs[0], configs[1], config.Observed{}).Risks, "\n")
		if want := strings.TrimSuffix("profile /: "+tt.want, "profile /: "); got != want {
			t.Errorf("from %s to %s: got %q, want %q", tt.old, tt.new, got, want)
		}
	}
}

func TestRiskOfAProfileForEveryPod(t *testing.T) {
	const before, after = "- path: /gpu\n  policies: [{type: GPUMemory}]\n", "- path: /gpu\n  %spolicies: [{type: GPUMemory, config: {scoringStrategy: {type: LeastWaste}}}]\n"
	for managed, want := range map[string]string{
		"managedResources: []\n  ": "profile /gpu: is now for every pod: with a new configuration, ",
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

// What an extender must call does not matter to the plugin.
func TestRisksOfAPlugin(t *testing.T) {
	var configs []*config.Config
	for _, profiles := range []string{
		"- policies: [{type: GPUMemory}]\n",
		"- {path: /new, policies: [{type: Devices, config: {resource: example.com/fpga}}]}\n- policies: [{type: PodLimit, weight: 5, config: {max: 1, selector: {}}}]\n",
	} {
		c, err := config.Parse("f", []byte(plain+"profiles:\n"+profiles), realTypes)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, c)
	}
	want := []string{"no policy allocates aliyun.com/gpu-mem or aliyun.com/gpu-count any more: if pods hold allocations, Outboard does not count them, and pods that are bound from then on have none: kubectl get ledgers lists them"}
	if got := config.Compare(configs[0], configs[1], config.Observed{Plugin: true}).Risks; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
