package equality

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/kubescheduler"
	"outboard.dev/outboard/snapshot"
)

// checks is how many clusters and configurations are drawn unless -rapid.checks is set. Each places several pods.
const checks = "300"

// many is how many checks draw even rare events, and drawsMany whether this run has as many.
const many = 1500

var drawsMany bool

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": checks, "test.parallel": strconv.Itoa(maxShards)} {
		if err := flag.Set(name, value); err != nil { // before the command line is parsed
			panic(err)
		}
	}
	flag.Parse()
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	drawsMany = err == nil && n >= many
	debug.SetGCPercent(300) // a fifth less processor time: the tests allocate much and keep little
	metrics.Register()
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// sides are all implementations that decide about the pods of one cluster.
type sides struct {
	*world
	profile     *config.Profile
	cluster     *apiServer
	wire        *wire
	allocations keeper // the allocations of the wire
	memory      *inMemory
	counts      *counts
}

func TestExtenderAndSimulationDecideAlike(t *testing.T) {
	counts := inShards(t, runtime.GOMAXPROCS(0), func(t *testing.T) func(*rapid.T, *counts) {
		w := newWire(t)
		return func(t *rapid.T, counts *counts) {
			d := begin(t)
			s := &sides{wire: w, counts: counts}
			s.begin(d)
			for i := range d.between(4, 12, "pods to place") {
				s.place(d, fmt.Sprintf("pod-%d", i))
				s.change(d)
			}
		}
	})
	counts.check(t, "Named", "NamedInVain")
}

// begin draws a cluster and a configuration, and creates separate policies for each side.
func (s *sides) begin(d draw) {
	text := d.configuration()
	s.profile, s.world = &load(d, text).Profiles[0], d.world()
	s.cluster = &apiServer{world: s.world}
	s.wire.serve(s.profile, engineOf(d, s.profile), s.cluster, &s.allocations)
	s.memory = &inMemory{profile: s.profile, engine: engineOf(d, &load(d, text).Profiles[0])}
}

// place lets all sides decide about a pod, compares them, and binds the pod.
func (s *sides) place(d draw, name string) {
	pod, nodes := d.pod(name), d.subset(s.nodes)
	s.now = s.now.Add(time.Second)
	s.cluster.live, s.cluster.pending = pod, pick(d, "seen", pod, nil)
	s.cluster.publish()
	if !interested(d, s.profile, pod) {
		return // kube-scheduler makes no call
	}
	view := s.cluster.View()
	want := s.memory.ask(view, trimmed(pod), nodes)
	s.counts.note(want)
	for _, how := range []string{"by names", "by nodes"} {
		got := s.wire.ask(how, pod, nodes)
		if difference := s.compare(want, got); difference != "" {
			d.Fatalf("%s, the extender and the engine differ about pod %s: %s\nextender: %s\nengine: %s", how, name, difference, describe(got), describe(want))
		}
	}
	s.bind(d, view, pod, want)
}

// compare returns how the extender's responses differ from the engine's results, except for what the wire changes.
func (s *sides) compare(want, got decided) string {
	if want.Error != got.Error {
		return "the error of filter"
	}
	if !slices.Equal(want.Kept, got.Kept) {
		return "the nodes that are kept"
	}
	fit := 0
	for _, v := range want.Verdicts {
		if v == (verdict{}) {
			fit++
		}
	}
	if s.profile.Shortlist != nil && fit > len(want.Kept) {
		if len(got.Verdicts) != len(got.Kept) {
			return "reasons beside a shortlist"
		}
	} else if !maps.Equal(want.Verdicts, got.Verdicts) {
		return "verdicts"
	}
	switch {
	case (want.ScoreError == "") != (got.ScoreError == ""): // the wire does not have its text
		return "the error of prioritize"
	case (want.Scores == nil) != (got.Scores == nil):
		return "whether there are scores"
	case want.Scores == nil:
		return ""
	}
	return levels(want.Scores, got.Scores, s.memory.maxTotal)
}

// levels reports whether scores are totals on the levels of the wire, minus the lowest: the same order of the nodes except for
// ties, and the same best nodes.
func levels(totals, scores map[string]int64, maxTotal int64) string {
	if difference := order(totals, scores); difference != "" {
		return difference
	}
	names := slices.Sorted(maps.Keys(totals))
	want := make([]int64, len(names))
	for i, name := range names {
		want[i] = totals[name]
	}
	engine.ScaleScores(want, maxTotal, engine.MaxExtenderScore)
	least := slices.Min(want)
	for i, name := range names {
		if scores[name] != want[i]-least {
			return "the level of " + name
		}
	}
	return ""
}

// order reports whether scores order the nodes as totals do, except for ties among nodes that are not the best.
func order(totals, scores map[string]int64) string {
	for name := range totals {
		for other := range totals {
			if totals[name] > totals[other] && scores[name] < scores[other] {
				return "the order of " + name + " and " + other
			}
		}
	}
	if !slices.Equal(best(totals), best(scores)) {
		return "the best nodes"
	}
	return ""
}

// best are the nodes with the best score, in order of name.
func best(scores map[string]int64) []string {
	most := slices.Max(slices.Collect(maps.Values(scores)))
	return slices.DeleteFunc(slices.Sorted(maps.Keys(scores)), func(name string) bool { return scores[name] < most })
}

// bind makes each side allocation the pod's units on one of the kept nodes, most often the best, and compares the allocations.
func (s *sides) bind(d draw, view *snapshot.View, pod *corev1.Pod, want decided) {
	// kube-scheduler's calls contain only nodes that pass its own filters.
	filters := kubescheduler.For(pod)
	allowed := slices.DeleteFunc(slices.Clone(want.Kept), func(name string) bool { return filters.Excludes(view.Node(name).Object) != "" })
	if len(allowed) == 0 {
		return
	}
	node := allowed[d.between(0, len(allowed)-1, "node")]
	if want.Scores != nil && d.chance(80, "best") {
		if top := best(want.Scores)[0]; slices.Contains(allowed, top) {
			node = top
		}
	}
	s.rival(d, view, pod, node)
	var expected keeper
	expected.begin(s.world)
	annotations, err := s.memory.reserve(view, trimmed(pod), node, &expected)

	s.allocations.begin(s.world)
	s.cluster.bound = nil
	bindErr := s.wire.bind(pick(d, "bound", "by names", "by nodes"), pod, node)
	if text(err) != text(bindErr) {
		d.Fatalf("bind answers %q about pod %s on node %s, and the engine %q", text(bindErr), pod.Name, node, text(err))
	}
	if err != nil {
		s.counts.NotBound++
		return
	}
	got := maps.Clone(s.cluster.bound.Annotations)
	delete(got, decision.Annotation)
	if s.cluster.bound.Node != node || !maps.Equal(got, annotations) {
		d.Fatalf("pod %s is bound to node %s with %s, want node %s with %s", pod.Name, s.cluster.bound.Node, describe(got), node, describe(annotations))
	}
	if !reflect.DeepEqual(s.allocations.all, expected.all) {
		d.Fatalf("the ledgers hold %s, want %s", describe(s.allocations.list()), describe(expected.list()))
	}
	s.counts.Bound++
	s.counts.Annotated += min(1, len(annotations))
	for key, l := range expected.all {
		if before, known := s.allocated[key]; !known || !reflect.DeepEqual(before, l) {
			s.setLedger(l)
			s.counts.Allocations++
		}
	}
	s.setPod(s.world.bound(pod, node, annotations))
}

// rival lets another replica bind an equal pod to the node in some cases, which the View does not show. It returns that pod, or nil.
func (s *sides) rival(d draw, view *snapshot.View, pod *corev1.Pod, node string) *corev1.Pod {
	if !d.chance(10, "rival") {
		return nil
	}
	rival := pod.DeepCopy()
	rival.Name, rival.UID = "rival-"+pod.Name, "rival-"+pod.UID
	var allocations keeper
	allocations.begin(s.world)
	annotations, err := s.memory.reserve(view, trimmed(rival), node, &allocations)
	if err != nil {
		return nil
	}
	for _, l := range allocations.list() {
		s.setLedger(l)
	}
	rival = s.bound(rival, node, annotations)
	s.setPod(rival)
	return rival
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(err)
}

// change draws a change of the cluster.
func (s *sides) change(d draw) {
	switch pick(d, "event", "nothing", "nothing", "a pod ends", "a pod is deleted", "a node changes", "a signal changes", "a node is deleted") {
	case "a pod ends":
		if pod := s.onePod(d); pod != nil {
			pod.Status.Phase = corev1.PodSucceeded
			s.setPod(pod)
			s.release(pod.UID) // a ledger.Keeper does this soon
		}
	case "a pod is deleted":
		if pod := s.onePod(d); pod != nil {
			s.deletePod(pod.UID)
		}
	case "a node changes":
		s.setNode(d.node(d.between(0, len(s.nodes)-1, "node")))
	case "a signal changes":
		name := pick(d, "signal", slices.Concat(nodeSignals(), []string{"flexnet", "west", "east"})...)
		keys := signalKeys()[name]
		for _, node := range s.nodes {
			if len(signalKeys()[name]) == 0 {
				keys = append(keys, node.Name)
			}
		}
		s.setSignal(d.signal(name, keys))
	case "a node is deleted":
		if len(s.nodes) > 1 {
			s.deleteNode(s.nodes[d.between(0, len(s.nodes)-1, "node")].Name)
		}
	}
}

// onePod draws one of the pods, and returns a copy; nil if there are none.
func (s *sides) onePod(d draw) *corev1.Pod {
	pods := s.podsInOrder()
	if len(pods) == 0 {
		return nil
	}
	pod := pods[d.between(0, len(pods)-1, "pod")].DeepCopy()
	pod.ResourceVersion += "1"
	return pod
}
