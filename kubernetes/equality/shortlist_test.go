package equality

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clientcache "k8s.io/client-go/tools/cache"
	tracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"pgregory.net/rapid"

	"outboard.dev/outboard/schedplugin"
)

// ownFilters are kube-scheduler's own plugins with filters, in the order of its default profile, and the one that evicts pods.
func ownFilters() (plugins []schedulerapi.Plugin) {
	for _, name := range []string{
		names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
		names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity,
		names.DynamicResources, names.NodeDeclaredFeatures, names.DeferredPodScheduling, names.DefaultPreemption,
	} {
		plugins = append(plugins, schedulerapi.Plugin{Name: name, Weight: 1})
	}
	return plugins
}

// TestShortlist compares the nodes that the plugin names beside kube-scheduler's own plugins, with what the filters of all plugins and the
// engine say about each node. The named nodes are the best of all that fit, so no attempt with them fails: a pod that is placed without
// a shortlist is placed with them at once, and no pod is evicted for it. If a plugin is wrong about which nodes others let pass
// (inertPlugins), nothing is evicted, and the next attempt has all nodes.
func TestShortlist(t *testing.T) {
	fewer(t, 3) // each check starts more plugins than those of other tests
	counts := inShards(t, maxShards, func(t *testing.T) func(*rapid.T, *counts) {
		devices := noDevices(t)
		return func(t *rapid.T, counts *counts) {
			d := begin(t)
			d.unlearned = true
			s := &sides{world: d.constrainedWorld(), counts: counts}
			text := d.configuration()
			s.profile = &load(d, text).Profiles[0]
			s.profile.Shortlist = nil
			s.memory = &inMemory{profile: s.profile, engine: engineOf(d, s.profile)}
			n := d.between(1, 5, "shortlist")
			wrong := d.chance(30, "a plugin is wrongly taken for inert")
			p := startPlugins(d, withShortlist(text, n, wrong), s.world, append(ownFilters(), schedulerapi.Plugin{Name: schedplugin.Name, Weight: 1}),
				[]schedulerapi.Plugin{{Name: schedplugin.Name}}, frameworkruntime.WithPodNominator(nominator{world: s.world}),
				frameworkruntime.WithSharedDRAManager(devices), frameworkruntime.WithSharedCSIManager(noDrivers()))
			defer p.stop()
			p.addVolumes(d)
			for i := range d.between(2, 6, "pods to place") {
				p.awaitView(d, s.profile)
				s.placeWithShortlist(d, p, fmt.Sprintf("pod-%d", i), n, wrong)
				p.awaitView(d, s.profile)
				s.change(d)
			}
		}
	})
	counts.check(t, "Shortlisted", "Failed", "Rejected", "Unresolvable", "FitNowhere", "NotBound", "TooLarge", "NamedInVain")
}

// withShortlist adds a shortlist to the configuration of the plugin.
func withShortlist(text []byte, n int, wrong bool) []byte {
	var args object
	if err := json.Unmarshal(text, &args); err != nil {
		panic(err) // of a configuration
	}
	profile := args["profiles"].([]any)[0].(object)
	if slices.ContainsFunc(profile["policies"].([]any), func(p any) bool { return p.(object)["weight"] != 0.0 }) {
		profile["shortlist"] = n // without scores, no node is better than another
	} else {
		profile["shortlist"] = 0
	}
	if wrong {
		args["inertPlugins"] = []string{names.NodePorts, names.PodTopologySpread, names.InterPodAffinity}
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // of maps, lists and numbers
	}
	return text
}

// noDrivers manages the CSI drivers of a cluster without any.
func noDrivers() fwk.CSIManager {
	return nodevolumelimits.NewCSIManager(storagelisters.NewCSINodeLister(clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, nil)))
}

// constrainedWorld draws a cluster in which some pods keep others from their nodes.
func (d draw) constrainedWorld() *world {
	w := d.world()
	for _, pod := range w.podsInOrder() {
		if d.chance(40, "constrained") {
			pod = pod.DeepCopy()
			d.constrain(pod)
			w.setPod(pod)
		}
	}
	return w
}

// constrain adds constraints that only kube-scheduler's own plugins know.
func (d draw) constrain(pod *corev1.Pod) {
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	affinity := &corev1.Affinity{}
	if d.chance(50, "host port") {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: pick(d, "port", int32(8080), 8081), Protocol: corev1.ProtocolTCP}}
	}
	if d.chance(10, "selector") {
		pod.Spec.NodeSelector = map[string]string{zoneKey: "a"}
	}
	if d.chance(15, "spread") {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: zoneKey, LabelSelector: &web, WhenUnsatisfiable: pick(d, "when", corev1.DoNotSchedule, corev1.ScheduleAnyway),
		}}
	}
	if d.chance(15, "anti-affinity") {
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: &web, TopologyKey: pick(d, "topology", "kubernetes.io/hostname", zoneKey)},
		}}
	}
	if d.chance(8, "affinity") {
		affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &web, TopologyKey: zoneKey}}}
	}
	if d.chance(5, "names nodes") {
		affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-00"}}}},
		}}}
	}
	if *affinity != (corev1.Affinity{}) {
		pod.Spec.Affinity = affinity
	}
	if d.chance(10, "volume") {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
}

const (
	volumesAPI = "/api/v1/persistentvolumes"
	claimsAPI  = "/api/v1/persistentvolumeclaims"
)

// addVolumes adds a bound volume in each namespace, which is reachable from some nodes.
func (p *inProcess) addVolumes(d draw) {
	for _, namespace := range []string{"default", "team-a"} {
		name := "of-" + namespace
		volume := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v"}}
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "data", UID: "c"}
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-00", "node-03"}}}},
		}}}
		claim := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "data", UID: "c", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
		}}
		claim.Spec.VolumeName = name
		p.api.set(volumesAPI, volume)
		p.api.set(claimsAPI, claim)
		for look := 0; ; look++ {
			_, err := p.SharedInformerFactory().Core().V1().PersistentVolumes().Lister().Get(name)
			_, claimErr := p.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get("data")
			if err == nil && claimErr == nil {
				break
			}
			if look == looks {
				d.Fatalf("the informers do not show the volumes: %v, %v", err, claimErr)
			}
			time.Sleep(pause)
		}
	}
}

// placeWithShortlist lets the plugin name nodes for a pod, compares them with all nodes, and places the pod.
func (s *sides) placeWithShortlist(d draw, p *inProcess, name string, n int, wrong bool) {
	pod := d.pod(name)
	d.constrain(pod)
	s.now = s.now.Add(time.Second)
	view := s.builder.View()
	want := s.memory.ask(view, trimmed(pod), s.nodes)
	p.api.setPod(pod)
	state := framework.NewCycleState()
	result, status, _ := p.RunPreFilterPlugins(background, state, pod)
	if !status.IsSuccess() || want.Error != "" || want.ScoreError != "" || !interested(d, s.profile, pod) {
		return
	}
	s.counts.Cases++
	fit := p.fitting(d, state, pod)
	switch own := pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil; {
	case own && (result.AllNodes() || !slices.Equal(sets.List(result.NodeNames), []string{"node-00"})):
		d.Fatalf("the affinity of pod %s names node-00, and it gets %v", pod.Name, result)
	case own:
		return
	case result.AllNodes():
		if !wrong && len(fit) > 0 && len(best(want.Scores)) < len(want.Scores) {
			d.Fatalf("no nodes are named for pod %s, which fits on %v", pod.Name, fit)
		}
		return
	}
	named := sets.List(result.NodeNames)
	s.counts.Named++
	var placed []string // where an attempt with the named nodes finds that it fits
	for _, node := range named {
		if slices.Contains(fit, node) {
			placed = append(placed, node)
		}
	}
	switch {
	case wrong && len(placed) == 0:
		s.counts.NamedInVain++
		s.retried(d, p, state, pod)
		return
	case wrong:
	case len(placed) < len(named) || len(named) != min(n, len(fit)):
		d.Fatalf("%d of the nodes %v are to be named for pod %s, not %v", n, fit, pod.Name, named)
	default:
		for _, node := range fit {
			for _, other := range named {
				if !slices.Contains(named, node) && want.Scores[node] > want.Scores[other] {
					d.Fatalf("%s is named for pod %s, and %s, which is better, is not: %v", other, pod.Name, node, want.Scores)
				}
			}
		}
	}
	s.counts.Scored += min(1, len(fit)-1)
	s.counts.Distinct += min(1, len(fit)-len(named))
	top := slices.MaxFunc(placed, func(a, b string) int { return int(want.Scores[a] - want.Scores[b]) })
	s.bindBeside(d, p, state, pod, top)
}

// fitting returns the nodes on which all plugins let the pod pass.
func (p *inProcess) fitting(d draw, state fwk.CycleState, pod *corev1.Pod) (fit []string) {
	for _, node := range p.nodes {
		info, err := p.snapshot.Get(node.Name)
		if err != nil {
			d.Fatalf("%v", err)
		}
		switch status := p.RunFilterPluginsWithNominatedPods(background, state, pod, info); {
		case status.IsSuccess():
			fit = append(fit, node.Name)
		case !status.IsRejected():
			d.Fatalf("filter on %s: %v", node.Name, status.AsError())
		}
	}
	return fit
}

// retried checks what happens after no named node was usable: nothing is evicted, and the pod gets all nodes.
func (s *sides) retried(d draw, p *inProcess, state fwk.CycleState, pod *corev1.Pod) {
	statuses := framework.NewDefaultNodeToStatus()
	for _, node := range s.nodes {
		statuses.Set(node.Name, fwk.NewStatus(fwk.Unschedulable, "rejected"))
	}
	result, status := p.RunPostFilterPlugins(background, state, pod, statuses)
	if status.Code() != fwk.UnschedulableAndUnresolvable || status.Plugin() != schedplugin.Name || result != nil {
		d.Fatalf("PostFilter returns %v, %v", result, status)
	}
	for range 2 {
		if again, status, _ := p.RunPreFilterPlugins(background, framework.NewCycleState(), pod); !status.IsSuccess() || !again.AllNodes() {
			d.Fatalf("the next attempt names %v, %v", again, status)
		}
	}
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
