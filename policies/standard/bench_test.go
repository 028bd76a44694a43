package standard_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/snapshot"
)

const allPolicies = "testdata/all.yaml"

func loadAll(tb testing.TB) *config.Config {
	tb.Helper()
	data, err := os.ReadFile(allPolicies)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := config.Parse(allPolicies, data, config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func members(c *config.Config) []engine.WeightedPolicy {
	var all []engine.WeightedPolicy
	for _, p := range c.Profiles[0].Policies {
		all = append(all, engine.WeightedPolicy{Name: p.Name, Policy: p.Policy, Weight: p.Weight})
	}
	return all
}

// BenchmarkProfile is a filter and a prioritize call about a new pod, for all nodes of a cluster
// with six pods on each: by a profile without policies, and by one with all policies. ns/node is
// the time of both calls divided by the number of nodes; POLICY-ns/node is the part of each policy.
func BenchmarkProfile(b *testing.B) {
	c := loadAll(b)
	for _, count := range []int{500, 5000} {
		view := busyView(c, count)
		nodes := slices.Collect(view.All())
		for _, arm := range []struct {
			name    string
			members []engine.WeightedPolicy
		}{{"no-policy", nil}, {"all-policies", members(c)}} {
			b.Run(fmt.Sprintf("%d-nodes/%s", count, arm.name), func(b *testing.B) {
				e, err := engine.New(engine.Options{Policies: arm.members, Clock: time.Now})
				if err != nil {
					b.Fatal(err)
				}
				var result engine.Result
				took := map[string]time.Duration{}
				version := 0
				once := func() {
					version++
					req := engine.Request{Pod: busyPod(version), View: view, Nodes: nodes}
					for _, call := range []func() error{
						func() error { return e.Filter(b.Context(), req, &result) },
						func() error { return e.Score(b.Context(), req, &result) },
					} {
						if err := call(); err != nil {
							b.Fatal(err)
						}
						for _, p := range result.Record.Policies {
							took[p.Name] += p.Duration
						}
					}
				}
				once() // fills the caches of the nodes
				clear(took)
				b.ReportAllocs()
				for b.Loop() {
					once()
				}
				perNode := func(d time.Duration) float64 {
					return float64(d.Nanoseconds()) / float64(b.N) / float64(count)
				}
				b.ReportMetric(perNode(b.Elapsed()), "ns/node")
				for name, d := range took {
					b.ReportMetric(perNode(d), name+"-ns/node")
				}
			})
		}
	}
}

// busyView is a cluster with six pods on each node, and with every signal of the
// configuration.
func busyView(c *config.Config, count int) *snapshot.View {
	random := rand.New(rand.NewPCG(1, 2))
	var b snapshot.Builder
	signals := map[string]map[string]snapshot.Value{}
	now := time.Now()
	b.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}})
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "nic", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
	b.SetResourceClaim(claim)
	for i := range count {
		name := fmt.Sprintf("node-%05d", i)
		b.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "nic.example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "eth-0"}, {Name: "eth-1"}}}})
		resources := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
			"aliyun.com/gpu-mem": resource.MustParse("64"), "aliyun.com/gpu-count": resource.MustParse("4"), "example.com/fpga": resource.MustParse("4"),
		}
		b.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: fmt.Sprintf("type-%d", i%8), corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			}},
			Status: corev1.NodeStatus{
				Capacity: resources, Allocatable: resources,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Images:     []corev1.ContainerImage{{Names: []string{"docker.io/library/web:1"}, SizeBytes: int64(i%5) << 28}},
			},
		})
		for j := range 6 {
			pod := busyPod(0)
			pod.Name, pod.UID = fmt.Sprintf("on-%d-%d", i, j), types.UID(fmt.Sprintf("on-%d-%d", i, j))
			pod.Spec.NodeName = name
			if j > 0 { // one of them has a GPU and an FPGA
				pod.Spec.Containers[0].Resources.Limits = nil
			}
			b.SetPod(pod)
		}
		for _, s := range c.Signals {
			if s.About == policy.AboutNodes {
				if signals[s.Name] == nil {
					signals[s.Name] = map[string]snapshot.Value{}
				}
				signals[s.Name][name] = snapshot.Value{Number: random.Float64() / 2, At: now}
			}
		}
	}
	for name, values := range signals {
		b.SetSignal(snapshot.NewSignal(name, values))
	}
	return b.View()
}

// busyPod is a pod to which every policy applies.
func busyPod(version int) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	limits := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("4"), "example.com/fpga": resource.MustParse("1")}
	claim := "new"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new", UID: "new", ResourceVersion: fmt.Sprint(version), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "nic", ResourceClaimName: &claim}}, Containers: []corev1.Container{{
			Name: "main", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}
}
