package licences_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/ledger"
	"outboard.dev/outboard/policies/licences"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const annotation = "outboard.dev/licences"

func build(t testing.TB, config string) policy.Policy {
	t.Helper()
	p, err := policytest.FromYAML(licences.Type(), config)()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// needing is a pod that needs the seats that the text says.
func needing(namespace, name, text string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Annotations: map[string]string{annotation: text},
	}}
}

// world is a cluster, with its ledgers as a keeper would write them.
type world struct {
	nodes   []*corev1.Node
	pods    []*corev1.Pod // bound
	ledgers map[snapshot.LedgerKey]*snapshot.Ledger
	// signals are as in a scenario.
	signals string
	// now is the time of the next claim.
	now time.Time
}

func newWorld(nodes ...string) *world {
	w := &world{ledgers: map[snapshot.LedgerKey]*snapshot.Ledger{}, now: policytest.Now.Add(-time.Hour)}
	for _, name := range nodes {
		w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

func (w *world) view() *snapshot.View {
	var b snapshot.Builder
	for _, n := range w.nodes {
		b.SetNode(n)
	}
	for _, pod := range w.pods {
		b.SetPod(pod)
	}
	for _, l := range w.ledgers {
		b.SetLedger(l)
	}
	if w.signals != "" {
		for _, c := range policytest.Signals(w.signals) {
			b.SetColumn(c)
		}
	}
	return b.View()
}

type cycle interface {
	policy.Filter
	policy.Explainer
}

func prepare(t testing.TB, p policy.Policy, pod *corev1.Pod, view *snapshot.View) cycle {
	t.Helper()
	c, err := p.Prepare(t.Context(), pod, view)
	if err != nil || c == nil {
		t.Fatalf("Prepare returned the Cycle %v and the error %v", c, err)
	}
	return c.(cycle)
}

// filter tells the Verdict about the node as the world is now.
func (w *world) filter(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) string {
	t.Helper()
	view := w.view()
	return says(prepare(t, p, pod, view).Filter(view.Node(node)))
}

// claim has the pod claim what it needs to be bound to the node, and tells why it does
// not get it, or "fits".
func (w *world) claim(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) string {
	t.Helper()
	reserver, view := p.(policy.Reserver), w.view()
	keys, err := reserver.Ledgers(pod, view.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		l := w.ledgers[key]
		if l == nil {
			l = &snapshot.Ledger{Resource: key.Resource, Node: key.Node}
		}
		if l.Pod(pod.UID) != nil {
			continue
		}
		w.now = w.now.Add(time.Microsecond)
		chosen, verdict := reserver.Reserve(policy.Ask{Pod: pod, Node: view.Node(node), Ledger: l, View: view, At: w.now})
		if !verdict.Fits() {
			for _, key := range keys[:i] {
				w.drop(key, pod.UID)
			}
			return says(verdict)
		}
		if w.ledgers[key], err = written(l, pod, node, w.now, chosen); err != nil {
			t.Fatalf("%s: %v", pod.Name, err)
		}
	}
	return "fits"
}

func (w *world) drop(key snapshot.LedgerKey, uid types.UID) {
	w.ledgers[key] = w.ledgers[key].Without(func(other types.UID) bool { return other == uid })
}

// bind claims, and puts the pod on the node. The claim must succeed.
func (w *world) bind(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) {
	t.Helper()
	if got := w.claim(t, p, pod, node); got != "fits" {
		t.Fatalf("no claim for %s: %s", pod.Name, got)
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	w.pods = append(w.pods, pod)
}

// end takes the pod away, and all its claims.
func (w *world) end(uid types.UID) {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	for key := range w.ledgers {
		w.drop(key, uid)
	}
}

// written is the ledger with the claim in it, or what its keeper, or the rules of the
// API server, say against that.
func written(l *snapshot.Ledger, pod *corev1.Pod, node string, at time.Time, c policy.Claim) (*snapshot.Ledger, error) {
	next := &snapshot.Ledger{Resource: l.Resource, Node: l.Node, LastAt: at}
	for _, unit := range c.Units {
		u := snapshot.LedgerUnit{Name: unit.Unit, Capacity: unit.Capacity}
		if old := l.Unit(unit.Unit); old != nil {
			u.Claims = slices.Clone(old.Claims)
		}
		next.Units = append(next.Units, u)
	}
	for _, old := range l.Units {
		if next.Unit(old.Name) == nil && len(old.Claims) > 0 {
			next.Units = append(next.Units, snapshot.LedgerUnit{Name: old.Name, Claims: old.Claims})
		}
	}
	if len(c.Amounts) != 1 {
		return nil, fmt.Errorf("a claim of %d amounts", len(c.Amounts))
	}
	u := next.Unit(c.Amounts[0].Unit)
	if u == nil || c.Amounts[0].Amount < 1 {
		return nil, fmt.Errorf("a claim of %v, and the units are %v", c.Amounts, c.Units)
	}
	u.Claims = append(u.Claims, snapshot.LedgerClaim{Pod: pod.UID, Amount: c.Amounts[0].Amount})
	slices.SortFunc(u.Claims, func(a, b snapshot.LedgerClaim) int { return cmp.Compare(a.Pod, b.Pod) })
	next.Pods = append(slices.Clone(l.Pods), snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, At: at})
	if len(next.Units) > ledger.MaxUnits || len(next.Pods) > ledger.MaxPods {
		return nil, fmt.Errorf("%d units with %d pods", len(next.Units), len(next.Pods))
	}
	slices.SortFunc(next.Units, func(a, b snapshot.LedgerUnit) int { return cmp.Compare(a.Name, b.Name) })
	for _, u := range next.Units {
		if old := l.Unit(u.Name); len(u.Claims) > ledger.MaxUnitClaims || u.Used() > u.Capacity && u.Used() > old.Used() {
			return nil, fmt.Errorf("unit %q with %d claims has %d, of which %d are claimed", u.Name, len(u.Claims), u.Capacity, u.Used())
		}
	}
	return next, nil
}

// pool is the ledger of a floating feature.
func pool(feature string) snapshot.LedgerKey {
	return snapshot.LedgerKey{Resource: "licences/" + feature}
}

func used(l *snapshot.Ledger) int64 {
	var sum int64
	if l != nil {
		for i := range l.Units {
			sum += l.Units[i].Used()
		}
	}
	return sum
}

// says tells a Verdict as a scenario does.
func says(v policy.Verdict) string {
	if v.Fits() {
		return "fits"
	}
	text := v.Reason.Code
	if v.Unresolvable {
		text += "!"
	}
	if v.Reason.Unit != "" {
		text += fmt.Sprintf(" %d/%d %s", v.Have, v.Want, v.Reason.Unit)
	}
	return text
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// told is a signal about solver, true at policytest.Now.
func told(values map[string]string) string {
	var text strings.Builder
	text.WriteString("flexnet: {")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%s: %s, ", key, values[key])
	}
	return text.String() + "}"
}
