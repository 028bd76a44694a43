package licenses_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

const annotation = "outboard.dev/licenses"

// needing is a pod that needs the seats in the text.
func needing(namespace, name, text string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Annotations: map[string]string{annotation: text},
	}}
}

// world is a cluster, with its ledgers as a keeper writes them.
type world struct {
	nodes   []*corev1.Node
	pods    []*corev1.Pod // bound
	ledgers map[snapshot.LedgerKey]*snapshot.Ledger
	// signals are as in a scenario.
	signals string
	// now is the time of the next allocation.
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
	w.build(&b)
	return b.View()
}

func (w *world) build(b *snapshot.Builder) {
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
			b.SetSignal(c)
		}
	}
}

type cycle interface {
	policy.Filter
	policy.Explainer
}

func prepare(t policytest.T, p policy.Policy, pod *corev1.Pod, view *snapshot.View) cycle {
	t.Helper()
	return policytest.Prepare[cycle](t, p, pod, view)
}

// filter returns the verdict on the node for the current world.
func (w *world) filter(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) string {
	t.Helper()
	view := w.view()
	return policytest.Says(prepare(t, p, pod, view).Filter(view.Node(node)))
}

var errNoSeats = errors.New("there are not enough seats")

// allocation makes the allocation that the pod needs to be bound to the node, and returns the reason if that
// fails, or "fits".
func (w *world) allocation(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) string {
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
		w.now = w.now.Add(time.Microsecond)
		var verdict policy.Verdict
		holder := snapshot.LedgerPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node}
		next, _, err := ledger.Allocate(*l, holder, func(l *snapshot.Ledger, at time.Time) (chosen policy.Allocation, err error) {
			chosen, verdict = reserver.Reserve(policy.ReserveRequest{Pod: pod, Node: view.Node(node), Ledger: l, View: view, At: at})
			if !verdict.Fits() {
				err = errNoSeats
			}
			return chosen, err
		}, w.now)
		switch {
		case errors.Is(err, errNoSeats):
			for _, key := range keys[:i] {
				w.drop(key, pod.UID)
			}
			return policytest.Says(verdict)
		case err != nil:
			t.Fatalf("%s: %v", pod.Name, err)
		}
		w.ledgers[key] = &next
	}
	return "fits"
}

func (w *world) drop(key snapshot.LedgerKey, uid types.UID) {
	w.ledgers[key] = w.ledgers[key].Without(func(other types.UID) bool { return other == uid })
}

// bind makes an allocation, and adds the pod to the node. The allocation must succeed.
func (w *world) bind(t testing.TB, p policy.Policy, pod *corev1.Pod, node string) {
	t.Helper()
	if got := w.allocation(t, p, pod, node); got != "fits" {
		t.Fatalf("no allocation for %s: %s", pod.Name, got)
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	w.pods = append(w.pods, pod)
}

// end removes the pod, and all its allocations.
func (w *world) end(uid types.UID) {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	for key := range w.ledgers {
		w.drop(key, uid)
	}
}

// pool is the ledger of a floating feature.
func pool(feature string) snapshot.LedgerKey {
	return snapshot.LedgerKey{Resource: "licenses/" + feature}
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

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// toldAt is a signal about solver, reported at that time.
func toldAt(at time.Time, values map[string]string) string {
	dated := map[string]string{}
	for key, number := range values {
		dated[key] = fmt.Sprintf("{number: %s, at: %q}", number, at.Format(time.RFC3339Nano))
	}
	return told(dated)
}

// told is a signal about solver, reported at policytest.Now.
func told(values map[string]string) string {
	var text strings.Builder
	text.WriteString("flexnet: {")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%s: %s, ", key, values[key])
	}
	return text.String() + "}"
}
