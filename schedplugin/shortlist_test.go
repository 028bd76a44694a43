package schedplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"outboard.dev/outboard/internal/decision"
)

// frame is the part of kube-scheduler's framework that a shortlist needs.
type frame struct {
	fwk.Handle
	ordered
	plugin    *plugin
	rejects   map[string]bool // nodes that other plugins reject
	filtered  []string        // nodes for which the filters ran
	extenders []fwk.Extender
	activated []string
}

func (f *frame) ProfileName() string       { return "default-scheduler" }
func (f *frame) Extenders() []fwk.Extender { return f.extenders }

func (f *frame) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	f.activated = append(f.activated, slices.Sorted(maps.Keys(pods))...)
}

func (f *frame) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	f.filtered = append(f.filtered, info.Node().Name)
	if f.rejects[info.Node().Name] {
		return fwk.NewStatus(fwk.Unschedulable, "rejected")
	}
	return f.plugin.Filter(ctx, state, pod, info)
}

// withPlugins makes the scheduler one whose profile has these plugins.
func (s *scheduler) withPlugins(order ordered) *frame {
	f := &frame{ordered: order, rejects: map[string]bool{}}
	f.plugin = newPlugin(s.process, arguments{}, f)
	s.plugin = f.plugin
	return f
}

// inOrder are the plugins of a profile that can have a shortlist.
var inOrder = ordered{binds: []string{Name, "DefaultBinder"}, preFilters: []string{"NodeAffinity", "NodePorts", Name}, postFilters: []string{Name, "DefaultPreemption"}}

// ranked prefers nodes with the annotation in the order of its value.
const ranked = `profiles: [{shortlist: %d, policies: [
  {type: PodLimit, config: {max: 3, selector: {matchLabels: {app: web}}}},
  {type: Rules, config: {scores: [{name: rank, expression: 'int(node.metadata.labels["rank"])'}]}}]}]`

// rank starts the plugin with the shortlist in a cluster of nodes with these ranks.
func rank(t *testing.T, shortlist int, ranks ...int) (*scheduler, *frame) {
	t.Helper()
	s := schedule(t, 0, fmt.Sprintf(ranked, shortlist))
	for i, rank := range ranks {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"rank": fmt.Sprint(rank)}}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("4")}
		if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.generation++
		s.infos = append(s.infos, &nodeInfo{node: node, generation: s.generation})
	}
	s.eventually("all nodes", func() bool { return s.service.Cluster.View().Len() == len(ranks) })
	return s, s.withPlugins(inOrder)
}

// named returns the nodes that PreFilter names for the pod, in order of name; "" if it names none.
func (s *scheduler) named(st *state, pod *corev1.Pod) string {
	s.t.Helper()
	var all []fwk.NodeInfo
	for _, info := range s.infos {
		all = append(all, info)
	}
	result, status := s.PreFilter(s.t.Context(), st, pod, all)
	if !status.IsSuccess() {
		s.t.Fatal(status.AsError())
	}
	if result == nil {
		return ""
	}
	if result.NodeNames != nil && len(result.NodeNames) == 0 {
		s.t.Error("an empty set rejects the pod on every node")
	}
	return strings.Join(slices.Sorted(maps.Keys(result.NodeNames)), " ")
}

// PreFilter names the best nodes that all plugins let pass. It calls the filters of others for no more nodes than it needs.
func TestShortlistHasTheBestUsableNodes(t *testing.T) {
	s, f := rank(t, 2, 10, 40, 30, 20, 50)
	f.rejects["n4"] = true
	s.assume(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "large"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")}},
	}}}}, 2)
	pod := podNamed("p", web)
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	st := &state{}
	if got := s.named(st, pod); got != "n1 n3" { // not n2, which has too little CPU
		t.Errorf("named %s", got)
	}
	if got := strings.Join(f.filtered, " "); got != "n4 n1 n3" {
		t.Errorf("the filters ran for %s", got)
	}
	s.PreScore(t.Context(), st, pod, []fwk.NodeInfo{s.infos[1], s.infos[3]})
	r := s.service.Log.Find(decision.Query{Namespace: "default", Name: "p", Limit: 9})
	r = slices.DeleteFunc(r, func(r *decision.Record) bool { return r.Verb != decision.Filter })
	if len(r) != 1 || r[0].Nodes != 5 || r[0].Fit != 5 || r[0].Returned != 2 || len(r[0].Top) != 2 || r[0].Top[0].Node != "n1" {
		t.Errorf("the records are %+v", r)
	}
}

// kube-scheduler also filters nodes that are not named, such as one to which batching or another plugin nominates the pod.
func TestFilterOfNodesThatAreNotNamed(t *testing.T) {
	s, _ := rank(t, 1, 1, 2, 1)
	for i := range 3 {
		s.assume(podNamed(fmt.Sprint("other-", i), web), 0) // as many as PodLimit allows
	}
	pod, st := podNamed("p", web), &state{}
	if got := s.named(st, pod); got != "n1" {
		t.Fatalf("named %s", got)
	}
	if full, free := s.Filter(t.Context(), st, pod, s.infos[0]), s.Filter(t.Context(), st, pod, s.infos[2]); full.IsSuccess() || !free.IsSuccess() {
		t.Errorf("the filter says %v about a full node, and %v about another one", full, free)
	}
}

// Equally good nodes are named in turn.
func TestShortlistsTakeTurns(t *testing.T) {
	s, _ := rank(t, 2, 5, 1, 5, 5, 5, 5)
	var got []string
	for i := range 4 {
		got = append(got, s.named(&state{}, podNamed(fmt.Sprint("p", i), web)))
	}
	if want := []string{"n0 n2", "n3 n4", "n0 n5", "n2 n3"}; !slices.Equal(got, want) {
		t.Errorf("named %q, want %q", got, want)
	}
}

// An extender rejects nodes after all plugins have run.
type extender struct {
	fwk.Extender
	filters, interested bool
}

func (e extender) IsFilter() bool                { return e.filters }
func (e extender) IsInterested(*corev1.Pod) bool { return e.interested }

// PreFilter names no nodes for pods that must not depend on a few nodes.
func TestShortlistForEligiblePodsOnly(t *testing.T) {
	s, f := rank(t, 1, 1, 2)
	onFields := []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n0"}}}}}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod, *state)
		want   string
	}{
		{"any", func(*corev1.Pod, *state) {}, "n1"},
		{"of a DaemonSet", func(pod *corev1.Pod, _ *state) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: onFields}}}
		}, ""},
		{"nominated", func(pod *corev1.Pod, _ *state) { pod.Status.NominatedNodeName = "n0" }, ""},
		{"on a node, to be resized", func(pod *corev1.Pod, _ *state) { pod.Spec.NodeName = "n0" }, ""},
		{"with devices", func(pod *corev1.Pod, _ *state) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, ""},
		{"in a group", func(_ *corev1.Pod, st *state) { st.group = true }, ""},
		{"an extender that filters", func(*corev1.Pod, *state) { f.extenders = []fwk.Extender{extender{filters: true, interested: true}} }, ""},
		{"extenders for other pods or other calls", func(*corev1.Pod, *state) {
			f.extenders = []fwk.Extender{extender{filters: true}, extender{interested: true}}
		}, "n1"},
	} {
		pod, st := podNamed(tt.name, web), &state{}
		tt.change(pod, st)
		if got := s.named(st, pod); got != tt.want {
			t.Errorf("%s: named %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Each attempt with a shortlist is counted once, by what came of it.
func TestShortlistsAreCounted(t *testing.T) {
	s, f := rank(t, 1, 1, 2)
	with := s.plugin
	for i, attempt := range []func(pod *corev1.Pod){
		func(pod *corev1.Pod) { pod.Status.NominatedNodeName = "n0" },
		func(pod *corev1.Pod) { pod.Spec.Containers = make([]corev1.Container, 40000) }, // no policy evaluates it
		func(*corev1.Pod) { f.rejects["n0"], f.rejects["n1"] = true, true },
		func(*corev1.Pod) { clear(f.rejects) },
		func(*corev1.Pod) { s.withPlugins(ordered{}) },
	} {
		pod := podNamed(fmt.Sprint("p", i), web)
		attempt(pod)
		s.named(&state{}, pod)
	}
	s.plugin = with
	pod, st := podNamed("rejected", web), &state{}
	s.named(st, pod)
	s.PostFilter(t.Context(), st, pod, nil)
	s.named(&state{}, pod)
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "outboard_shortlist_")
		for _, m := range family.GetMetric() {
			if ours {
				labels := m.GetLabel()
				got = append(got, fmt.Sprintf("%s %s %g", name, labels[0].GetValue(), m.GetCounter().GetValue()))
			}
		}
	}
	want := []string{
		"attempts_total disallowed 1", "attempts_total ineligible 1", "attempts_total named 2", "attempts_total none_usable 1",
		"attempts_total not_scored 1", "attempts_total suspended 1", "rejected_total / 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Nodes are named only if the plugin runs after all that could reject nodes and before all that evict pods, and knows the plugins in between.
func TestOrderForShortlist(t *testing.T) {
	for _, tt := range []struct {
		name  string
		order ordered
		inert []string
		want  string
	}{
		{"in order", inOrder, nil, ""},
		{"PostFilter after others", ordered{preFilters: inOrder.preFilters, postFilters: []string{"DefaultPreemption", Name}}, nil, "plugins.postFilter.enabled of the profile must have Outboard"},
		{"no PostFilter", ordered{preFilters: inOrder.preFilters}, nil, "plugins.postFilter.enabled of the profile must have Outboard"},
		{"PreFilter before others", ordered{preFilters: []string{Name, "NodePorts"}, postFilters: inOrder.postFilters}, nil, "Outboard must be the last plugin of preFilter"},
		{"an unknown plugin", ordered{preFilters: []string{"Quota", Name}, postFilters: inOrder.postFilters}, nil, "the plugin Quota has PreFilter: list it in inertPlugins"},
		{"an inert plugin", ordered{preFilters: []string{"Quota", Name}, postFilters: inOrder.postFilters}, []string{"Quota"}, ""},
	} {
		_, err := filtersOf(tt.order, tt.inert)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := filtersOf(struct{}{}, nil); err == nil {
		t.Error("there is no error for a framework that lists no plugins")
	}
}

// With a shortlist, kube-scheduler must not place other pods on the nodes that were named for one of them.
func TestNoSignatureWithShortlist(t *testing.T) {
	s, _ := rank(t, 1, 1)
	if _, status := s.SignPod(t.Context(), podNamed("p", nil)); status.Code() != fwk.Unschedulable {
		t.Errorf("SignPod returns %v", status)
	}
}
