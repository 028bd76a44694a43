package engine_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

// oneDevice is the policy of the preemption tests: the node's label devices holds the capacity of
// each of its devices ("8.4"), a pod's annotations hold which device it uses and how much of it,
// and a pod needs all its uses on one device.
type oneDevice struct{ asked int }

var noDevice = &policy.Reason{Code: "NoDevice", Text: "no single device has enough left"}

func (p *oneDevice) Prepare(_ context.Context, pod *corev1.Pod, _ *snapshot.View) (policy.Cycle, error) {
	needs := annotated(pod, "uses")
	return filterCycle{&fake{filter: func(n *snapshot.Node) policy.Verdict {
		p.asked++
		for i, capacity := range strings.Split(n.Object.Labels["devices"], ".") {
			left, _ := strconv.ParseInt(capacity, 10, 64)
			for _, other := range n.Pods {
				if annotated(other, "device") == int64(i) {
					left -= annotated(other, "uses")
				}
			}
			if left >= needs {
				return policy.Verdict{}
			}
		}
		return policy.Verdict{Reason: noDevice}
	}}}, nil
}

func annotated(pod *corev1.Pod, key string) int64 {
	n, _ := strconv.ParseInt(pod.Annotations[key], 10, 64)
	return n
}

// scene is a parsed scenario file.
type scene struct {
	pod        *corev1.Pod
	view       *snapshot.View
	candidates []engine.Candidate
}

// TestPreempt runs the scenarios in testdata/preempt. A file begins with a description; then come
// the cluster,
//
//	node NAME devices=CAPACITY.CAPACITY…
//	pod NODE/NAME priority=N device=I uses=N started=N app=LABEL [terminating]
//	budget LABEL allowed=N [disrupted=POD] [values=N]
//	incoming priority=N uses=N
//
// the candidates that kube-scheduler proposes,
//
//	NODE: POD, POD… violations=N
//
// and the response: the candidates that are kept, with the victims in order, those that are
// dropped, and the record.
func TestPreempt(t *testing.T) {
	files, err := filepath.Glob("testdata/preempt/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			for _, f := range archive.Files {
				sections[f.Name] = string(f.Data)
			}
			s := readScene(t, sections["cluster"], sections["candidates"])
			got := s.play(t)
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := gocmp.Diff(sections["answer"], got); diff != "" && !*update {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func (s *scene) play(t *testing.T) string {
	given := gocmp.Diff(nil, s.candidates)
	e := newEngine(t, engine.WeightedPolicy{Name: "OneDevice", Policy: new(oneDevice)})
	var result engine.Result
	kept, err := e.Preempt(t.Context(), engine.PreemptRequest{Request: engine.Request{Pod: s.pod, View: s.view}, Candidates: s.candidates}, &result)
	if err != nil {
		t.Fatal(err)
	}
	if gocmp.Diff(nil, s.candidates) != given {
		t.Errorf("the candidates of the request changed to %v", s.candidates)
	}
	var b strings.Builder
	for _, c := range kept {
		victims := make([]string, 0, len(c.Victims))
		for _, uid := range c.Victims {
			victims = append(victims, string(uid))
		}
		fmt.Fprintf(&b, "%s: %s violations=%d\n", c.Name, strings.Join(victims, ", "), c.PDBViolations)
	}
	for _, p := range result.Record.Preemptions {
		if p.Dropped != "" {
			fmt.Fprintf(&b, "%s: dropped: %s\n", p.Node, p.Dropped)
		}
	}
	for _, p := range result.Record.Preemptions {
		fmt.Fprintf(&b, "record of %s: given %d, added %v\n", p.Node, p.Given, p.Added)
	}
	return b.String()
}

func readScene(t *testing.T, cluster, candidates string) *scene {
	t.Helper()
	s := &scene{}
	var builder snapshot.Builder
	for line := range strings.Lines(cluster) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		values := map[string]string{}
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			values[key] = value
		}
		switch words[0] {
		case "node":
			builder.SetNode(object(strings.Join(words[1:], " ")))
		case "pod":
			node, name, _ := strings.Cut(words[1], "/")
			builder.SetPod(scenePod(t, node, name, values))
		case "budget":
			builder.SetDisruptionBudget(sceneBudget(t, words[1], values))
		case "incoming":
			s.pod = scenePod(t, "", "incoming", values)
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	s.view = builder.View()
	for line := range strings.Lines(candidates) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		rest, violations, _ := strings.Cut(rest, "violations=")
		c := engine.Candidate{Name: name, Node: s.view.Node(name), PDBViolations: parse(t, violations)}
		for victim := range strings.SplitSeq(rest, ",") {
			if victim = strings.TrimSpace(victim); victim != "" {
				c.Victims = append(c.Victims, types.UID(victim))
			}
		}
		s.candidates = append(s.candidates, c)
	}
	return s
}

func scenePod(t *testing.T, node, name string, values map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	pod.Spec.NodeName = node
	pod.Annotations = map[string]string{"device": values["device"], "uses": values["uses"]}
	if app, ok := values["app"]; ok {
		pod.Labels = map[string]string{"app": app}
	}
	if priority, ok := values["priority"]; ok {
		p := int32(parse(t, priority))
		pod.Spec.Priority = &p
	}
	if started, ok := values["started"]; ok {
		pod.Status.StartTime = &metav1.Time{Time: time.Unix(parse(t, started), 0)}
	}
	if _, ok := values["terminating"]; ok {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return pod
}

func sceneBudget(t *testing.T, app string, values map[string]string) *policyv1.PodDisruptionBudget {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if app == "*" {
		b.Spec.Selector = &metav1.LabelSelector{} // matches no pod, as in kube-scheduler
	}
	if many := parse(t, values["values"]); many > 0 { // with this many, and none of a pod
		in := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
		for i := range many {
			in.Values = append(in.Values, fmt.Sprintf("%063d", i))
		}
		b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}
	}
	b.Status.DisruptionsAllowed = int32(parse(t, values["allowed"]))
	if disrupted, ok := values["disrupted"]; ok {
		b.Status.DisruptedPods = map[string]metav1.Time{disrupted: {}}
	}
	return b
}

func parse(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if text != "" && err != nil {
		t.Fatal(err)
	}
	return n
}

// crowd is a drawn node that is full of pods.
type crowd struct {
	incoming *corev1.Pod
	view     *snapshot.View
	given    []types.UID
	eligible []*corev1.Pod // the pods that may be added; the first is the first to be evicted
	breaking int           // how many pods at the end break a budget
	budgets  []int64       // what budgets "0" and "1" allow after the given victims
	passes   func(evicted []*corev1.Pod) bool
}

func drawCrowd(t *rapid.T) *crowd {
	c := &crowd{incoming: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "incoming"}}}
	needs := rapid.Int64Range(1, 8).Draw(t, "needs")
	priority := int32(3)
	c.incoming.Spec.Priority = &priority
	c.incoming.Annotations = map[string]string{"uses": fmt.Sprint(needs)}

	var builder snapshot.Builder
	builder.SetNode(object("n devices=8.8"))
	app := rapid.SampledFrom([]string{"", "0", "1"})
	c.budgets = []int64{rapid.Int64Range(0, 2).Draw(t, "allowed"), rapid.Int64Range(0, 2).Draw(t, "allowed")}
	for i, allowed := range c.budgets {
		builder.SetDisruptionBudget(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(allowed)},
		})
	}
	leaving := map[types.UID]bool{}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%02d", i), UID: types.UID(fmt.Sprintf("p%02d", i))}}
		pod.Spec.NodeName = "n"
		pod.Annotations = map[string]string{
			"device": fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "device")),
			"uses":   fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "uses")),
		}
		if label := app.Draw(t, "app"); label != "" {
			pod.Labels = map[string]string{"app": label}
		}
		if p := rapid.Int32Range(-1, 4).Draw(t, "priority"); p != 0 {
			pod.Spec.Priority = &p
		}
		if started := rapid.Int64Range(0, 4).Draw(t, "started"); started != 0 {
			pod.Status.StartTime = &metav1.Time{Time: time.Unix(started, 0)}
		}
		switch rapid.SampledFrom([]string{"", "", "", "", "given", "terminating"}).Draw(t, "fate") {
		case "given":
			leaving[pod.UID] = true
			c.given = append(c.given, pod.UID)
			c.evict(pod, c.budgets)
		case "terminating":
			leaving[pod.UID] = true
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		default:
			if podPriority(pod) < priority {
				c.eligible = append(c.eligible, pod)
			}
		}
		builder.SetPod(pod)
	}
	c.view = builder.View()
	cycle, _ := new(oneDevice).Prepare(t.Context(), c.incoming, c.view)
	c.passes = func(evicted []*corev1.Pod) bool {
		return cycle.(policy.Filter).Filter(c.view.Node("n").Without(func(pod *corev1.Pod) bool {
			return leaving[pod.UID] || slices.Contains(evicted, pod)
		})).Fits()
	}

	slices.SortStableFunc(c.eligible, lessImportantFirst)
	var harmless, breaking []*corev1.Pod
	allowed := slices.Clone(c.budgets)
	for _, pod := range c.eligible {
		if c.evict(pod, allowed) {
			breaking = append(breaking, pod)
		} else {
			harmless = append(harmless, pod)
		}
	}
	c.eligible, c.breaking = slices.Concat(harmless, breaking), len(breaking)
	return c
}

// evict subtracts the pod's eviction from what is allowed, and returns whether it exceeds it.
func (c *crowd) evict(pod *corev1.Pod, allowed []int64) bool {
	i, err := strconv.Atoi(pod.Labels["app"])
	if err != nil {
		return false
	}
	allowed[i]--
	return allowed[i] < 0
}

func lessImportantFirst(a, b *corev1.Pod) int {
	start := func(pod *corev1.Pod) int64 {
		if pod.Status.StartTime == nil {
			return 1 << 40
		}
		return pod.Status.StartTime.Unix()
	}
	return cmp.Or(cmp.Compare(podPriority(a), podPriority(b)), cmp.Compare(start(b), start(a)))
}

func podPriority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// set are the eligible pods whose bit is in the mask.
func (c *crowd) set(mask int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, pod := range c.eligible {
		if mask&(1<<i) != 0 {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (c *crowd) highest(mask int) int32 {
	highest := int32(-1 << 31)
	for _, pod := range c.set(mask) {
		highest = max(highest, podPriority(pod))
	}
	return highest
}

// best finds, by trying every set, the set that the package documentation promises: as a mask over
// c.eligible, or -1 if no set suffices. The bits are in the order of eviction, so sparing pods one
// by one from the last results in the smallest mask.
func (c *crowd) best() int {
	var passing []int
	for mask := range 1 << len(c.eligible) {
		if c.passes(c.set(mask)) {
			passing = append(passing, mask)
		}
	}
	if len(passing) == 0 {
		return -1
	}
	spared := slices.Min(passing)
	harmless := 1<<(len(c.eligible)-c.breaking) - 1
	best := spared
	for _, mask := range passing {
		size, least := bits.OnesCount(uint(mask)), bits.OnesCount(uint(best))
		if c.highest(mask) <= c.highest(spared) && mask&^harmless&^spared == 0 &&
			(size < least || size == least && mask < best) {
			best = mask
		}
	}
	return best
}

// preempt calls the engine for the node, and returns the pods that it adds to the victims; nil and
// false if it drops the candidate.
func (c *crowd) preempt(t *rapid.T) (added []*corev1.Pod, answer engine.Candidate, ok bool) {
	e, err := engine.New(engine.Options{Policies: []engine.WeightedPolicy{{Name: "OneDevice", Policy: new(oneDevice)}}})
	if err != nil {
		t.Fatal(err)
	}
	given := engine.Candidate{Node: c.view.Node("n"), Name: "n", Victims: c.given, PDBViolations: 100}
	var result engine.Result
	kept, err := e.Preempt(t.Context(), engine.PreemptRequest{Request: engine.Request{Pod: c.incoming, View: c.view}, Candidates: []engine.Candidate{given}}, &result)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) == 0 {
		return nil, engine.Candidate{}, false
	}
	rest := slices.Clone(kept[0].Victims)
	for _, uid := range c.given {
		at := slices.Index(rest, uid)
		if at < 0 {
			t.Fatalf("given victim %s is not among %v", uid, kept[0].Victims)
		}
		rest = slices.Delete(rest, at, at+1)
	}
	for _, uid := range rest {
		at := slices.IndexFunc(c.eligible, func(pod *corev1.Pod) bool { return pod.UID == uid })
		if at < 0 {
			t.Fatalf("the engine added victim %s, which is not eligible", uid)
		}
		added = append(added, c.eligible[at])
	}
	return added, kept[0], true
}

// On small nodes the engine finds the same set as a search of all sets.
func TestPreemptAgainstEverySet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCrowd(t)
		best := c.best()
		added, answer, ok := c.preempt(t)
		if !ok {
			if best >= 0 {
				t.Fatalf("the candidate is dropped, although evicting %v suffices", names(c.set(best)))
			}
			return
		}
		if best < 0 {
			t.Fatalf("the candidate is kept with %v, although no set suffices", names(added))
		}
		got, want := names(added), names(c.set(best))
		slices.Sort(got)
		slices.Sort(want)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("added (-best +got):\n%s", diff)
		}
		if !slices.IsSortedFunc(added, func(a, b *corev1.Pod) int { return lessImportantFirst(b, a) }) {
			t.Fatalf("added %v: the pod of the highest priority is not first", names(added))
		}
		var violations int64 = 100
		allowed := slices.Clone(c.budgets)
		for _, pod := range added {
			if c.evict(pod, allowed) {
				violations++
			}
		}
		if answer.PDBViolations != violations {
			t.Fatalf("%d violations, want %d", answer.PDBViolations, violations)
		}
	})
}

// The search for smaller sets is bounded for the whole request, so that many crowded nodes do not
// delay kube-scheduler.
func TestPreemptManyCandidates(t *testing.T) {
	const nodes, pods = 100, 30
	var builder snapshot.Builder
	var candidates []engine.Candidate
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		builder.SetNode(object(name + " devices=30"))
		for j := range pods {
			builder.SetPod(scenePod(t, name, fmt.Sprintf("%s-%02d", name, j), map[string]string{"device": "0", "uses": "1"}))
		}
		candidates = append(candidates, engine.Candidate{Name: name, Victims: []types.UID{types.UID(name + "-00")}})
	}
	view := builder.View()
	for i := range candidates {
		candidates[i].Node = view.Node(candidates[i].Name)
	}
	p := new(oneDevice)
	e := newEngine(t, engine.WeightedPolicy{Name: "OneDevice", Policy: p})
	var result engine.Result
	kept, err := e.Preempt(t.Context(), engine.PreemptRequest{
		Request:    engine.Request{Pod: scenePod(t, "", "incoming", map[string]string{"priority": "1", "uses": "15"}), View: view},
		Candidates: candidates,
	}, &result)
	if err != nil || len(kept) != nodes {
		t.Fatalf("%d nodes kept, error %v", len(kept), err)
	}
	for _, c := range kept {
		if len(c.Victims) != 15 {
			t.Errorf("%s: %d victims, want 15", c.Name, len(c.Victims))
		}
	}
	if limit := nodes*(2+pods) + 20_000; p.asked > limit {
		t.Errorf("%d sets were tried, more than %d", p.asked, limit)
	}
}

// At the deadline, the response has the best candidate found so far; after it, the engine evaluates
// no more candidates.
func TestPreemptInTime(t *testing.T) {
	s := readScene(t, `
		node n0 devices=4
		node n1 devices=4
		node n2 devices=4
		node n3 devices=4
		node n4 devices=4
		pod n1/a priority=2 device=0 uses=4
		pod n2/b priority=1 device=0 uses=2
		pod n2/c priority=1 device=0 uses=2
		pod n3/d priority=1 device=0 uses=4
		pod n4/e priority=1 device=0 uses=2
		pod n4/f priority=10 device=0 uses=2
		incoming priority=10 uses=4`, `
		n0:
		n1: a
		n2: b, c
		n3: d violations=1
		n4: e`)
	for _, tt := range []struct {
		after int // how many candidates are found before the deadline
		kept  string
		late  string
	}{
		// The engine evaluates n0 and n4 first, but kube-scheduler evicts no pods on n0, and a pod of the same priority stays on n4.
		{0, "n0 n2", "n1 n3"},
		{1, "n0 n1 n2", "n3"},
		{9, "n0 n1 n2 n3", ""},
	} {
		var result engine.Result
		asked := 0
		e := newEngine(t, engine.WeightedPolicy{Name: "OneDevice", Policy: new(oneDevice)})
		kept, err := e.Preempt(t.Context(), engine.PreemptRequest{
			Request: engine.Request{Pod: s.pod, View: s.view}, Candidates: s.candidates,
			Enough: func() bool { asked++; return asked > tt.after },
		}, &result)
		if err != nil {
			t.Fatal(err)
		}
		var names, late []string
		for _, c := range kept {
			names = append(names, c.Name)
		}
		for i, p := range result.Record.Preemptions {
			if p.Node != s.candidates[i].Name {
				t.Errorf("the record has %s in place %d, want %s", p.Node, i, s.candidates[i].Name)
			}
			if p.Dropped == "was not evaluated in time" {
				late = append(late, p.Node)
			}
		}
		if got := strings.Join(names, " "); got != tt.kept {
			t.Errorf("after %d: kept %q, want %q", tt.after, got, tt.kept)
		}
		if got := strings.Join(late, " "); got != tt.late {
			t.Errorf("after %d: not evaluated %q, want %q", tt.after, got, tt.late)
		}
	}
}

func TestPreemptFailures(t *testing.T) {
	s := readScene(t, `
		node n1 devices=4
		pod n1/a priority=1 device=0 uses=2
		pod n1/b priority=1 device=0 uses=2
		incoming priority=10 uses=4`, "n1: a")
	// Only the policy's call for the node without its victims, which only preemption makes, fails.
	bad := &fake{filter: func(n *snapshot.Node) policy.Verdict {
		if len(n.Pods) < 2 {
			panic("boom")
		}
		return policy.Verdict{}
	}}
	members := func(failurePolicy policy.FailurePolicy) []engine.WeightedPolicy {
		return []engine.WeightedPolicy{{Name: "Bad", Policy: bad, FailurePolicy: failurePolicy}, {Name: "OneDevice", Policy: new(oneDevice)}}
	}
	t.Run("fail", func(t *testing.T) {
		var result engine.Result
		kept, err := newEngine(t, members(policy.Fail)...).Preempt(t.Context(), engine.PreemptRequest{Request: engine.Request{Pod: s.pod, View: s.view}, Candidates: s.candidates}, &result)
		if err == nil || err.Error() != "policy Bad: panic: boom" || kept != nil || result.Record.Error != err.Error() {
			t.Errorf("kept %v, error %v, in the record %q", kept, err, result.Record.Error)
		}
	})
	t.Run("skip", func(t *testing.T) {
		var result engine.Result
		kept, err := newEngine(t, members(policy.Ignore)...).Preempt(t.Context(), engine.PreemptRequest{Request: engine.Request{Pod: s.pod, View: s.view}, Candidates: s.candidates}, &result)
		if err != nil || len(kept) != 1 || len(kept[0].Victims) != 2 || len(result.Record.Preemptions) != 1 {
			t.Errorf("kept %v, error %v, record %+v; want both pods evicted by the other policy", kept, err, result.Record)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := new(oneDevice)
		hangUp := &fake{filter: func(n *snapshot.Node) policy.Verdict {
			cancel(errHungUp)
			return policy.Verdict{Reason: broken}
		}}
		e := newEngine(t, engine.WeightedPolicy{Name: "HangUp", Policy: hangUp, FailurePolicy: policy.Ignore}, engine.WeightedPolicy{Name: "OneDevice", Policy: p})
		var result engine.Result
		kept, err := e.Preempt(ctx, engine.PreemptRequest{Request: engine.Request{Pod: s.pod, View: s.view}, Candidates: append(s.candidates, s.candidates...)}, &result)
		if err != errHungUp || kept != nil || hangUp.calls().Filter != 1 {
			t.Errorf("kept %v, error %v; want the cause at once", kept, err)
		}
	})
}

func names(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}
