package yardstick

import (
	"context"
	"flag"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	featuretesting "k8s.io/component-base/featuregate/testing"
	tracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "500"); err != nil { // before the command line is parsed
		panic(err)
	}
	metrics.Register()
	os.Exit(m.Run())
}

// inTree is the default profile of kube-scheduler, or some of its plugins, for a cluster that can be replaced.
type inTree struct {
	framework.Framework
	snapshot *lister
}

// lister is the snapshot for plugins.
type lister struct{ *cache.Snapshot }

// newInTree starts the framework. fit may change the arguments of NodeResourcesFit. If plugins are named, no others filter or score.
//
// Tolerations may compare numbers, because the API server admits such pods only where the feature is on.
func newInTree(t *testing.T, fit func(*schedulerapi.NodeResourcesFitArgs), only ...string) *inTree {
	featuretesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.TaintTolerationComparisonOperators, true)
	config, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	profile := &config.Profiles[0]
	for i := range profile.PluginConfig {
		if args, ok := profile.PluginConfig[i].Args.(*schedulerapi.NodeResourcesFitArgs); ok {
			fit(args)
		}
	}
	if only = append(only, queuesort.Name, defaultbinder.Name); len(only) > 2 {
		all := &profile.Plugins.MultiPoint
		all.Enabled = slices.DeleteFunc(all.Enabled, func(p schedulerapi.Plugin) bool { return !slices.Contains(only, p.Name) })
	}
	return start(t, profile, plugins.NewInTreeRegistry())
}

// start starts the framework with the profile, beside an API server that has the objects.
func start(t testing.TB, profile *schedulerapi.KubeSchedulerProfile, registry frameworkruntime.Registry, objects ...runtime.Object) *inTree {
	client, l := fake.NewClientset(objects...), &lister{cache.NewEmptySnapshot()}
	factory := informers.NewSharedInformerFactory(client, 0)
	published, err := tracker.StartTracker(t.Context(), tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client})
	if err != nil {
		t.Fatal(err)
	}
	claims := assumecache.NewAssumeCache(klog.Background(), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	f, err := frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithKubeConfig(&rest.Config{Host: "127.0.0.1:1"}), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(t.Context(), claims, published, factory)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(l), frameworkruntime.WithParallelism(1))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return &inTree{f, l}
}

// set replaces the cluster.
func (f *inTree) set(nodes []*corev1.Node, pods []*corev1.Pod) {
	f.snapshot.Snapshot = cache.NewSnapshot(pods, nodes)
}

// attempt is a scheduling attempt of one pod.
type attempt struct {
	*inTree
	state fwk.CycleState
	pod   *corev1.Pod
	// found are the nodes that PreFilter leaves; nil: all, unless rejected is why the pod fits nowhere.
	found    *fwk.PreFilterResult
	rejected *fwk.Status
}

func (f *inTree) begin(pod *corev1.Pod) *attempt {
	a := &attempt{inTree: f, state: framework.NewCycleState(), pod: pod}
	var status *fwk.Status
	if a.found, status, _ = f.RunPreFilterPlugins(context.Background(), a.state, pod); !status.IsSuccess() {
		a.rejected = status
	}
	return a
}

// preFilterLeaves reports whether Filter is called for the node.
func (a *attempt) preFilterLeaves(node string) bool {
	return a.rejected == nil && (a.found.AllNodes() || a.found.NodeNames.Has(node))
}

// filter returns why the pod does not fit on the node, and the plugin that rejects it; nothing if it fits.
func (a *attempt) filter(node string) (plugin string, reasons []string) {
	info, err := a.snapshot.Get(node)
	if err != nil {
		return "", []string{err.Error()}
	}
	status := a.RunFilterPlugins(context.Background(), a.state, a.pod, info)
	if status.IsSuccess() {
		return "", nil
	}
	return status.Plugin(), status.Reasons()
}

// score returns the weighted scores of the plugins, by node and by plugin.
func (a *attempt) score(nodes ...string) (map[string]map[string]int64, error) {
	var infos []fwk.NodeInfo
	for _, node := range nodes {
		info, err := a.snapshot.Get(node)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	if status := a.RunPreScorePlugins(context.Background(), a.state, a.pod, infos); !status.IsSuccess() {
		return nil, status.AsError()
	}
	all, status := a.RunScorePlugins(context.Background(), a.state, a.pod, infos)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	scores := map[string]map[string]int64{}
	for _, node := range all {
		scores[node.Name] = map[string]int64{}
		for _, s := range node.Scores {
			scores[node.Name][s.Name] = s.Score
		}
	}
	return scores, nil
}
