package equality

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	tracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/simulate"
	"outboard.dev/outboard/schedplugin"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/openb"
)

const (
	traceNodes = "trace.nodes" // the flag
	traceSeed  = 42
	traceUntil = 1.3 // the multiple of the capacity that arrives
	// extenderFactor is kube-scheduler's factor for the scores of an extender of weight 1.
	extenderFactor = 10
)

// TestTraceIsPlacedAlike fills a part of the cluster of the GPU trace with its pods, each where the previous ones have left
// enough free: in a simulation, behind the wire, and with the plugin in kube-scheduler's framework. The latter two also run
// kube-scheduler's own plugins, for which a simulation has its own code.
func TestTraceIsPlacedAlike(t *testing.T) {
	for _, c := range []struct {
		strategy string
		// plugin is false if placement depends on the exact time at which a process observes the pods that have come.
		plugin bool
	}{{"BinPack", true}, {"Spread", true}, {"LeastWaste", false}} {
		t.Run(c.strategy, func(t *testing.T) {
			w, mix := readTrace(t)
			text := traceConfiguration(c.strategy)
			profile := &load(t, text).Profiles[0]
			fill := func(fine bool) map[types.UID]*corev1.Pod {
				w.Extenders = []simulate.Extender{{Engine: engineOf(t, profile), Weight: 1, KeepScores: fine}}
				bound := map[types.UID]*corev1.Pod{}
				w.Bound = func(pod *corev1.Pod) { bound[pod.UID] = pod }
				filled, err := w.FillUp(t.Context(), mix, traceSeed, traceUntil)
				if err != nil {
					t.Fatal(err)
				}
				if filled.Rejected == 0 {
					t.Fatal("no pod was rejected")
				}
				return bound
			}
			pods, err := w.Order(mix, traceSeed, traceUntil)
			if err != nil {
				t.Fatal(err)
			}
			schedulers := map[string]*traced{"the wire": behindWire(t, w.Nodes, text)}
			want := map[string]map[types.UID]*corev1.Pod{"the wire": fill(false)}
			if c.plugin {
				schedulers["the plugin"], want["the plugin"] = withPlugin(t, w.Nodes, text), fill(true)
			}
			gpus := 0
			for _, pod := range pods {
				for name, s := range schedulers {
					comparePlaces(t, name, pod, s.place(t, pod.DeepCopy()), want[name][pod.UID])
				}
				if bound := want["the wire"][pod.UID]; bound != nil && bound.Annotations[assumeTime] != "" {
					gpus++
				}
			}
			t.Logf("%d pods on %d nodes: %d bound behind the wire, %d of them with GPUs", len(pods), len(w.Nodes), len(want["the wire"]), gpus)
			if gpus == 0 {
				t.Error("no pod has GPUs")
			}
		})
	}
}

// readTrace returns a part of the trace's nodes, of all kinds, and all its pods.
func readTrace(t *testing.T) (*simulate.World, []*corev1.Pod) {
	nodes, jobs, err := openb.Read("../../bench/openb", openb.Pods)
	if err != nil {
		t.Fatal(err)
	}
	w := &simulate.World{Resource: gpuMemory, Scheduler: simulate.Scheduler{
		PercentageOfNodesToScore: 100, ResourceScore: simulate.LeastAllocated, FirstOfEqual: true,
	}}
	most := flag.Lookup(traceNodes).Value.(flag.Getter).Get().(int)
	for i, node := range nodes {
		if step := max(1, len(nodes)/most); i%step == 0 && len(w.Nodes) < most {
			w.Nodes = append(w.Nodes, node)
		}
	}
	return w, openb.PodsOf(jobs)
}

func traceConfiguration(strategy string) []byte {
	text, err := json.Marshal(object{
		"apiVersion": config.APIVersion, "kind": config.Kind, "serving": object{"insecure": true}, "admin": object{"address": "127.0.0.1:0"}, "log": object{"level": "Error"},
		"profiles": []object{{"managedResources": []object{}, "shortlist": 0, "policies": []object{
			{"type": observerType, "weight": 0},
			{"type": "GPUMemory", "weight": 1, "config": object{"multiGPU": true, "scoringStrategy": object{"type": strategy}}},
		}}},
	})
	if err != nil {
		panic(err) // of maps, lists and numbers
	}
	return text
}

// comparePlaces compares the bound pod with the one in the simulation; nil: it fits on no node.
func comparePlaces(t *testing.T, name string, pod, got, want *corev1.Pod) {
	t.Helper()
	switch {
	case got == nil && want == nil:
	case got == nil:
		t.Fatalf("with %s, pod %s fits on no node; in the simulation it is bound to %s", name, pod.Name, want.Spec.NodeName)
	case want == nil:
		t.Fatalf("with %s, pod %s is bound to %s; in the simulation it fits on no node", name, pod.Name, got.Spec.NodeName)
	case got.Spec.NodeName != want.Spec.NodeName || !maps.Equal(timeless(got.Annotations), timeless(want.Annotations)):
		t.Fatalf("with %s, pod %s is bound to %s with %s; in the simulation to %s with %s", name, pod.Name,
			got.Spec.NodeName, describe(got.Annotations), want.Spec.NodeName, describe(want.Annotations))
	}
}

// traced is kube-scheduler with its own plugins for resources, and either the plugin or an extender.
type traced struct {
	*inProcess
	cache       cache.Cache
	wire        *wire // nil: the plugin
	cluster     *apiServer
	allocations keeper
}

func withPlugin(t *testing.T, nodes []*corev1.Node, text []byte) *traced {
	s := startTraced(t, nodes, text, schedulerapi.Plugin{Name: schedplugin.Name, Weight: extenderFactor})
	s.await(t, func(view *snapshot.View) string {
		if view == nil || view.Len() < len(nodes) {
			return "nodes"
		}
		return ""
	})
	return s
}

func behindWire(t *testing.T, nodes []*corev1.Node, text []byte) *traced {
	s, profile := startTraced(t, nodes, text), &load(t, text).Profiles[0]
	s.wire, s.cluster = newWire(t), &apiServer{world: s.world}
	s.wire.serve(profile, engineOf(t, profile), s.cluster, &s.allocations)
	return s
}

func startTraced(t *testing.T, nodes []*corev1.Node, text []byte, more ...schedulerapi.Plugin) *traced {
	w := &world{pods: map[types.UID]*corev1.Pod{}, allocated: ledgers{}}
	s := &traced{cache: cache.New(t.Context(), nil, false, false)}
	for _, node := range nodes {
		w.setNode(node)
		s.cache.AddNode(klog.Background(), node)
	}
	own := []schedulerapi.Plugin{{Name: names.NodeResourcesFit, Weight: 1}, {Name: names.NodeResourcesBalancedAllocation, Weight: 1}}
	s.inProcess = startFramework(t, text, w, append(own, more...),
		frameworkruntime.WithPodNominator(nominator{world: new(world)}), frameworkruntime.WithSharedDRAManager(noDevices(t)))
	t.Cleanup(s.stop)
	s.snapshot.Snapshot = cache.NewEmptySnapshot()
	return s
}

// noDevices manages the devices of a cluster without ResourceSlices. NodeResourcesFit reads extended resources there, too.
func noDevices(t *testing.T) fwk.SharedDRAManager {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	published, err := tracker.StartTracker(t.Context(), tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client})
	if err != nil {
		t.Fatal(err)
	}
	claims := assumecache.NewAssumeCache(klog.Background(), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	manager := dynamicresources.NewDRAManager(t.Context(), claims, published, factory)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return manager
}

// place schedules the pod, and returns the bound pod; nil if it fits on no node.
func (s *traced) place(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	s.now = pod.CreationTimestamp.Time
	s.arrive(pod)
	if err := s.cache.UpdateSnapshot(klog.Background(), s.snapshot.Snapshot); err != nil {
		t.Fatal(err)
	}
	state := framework.NewCycleState()
	d := s.ask(state, pod, s.nodes)
	if s.wire != nil && len(d.Kept) > 0 {
		left := slices.DeleteFunc(slices.Clone(s.nodes), func(n *corev1.Node) bool { return d.Verdicts[n.Name] != verdict{} })
		own := d.Scores
		d = s.wire.ask("by names", pod, left)
		for name := range d.Scores {
			d.Scores[name] = own[name] + extenderFactor*d.Scores[name]
		}
	}
	if d.Error != "" || d.ScoreError != "" {
		t.Fatalf("pod %s: %s%s", pod.Name, d.Error, d.ScoreError)
	}
	if len(d.Kept) == 0 {
		s.leave(pod)
		return nil
	}
	node := best(d.Scores)[0]
	var bound *corev1.Pod
	if s.wire != nil {
		bound = s.bindOverWire(t, pod, node)
	} else {
		annotations, status := s.bind(state, pod, node)
		if !status.IsSuccess() {
			t.Fatalf("the plugin does not bind pod %s to node %s: %v", pod.Name, node, status.AsError())
		}
		bound = s.bound(pod, node, annotations)
		s.api.setPod(bound)
		s.await(t, func(view *snapshot.View) string { return lacksPod(view, bound) })
	}
	if err := s.cache.AddPod(klog.Background(), bound); err != nil {
		t.Fatal(err)
	}
	return bound
}

// lacksPod reports whether the View lacks the pod on its node, or its allocation.
func lacksPod(view *snapshot.View, bound *corev1.Pod) string {
	if !slices.ContainsFunc(view.Node(bound.Spec.NodeName).Pods, func(p *corev1.Pod) bool {
		return p.UID == bound.UID && p.Annotations[assumeTime] == bound.Annotations[assumeTime]
	}) {
		return "pod " + bound.Name
	}
	if bound.Annotations[assumeTime] == "" {
		return ""
	}
	l := view.Ledger(snapshot.LedgerKey{Resource: gpuMemory, Node: bound.Spec.NodeName})
	if l == nil || !slices.ContainsFunc(l.Pods, func(p snapshot.LedgerPod) bool { return p.UID == bound.UID }) {
		return "the allocation of pod " + bound.Name
	}
	return ""
}

func (s *traced) bindOverWire(t *testing.T, pod *corev1.Pod, node string) *corev1.Pod {
	t.Helper()
	s.allocations.begin(s.world)
	if err := s.wire.bind("by names", pod, node); err != nil {
		t.Fatalf("the extender does not bind pod %s to node %s: %v", pod.Name, node, err)
	}
	key := snapshot.LedgerKey{Resource: gpuMemory, Node: node}
	if l, known := s.allocations.all[key]; known {
		s.setLedger(l)
	}
	bound := s.bound(pod, node, s.cluster.bound.Annotations)
	s.setPod(bound)
	return bound
}

// arrive adds a new pod.
func (s *traced) arrive(pod *corev1.Pod) {
	if s.wire == nil {
		s.api.setPod(pod)
		return
	}
	s.setPod(pod)
	s.cluster.live, s.cluster.pending = pod, pod
	s.cluster.publish()
}

// leave removes a pod without a node.
func (s *traced) leave(pod *corev1.Pod) {
	if s.wire == nil {
		s.api.remove(podsAPI, keyOf(pod))
		return
	}
	delete(s.pods, pod.UID)
	s.builder.DeletePod(pod.UID)
}
