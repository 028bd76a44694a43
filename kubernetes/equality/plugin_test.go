package equality

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/schedplugin"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// inProcess runs the plugin in kube-scheduler's own framework. The plugin reads the API server through informers and clients, so
// its data lags slightly behind changes.
type inProcess struct {
	framework.Framework
	*world
	api      *api
	signals  feeds
	snapshot *lister
	stop     context.CancelFunc
	seen     atomic.Pointer[snapshot.View] // the View by which the plugin evaluated the latest pod
	cached   *snapshot.View                // the View of the world in snapshot
	alike    alike
}

// lister is the snapshot for plugins.
type lister struct{ *cache.Snapshot }

// startPlugin starts the framework with the plugin, whose args are the configuration.
func startPlugin(t fataler, text []byte, w *world) *inProcess {
	t.Helper()
	return startFramework(t, text, w, []schedulerapi.Plugin{{Name: schedplugin.Name, Weight: 1}}, frameworkruntime.WithPodNominator(nominator{world: w}))
}

// startFramework starts the framework with the plugins; kube-scheduler's own have their defaults. The configuration is the args
// of Outboard's plugin.
func startFramework(t fataler, text []byte, w *world, enabled []schedulerapi.Plugin, more ...frameworkruntime.Option) *inProcess {
	t.Helper()
	return startPlugins(t, text, w, enabled, nil, more...)
}

// startPlugins is startFramework with plugins that come first at PostFilter.
func startPlugins(t fataler, text []byte, w *world, enabled, postFilter []schedulerapi.Plugin, more ...frameworkruntime.Option) *inProcess {
	t.Helper()
	p := &inProcess{world: w, api: newAPI(), snapshot: &lister{cache.NewEmptySnapshot()}, alike: alike{}}
	p.publish()
	client, err := kubernetes.NewForConfig(p.api.config())
	if err != nil {
		t.Fatalf("%v", err)
	}
	registry := plugins.NewInTreeRegistry()
	if err := registry.Register(schedplugin.Name, schedplugin.New(policyTypes(&p.seen), []signal.Type{p.signals.source()})); err != nil {
		t.Fatalf("%v", err)
	}
	defaults, err := latest.Default()
	if err != nil {
		t.Fatalf("%v", err)
	}
	profile := &schedulerapi.KubeSchedulerProfile{
		SchedulerName: corev1.DefaultSchedulerName,
		Plugins: &schedulerapi.Plugins{
			QueueSort:  schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: queuesort.Name}}},
			MultiPoint: schedulerapi.PluginSet{Enabled: append(enabled, schedulerapi.Plugin{Name: defaultbinder.Name})},
			PostFilter: schedulerapi.PluginSet{Enabled: postFilter},
		},
		PluginConfig: append(defaults.Profiles[0].PluginConfig, schedulerapi.PluginConfig{
			Name: schedplugin.Name, Args: &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON},
		}),
	}
	ctx, stop := context.WithCancel(background)
	p.stop = stop
	factory := informers.NewSharedInformerFactory(client, 0)
	p.Framework, err = frameworkruntime.NewFramework(ctx, registry, profile, append(more,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithKubeConfig(p.api.config()), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(p.snapshot), frameworkruntime.WithPodActivator(activator{}), frameworkruntime.WithParallelism(1))...)
	if err != nil {
		stop()
		t.Fatalf("the plugin does not start: %v\n%s", err, text)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return p
}

// activator activates no pod: there is no queue.
type activator struct{}

func (activator) Activate(klog.Logger, map[string]*corev1.Pod) {}

// nominator returns the nominated pods of a world.
type nominator struct {
	fwk.PodNominator
	world *world
}

// NominatedPodsForNode implements fwk.PodNominator.
func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo {
	var all []fwk.PodInfo
	for _, pod := range n.world.podsInOrder() {
		if pod.Spec.NodeName == "" && pod.Status.NominatedNodeName == node && pod.DeletionTimestamp == nil && !ended(pod) {
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				panic(err) // of a pod without affinity
			}
			all = append(all, info)
		}
	}
	return all
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// publish puts the current world into kube-scheduler's cache and the API server.
func (p *inProcess) publish() {
	seen := map[string]bool{}
	for _, node := range p.nodes {
		seen[nodesAPI+keyOf(node)] = true
		p.api.setNode(node)
		p.api.setUnhealthy(node.Name, p.unusable[node.Name])
	}
	var assigned []*corev1.Pod
	for _, pod := range p.podsInOrder() {
		if ended(pod) {
			continue // kube-scheduler's pod informer omits them
		}
		seen[podsAPI+keyOf(pod)] = true
		p.api.setPod(pod)
		if pod.Spec.NodeName != "" {
			assigned = append(assigned, pod)
		}
	}
	for _, key := range p.allocated.keys() {
		p.api.setLedger(p.allocated[key])
	}
	for _, s := range p.world.signals {
		p.signals.set(s)
	}
	p.api.keep(nodesAPI, seen)
	p.api.keep(podsAPI, seen)
	view := p.builder.View()
	if view == p.cached {
		return
	}
	p.cached = view
	var nodes []*corev1.Node
	known := map[string]bool{}
	for _, node := range p.nodes {
		nodes, known[node.Name] = append(nodes, node), true
	}
	var on []*corev1.Pod
	for _, pod := range assigned {
		if known[pod.Spec.NodeName] {
			on = append(on, pod)
		}
	}
	p.snapshot.Snapshot = cache.NewSnapshot(on, nodes)
}

// awaitView waits until the plugin uses the current world.
func (p *inProcess) awaitView(t fataler, profile *config.Profile) {
	t.Helper()
	p.publish()
	reads := slices.ContainsFunc(profile.Policies, func(p config.Policy) bool { return p.Type == "GPUMemory" })
	p.await(t, func(view *snapshot.View) string { return p.lacks(view, reads, p.alike) })
}

// await waits until the plugin's View, which may be nil, lacks nothing.
func (p *inProcess) await(t fataler, lacksOf func(*snapshot.View) string) {
	t.Helper()
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", UID: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuMemory: resource.MustParse("0"), fpga: resource.MustParse("0")}}, // which make it any profile's
	}}}}
	var seen *snapshot.View
	lacks := "anything"
	for look := 0; ; look++ {
		p.RunPreFilterPlugins(background, framework.NewCycleState(), probe)
		if latest := p.seen.Load(); look == 0 || latest != seen {
			seen, lacks = latest, lacksOf(latest)
		}
		if lacks == "" {
			return
		}
		if look == looks {
			t.Fatalf("the plugin does not see %s as it is", lacks)
		}
		time.Sleep(pause)
	}
}

// ask makes the calls of kube-scheduler for the pod: Filter for each of the nodes, and Score for those that pass.
func (p *inProcess) ask(state fwk.CycleState, pod *corev1.Pod, nodes []*corev1.Node) decided {
	if _, status, _ := p.RunPreFilterPlugins(background, state, pod); !status.IsSuccess() && !status.IsSkip() {
		return decided{Error: status.Message()}
	}
	d := decided{Verdicts: map[string]verdict{}}
	var left []fwk.NodeInfo
	for _, node := range nodes {
		info, err := p.snapshot.Get(node.Name)
		if err != nil {
			return decided{Error: err.Error()}
		}
		status := p.RunFilterPluginsWithNominatedPods(background, state, pod, info)
		if !status.IsSuccess() && !status.IsRejected() {
			return decided{Error: status.Message()}
		}
		d.Verdicts[node.Name] = verdict{status.Message(), status.Code() == fwk.UnschedulableAndUnresolvable}
		if status.IsSuccess() {
			d.Kept, left = append(d.Kept, node.Name), append(left, info)
		}
	}
	if len(left) == 0 {
		return d
	}
	if status := p.RunPreScorePlugins(background, state, pod, left); !status.IsSuccess() {
		d.ScoreError = status.Message()
		return d
	}
	scores, status := p.RunScorePlugins(background, state, pod, left)
	if !status.IsSuccess() {
		d.ScoreError = status.Message()
		return d
	}
	d.Scores = map[string]int64{}
	for _, s := range scores {
		d.Scores[s.Name] = s.TotalScore
	}
	return d
}

// looks is the maximum number of calls until the plugin has a change, which takes some milliseconds, but seconds on a busy machine.
const looks, pause = 30_000, 2 * time.Millisecond

// TestPluginDecidesAlike compares the plugin with the engine. A shortlist has no effect on a plugin, which gets one node at a
// time.
func TestPluginDecidesAlike(t *testing.T) {
	// The plugin gets its data from an API server, and waits for it most of the time.
	counts := inShards(t, maxShards, func(*testing.T) func(*rapid.T, *counts) {
		return func(t *rapid.T, counts *counts) {
			d := begin(t)
			d.unlearned = true
			s := &sides{world: d.world(), counts: counts}
			text := d.configuration()
			s.profile = &load(d, text).Profiles[0]
			s.profile.Shortlist = nil
			s.memory = &inMemory{profile: s.profile, engine: engineOf(d, s.profile)}
			p := startPlugin(d, text, s.world)
			defer p.stop()
			for i := range d.between(4, 12, "pods to place") {
				p.awaitView(d, s.profile)
				s.placeBeside(d, p, fmt.Sprintf("pod-%d", i))
				p.awaitView(d, s.profile)
				s.change(d)
			}
		}
	})
	counts.check(t, "Shortlisted", "Named", "NamedInVain")
}

// placeBeside lets the engine and the plugin decide about a pod, compares them, and places it.
func (s *sides) placeBeside(d draw, p *inProcess, name string) {
	pod, nodes := d.pod(name), d.subset(s.nodes)
	s.now = s.now.Add(time.Second)
	view := s.builder.View()
	want := s.memory.ask(view, trimmed(pod), nodes)
	if !interested(d, s.profile, pod) {
		want = s.nothing(nodes)
	}
	s.counts.note(want)
	p.api.setPod(pod)
	state := framework.NewCycleState()
	got := p.ask(state, pod, nodes)
	difference := s.comparePlugin(want, got)
	if difference != "" {
		d.Fatalf("the plugin and the engine differ about pod %s: %s\nplugin: %s\nengine: %s", name, difference, describe(got), describe(want))
	}
	if len(want.Kept) > 0 && want.Scores != nil && interested(d, s.profile, pod) {
		s.bindBeside(d, p, state, pod, best(want.Scores)[0])
	}
}

// bindBeside makes the engine and the plugin allocation the pod's units on the node, and compares the allocations, except for their times.
func (s *sides) bindBeside(d draw, p *inProcess, state fwk.CycleState, pod *corev1.Pod, node string) {
	view := s.builder.View()
	if rival := s.rival(d, view, pod, node); rival != nil {
		p.api.setPod(rival)
		for _, key := range s.allocated.keys() {
			p.api.setLedger(s.allocated[key])
		}
	}
	var allocations keeper
	allocations.begin(s.world)
	want, err := s.memory.reserve(view, trimmed(pod), node, &allocations)
	got, status := p.bind(state, pod, node)
	if err != nil {
		if s.counts.NotBound++; status.IsSuccess() || !strings.Contains(oneLine(status.AsError()), oneLine(err)) {
			d.Fatalf("the plugin binds pod %s to node %s with %q, want the error %q", pod.Name, node, status.Message(), err)
		}
		return
	}
	if !status.IsSuccess() {
		d.Fatalf("the plugin does not bind pod %s to node %s: %v", pod.Name, node, status.AsError())
	}
	s.counts.Bound++
	s.counts.Annotated += min(1, len(want))
	if want = timeless(want); !maps.Equal(timeless(got), want) {
		d.Fatalf("the plugin binds pod %s to node %s with %s, want %s", pod.Name, node, describe(got), describe(want))
	}
	before := s.allocated
	s.allocated = ledgers{}
	for _, l := range p.api.ledgers() {
		s.setLedger(l)
		s.counts.Allocations += min(1, len(l.Pods)-len(before[l.Key()].Pods))
	}
	if got, want := s.allocated.timeless(), allocations.all.timeless(); !reflect.DeepEqual(got, want) {
		d.Fatalf("the ledgers hold %s, want %s", describe(got), describe(want))
	}
	s.setPod(s.bound(pod, node, got))
}

// assumeTime is the annotation with the time of an allocation, which comes from the API server's clock.
const assumeTime = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

// timeless returns the annotations without the time of the allocation and the decision.
func timeless(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	delete(annotations, assumeTime)
	delete(annotations, decision.Annotation)
	return annotations
}

// timeless returns the contents of the ledgers, without times and tokens.
func (l ledgers) timeless() []snapshot.Ledger {
	var all []snapshot.Ledger
	for _, key := range l.keys() {
		one := l[key]
		one.LastAt, one.Pods = time.Time{}, slices.Clone(one.Pods)
		for i := range one.Pods {
			one.Pods[i].At, one.Pods[i].Token, one.Pods[i].Annotations = time.Time{}, "", timeless(one.Pods[i].Annotations)
		}
		one.Units = slices.Clone(one.Units)
		for i := range one.Units {
			one.Units[i].Allocations = append([]snapshot.LedgerAllocation{}, one.Units[i].Allocations...)
		}
		all = append(all, one)
	}
	return all
}

// bind reserves the node for the pod, and binds it there, as kube-scheduler does. It returns the annotations of the Binding.
func (p *inProcess) bind(state fwk.CycleState, pod *corev1.Pod, node string) (map[string]string, *fwk.Status) {
	if status := p.RunReservePluginsReserve(background, state, pod, node); !status.IsSuccess() {
		return nil, status
	}
	status := p.RunPreBindPlugins(background, state, pod, node)
	if status.IsSuccess() {
		status = p.RunBindPlugins(background, state, pod, node)
	}
	if !status.IsSuccess() {
		p.RunReservePluginsUnreserve(background, state, pod, node)
		return nil, status
	}
	p.RunPostBindPlugins(background, state, pod, node)
	return p.api.binding(keyOf(pod)).Annotations, nil
}

// nothing is the decision about a pod that is not the profile's.
func (s *sides) nothing(nodes []*corev1.Node) decided {
	s.memory.maxTotal = 0
	d := decided{Verdicts: map[string]verdict{}, Scores: map[string]int64{}}
	for _, node := range nodes {
		d.Kept = append(d.Kept, node.Name)
		d.Verdicts[node.Name], d.Scores[node.Name] = verdict{}, 0
	}
	return d
}

// comparePlugin returns how the plugin's results differ from the engine's.
func (s *sides) comparePlugin(want, got decided) string {
	switch {
	case want.Error != "":
		if !strings.Contains(oneLine(fmt.Errorf("%s", got.Error)), want.Error) {
			return "the error of filter"
		}
		return ""
	case got.Error != "":
		return "an error of filter"
	}
	for name, v := range want.Verdicts {
		if got.Verdicts[name] != v {
			return "the verdict on " + name
		}
	}
	switch {
	case (want.ScoreError == "") != (got.ScoreError == ""):
		return "the error of scoring"
	case len(want.Kept) == 0 || want.Scores == nil:
		return ""
	}
	return order(want.Scores, got.Scores)
}
