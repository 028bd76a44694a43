package snapshot_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// model is the cluster that a Builder should have, in the simplest form.
type model struct {
	nodes   map[string]*corev1.Node
	pods    map[types.UID]*corev1.Pod
	budgets map[types.NamespacedName]*policyv1.PodDisruptionBudget
	ledgers map[snapshot.LedgerKey]*snapshot.Ledger
	sick    map[string]string // of each node, by its ConfigMap
	// nominated are the pods that are on no node and nominated to one.
	nominated map[types.UID]*corev1.Pod

	touched map[string]bool // nodes with changes since the last view
	rows    map[string]int  // rows of the nodes of the last view that have existed since
	most    int             // the maximum number of nodes so far
}

func (m *model) touch(name string) { m.touched[name] = true }

// show is the result of the function show for a View of the model.
func (m *model) show() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		pods := slices.SortedFunc(maps.Values(m.pods), func(a, b *corev1.Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		text += name + "{" + m.nodes[name].Labels["v"] + "}"
		for _, p := range pods {
			if p.Spec.NodeName == name {
				text += fmt.Sprintf(" %s/%s/%s/%s", p.Namespace, p.Name, p.UID, p.Labels["v"])
			}
		}
		for _, resource := range ledgerResources {
			text += showLedger(m.ledgers[snapshot.LedgerKey{Resource: resource, Node: name}])
		}
		text += " " + m.sick[name]
		text += "\n"
	}
	for _, resource := range ledgerResources {
		text += showLedger(m.ledgers[snapshot.LedgerKey{Resource: resource}])
	}
	for _, key := range slices.SortedFunc(maps.Keys(m.budgets), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		text += fmt.Sprintf("%v{%d}\n", key, m.budgets[key].Status.DisruptionsAllowed)
	}
	for _, p := range slices.SortedFunc(maps.Values(m.nominated), func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Status.NominatedNodeName, b.Status.NominatedNodeName), cmp.Compare(*b.Spec.Priority, *a.Spec.Priority),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
		)
	}) {
		text += fmt.Sprintf("%s <- %s\n", p.Status.NominatedNodeName, p.UID)
	}
	return text
}

var sick = snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "sick-"}

var ledgerResources = []string{"gpu", "seat"}

func showLedger(l *snapshot.Ledger) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf(" [%s %d]", l.Resource, l.Units[0].Capacity)
}

func showAll(v *snapshot.View) string {
	text := ""
	for n := range v.All() {
		text += n.Name + "{" + n.Object.Labels["v"] + "}"
		for _, p := range n.Pods {
			text += fmt.Sprintf(" %s/%s/%s/%s", p.Namespace, p.Name, p.UID, p.Labels["v"])
		}
		for _, l := range n.Ledgers {
			text += showLedger(l)
		}
		text += " " + n.ConfigMap(sick)["gpus"]
		text += "\n"
	}
	for _, resource := range ledgerResources {
		text += showLedger(v.Ledger(snapshot.LedgerKey{Resource: resource}))
	}
	for _, namespace := range []string{"m", "n"} {
		for b := range v.DisruptionBudgets(namespace) {
			text += fmt.Sprintf("%s/%s{%d}\n", namespace, b.Name(), b.Allowed())
		}
	}
	for _, node := range []string{"a", "b"} {
		for _, pod := range v.Nominated() {
			if pod.Status.NominatedNodeName == node {
				text += fmt.Sprintf("%s <- %s\n", node, pod.UID)
			}
		}
	}
	return text
}

// Any sequence of events results in the Views of the simple model; rows stay, unchanged nodes are shared, cursors agree with the
// map, and no View changes after it is published.
// once it is published.
func TestBuilderAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			nodes:   map[string]*corev1.Node{},
			pods:    map[types.UID]*corev1.Pod{},
			budgets: map[types.NamespacedName]*policyv1.PodDisruptionBudget{},
			ledgers: map[snapshot.LedgerKey]*snapshot.Ledger{},
			sick:    map[string]string{},

			nominated: map[types.UID]*corev1.Pod{},
			touched:   map[string]bool{},
			rows:      map[string]int{},
		}
		var b snapshot.Builder
		var views []*snapshot.View
		var texts []string
		version := 0
		nodeName := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		uid := rapid.SampledFrom([]types.UID{"1", "2", "3", "4", "5", "6", "7", "8"})
		label := rapid.SampledFrom([]string{"x", "y"})
		nextVersion := func() string { version++; return strconv.Itoa(version) }

		setNode := func(n *corev1.Node) {
			if old := m.nodes[n.Name]; old == nil || old.Labels["v"] != n.Labels["v"] {
				m.touch(n.Name)
			}
			m.nodes[n.Name] = n
			m.most = max(m.most, len(m.nodes))
			b.SetNode(n)
		}
		setPod := func(p *corev1.Pod) {
			old := m.pods[p.UID]
			on := p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
			if old != nil {
				m.touch(old.Spec.NodeName)
			}
			delete(m.pods, p.UID)
			delete(m.nominated, p.UID)
			if on {
				m.touch(p.Spec.NodeName)
				m.pods[p.UID] = p
			} else if p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				m.nominated[p.UID] = p
			}
			b.SetPod(p)
		}

		drawPod := func(t *rapid.T) {
			id := uid.Draw(t, "uid")
			p := pod(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "on"))
			p.UID = id
			p.Namespace = rapid.SampledFrom([]string{"m", "n"}).Draw(t, "namespace")
			p.Labels = map[string]string{"v": label.Draw(t, "label")}
			p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
			p.Status.NominatedNodeName = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "nominated")
			p.Spec.Priority = new(int32(rapid.IntRange(0, 1).Draw(t, "priority")))
			if rapid.IntRange(0, 5).Draw(t, "deleting") == 0 {
				p.DeletionTimestamp = &metav1.Time{}
			}
			setPod(withVersion(p, nextVersion()))
		}

		t.Repeat(map[string]func(*rapid.T){
			"SetNode": func(t *rapid.T) {
				setNode(withVersion(node(nodeName.Draw(t, "node"), "v="+label.Draw(t, "label")), nextVersion()))
			},
			"heartbeat": func(t *rapid.T) {
				if old := m.nodes[nodeName.Draw(t, "node")]; old != nil {
					b.SetNode(withVersion(old.DeepCopy(), nextVersion()))
				}
			},
			"DeleteNode": func(t *rapid.T) {
				name := nodeName.Draw(t, "node")
				if m.nodes[name] != nil {
					m.touch(name)
				}
				delete(m.nodes, name)
				delete(m.rows, name)
				b.DeleteNode(name)
			},
			"SetPod":  drawPod,
			"SetPod2": drawPod, // more often than the others
			"SetPod3": drawPod,
			"pod again": func(t *rapid.T) {
				if old := m.pods[uid.Draw(t, "uid")]; old != nil {
					b.SetPod(withVersion(old.DeepCopy(), nextVersion()))
				}
			},
			"DeletePod": func(t *rapid.T) {
				id := uid.Draw(t, "uid")
				if old := m.pods[id]; old != nil {
					m.touch(old.Spec.NodeName)
				}
				delete(m.pods, id)
				delete(m.nominated, id)
				b.DeletePod(id)
			},
			"SetDisruptionBudget": func(t *rapid.T) {
				pdb := budget(rapid.SampledFrom([]string{"m", "n"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"))
				pdb.Status.DisruptionsAllowed = rapid.Int32Range(0, 2).Draw(t, "allowed")
				m.budgets[types.NamespacedName{Namespace: pdb.Namespace, Name: pdb.Name}] = pdb
				b.SetDisruptionBudget(pdb)
			},
			"DeleteDisruptionBudget": func(t *rapid.T) {
				key := types.NamespacedName{Namespace: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "namespace"), Name: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name")}
				delete(m.budgets, key)
				b.DeleteDisruptionBudget(key)
			},
			"SetConfigMap": func(t *rapid.T) {
				name, gpus := nodeName.Draw(t, "node"), rapid.SampledFrom([]string{"", "0", "0,1"}).Draw(t, "gpus")
				if m.sick[name] == gpus {
					return
				}
				m.touch(name)
				m.sick[name] = gpus
				var data map[string]string
				if gpus != "" {
					data = map[string]string{"gpus": gpus}
				}
				b.SetConfigMap(sick, name, data)
			},
			"SetLedger": func(t *rapid.T) {
				version++
				l := &snapshot.Ledger{
					Resource: rapid.SampledFrom(ledgerResources).Draw(t, "resource"), Node: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "of"),
					Units: []snapshot.LedgerUnit{{Name: "0", Capacity: int64(version)}},
				}
				m.ledgers[l.Key()] = l
				m.touch(l.Node)
				b.SetLedger(l)
			},
			"DeleteLedger": func(t *rapid.T) {
				key := snapshot.LedgerKey{Resource: rapid.SampledFrom(ledgerResources).Draw(t, "resource"), Node: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "of")}
				if m.ledgers[key] != nil {
					m.touch(key.Node)
				}
				delete(m.ledgers, key)
				b.DeleteLedger(key)
			},
			"View": func(t *rapid.T) {
				v := b.View()
				var before *snapshot.View
				if len(views) > 0 {
					before = views[len(views)-1]
				}
				checkView(t, m, before, v)
				views, texts = append(views, v), append(texts, showAll(v))
			},
			"": func(t *rapid.T) {
				for id, want := range m.pods {
					if got := b.Pod(id); got == nil || got.Spec.NodeName != want.Spec.NodeName {
						t.Fatalf("Pod(%s) is %v, want one on %s", id, got, want.Spec.NodeName)
					}
				}
			},
		})
		versions := nodeVersions{}
		for i, v := range views {
			versions.check(t, v)
			if got := showAll(v); got != texts[i] {
				t.Fatalf("view %d changed after it was published: got\n%swant\n%s", v.Generation(), got, texts[i])
			}
		}
	})
}

// checkView compares a View with the model, and with the previous View.
func checkView(t *rapid.T, m *model, before, v *snapshot.View) {
	if got, want := showAll(v), m.show(); got != want {
		t.Fatalf("got view\n%swant\n%s", got, want)
	}
	if v.Len() != len(m.nodes) || v.Rows() < v.Len() || v.Rows() > m.most {
		t.Fatalf("Len %d, Rows %d with %d nodes, %d at most", v.Len(), v.Rows(), len(m.nodes), m.most)
	}
	seen, held := map[int]bool{}, map[string]bool{}
	for n := range v.All() {
		if seen[n.Row()] || v.At(n.Row()) != n || v.Node(n.Name) != n {
			t.Fatalf("node %s at row %d is not found again", n.Name, n.Row())
		}
		seen[n.Row()], held[n.Name] = true, true
		if row, ok := m.rows[n.Name]; ok && row != n.Row() {
			t.Fatalf("node %s moved from row %d to %d", n.Name, row, n.Row())
		}
		m.rows[n.Name] = n.Row()
	}
	for row := range v.Rows() {
		if !seen[row] && v.At(row) != nil {
			t.Fatalf("row %d holds %s, which is not in the view", row, v.At(row).Name)
		}
	}
	var asked [][]byte
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", ""}), 0, 12).Draw(t, "asked") {
		asked = append(asked, []byte(name))
	}
	for i, got := range find(v, asked) {
		if want := v.Node(string(asked[i])); got != want || (got != nil) != held[string(asked[i])] {
			t.Fatalf("looking up %q returns %v in a list and %v alone; in the view: %v", asked[i], got, want, held[string(asked[i])])
		}
	}
	if before != nil {
		if v != before && v.Generation() != before.Generation()+1 {
			t.Fatalf("generation %d after %d", v.Generation(), before.Generation())
		}
		if showAll(before) != showAll(v) && v == before {
			t.Fatal("something changed, but the view is the same")
		}
		for n := range v.All() {
			if old := before.Node(n.Name); old != nil && !m.touched[n.Name] && old != n {
				t.Fatalf("node %s was replaced without a change", n.Name)
			}
		}
	}
	clear(m.touched)
}
