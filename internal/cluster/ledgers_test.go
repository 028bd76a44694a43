package cluster

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

// What a pod holds is free in the View as soon as the watch shows its deletion, although its allocation stays in the Ledger a while
// longer; it counts again if the pod comes back.
func TestAllocationsOfPodsThatAreGone(t *testing.T) {
	s := NewState()
	s.SetComplete()
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	object := func(pods ...types.UID) *ledger.Object {
		o := &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: snapshot.Ledger{Resource: "gpu", Node: "n", Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 10}}}}
		for _, uid := range pods {
			o.Spec.Pods = append(o.Spec.Pods, snapshot.LedgerPod{UID: uid})
			o.Spec.Units[0].Allocations = append(o.Spec.Units[0].Allocations, snapshot.LedgerAllocation{Pod: uid, Amount: 3})
		}
		return o
	}
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}, Spec: corev1.PodSpec{NodeName: "n"}}
	}
	used := func(step string, want int64) {
		t.Helper()
		s.Publish()
		if got := s.View().Node("n").Ledger("gpu").Unit("0").Used(); got != want {
			t.Errorf("%s: %d used, want %d", step, got, want)
		}
	}
	s.SetPod(pod("a"))
	s.SetPod(pod("b"))
	s.SetLedger(object("a", "b", "c"))
	used("allocated, c not seen yet", 9)
	ended := pod("a")
	ended.Status.Phase = corev1.PodSucceeded
	s.SetPod(ended)
	used("a has ended", 6)
	s.RemovePod(pod("b"))
	used("b is gone", 3)
	s.SetLedger(object("a", "b", "c", "d"))
	used("the Ledger says it again", 6)
	s.SetPod(pod("b"))
	used("b is back, after a restore", 9)
	s.SetLedger(object("b", "c"))
	used("the allocation of a is released", 6)
	s.SetLedger(object("a", "b", "c"))
	used("a late bind call of an allocations again", 9)
	s.RemovePod(pod("b"))
	s.RemoveLedger(object())
	used("the Ledger is gone", 0)
	if len(s.gone) > 0 || len(s.allocations) > 0 {
		t.Errorf("got %v and %v in memory", s.gone, s.allocations)
	}
}

// A pod that is gone has allocations in two ledgers. A bind call that comes late allocates again in the one that has released its allocation already.
func TestLateAllocationBesideAnother(t *testing.T) {
	s := NewState()
	s.SetComplete()
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	object := func(resource string, pods ...types.UID) *ledger.Object {
		o := &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: resource}, Spec: snapshot.Ledger{Resource: resource, Node: "n", Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 10}}}}
		for _, uid := range pods {
			o.Spec.Pods = append(o.Spec.Pods, snapshot.LedgerPod{UID: uid})
			o.Spec.Units[0].Allocations = append(o.Spec.Units[0].Allocations, snapshot.LedgerAllocation{Pod: uid, Amount: 3})
		}
		return o
	}
	used := func(step string, want ...int64) {
		t.Helper()
		s.Publish()
		for i, resource := range []string{"gpu", "fpga"} {
			if got := s.View().Node("n").Ledger(resource).Unit("0").Used(); got != want[i] {
				t.Errorf("%s: %d of %s used, want %d", step, got, resource, want[i])
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Name: "a"}, Spec: corev1.PodSpec{NodeName: "n"}}
	s.SetPod(pod)
	s.SetLedger(object("gpu", "a"))
	s.SetLedger(object("fpga", "a"))
	used("allocated", 3, 3)
	s.RemovePod(pod)
	used("gone", 0, 0)
	s.SetLedger(object("gpu"))
	s.SetLedger(object("gpu", "a"))
	used("allocated late", 3, 0)
	s.SetLedger(object("fpga"))
	used("the other allocation is released", 3, 0)
	s.SetLedger(object("gpu"))
	if len(s.gone) > 0 || len(s.allocations) > 0 {
		t.Errorf("got %v and %v in memory", s.gone, s.allocations)
	}
}

// A ledger that somebody has made by hand, beside the one of the same key, changes no View. It may also take the name of another ledger while the
// watch is interrupted.
func TestLedgersWithOtherNames(t *testing.T) {
	c := &Cluster{State: NewState(), options: Options{Logger: slog.New(slog.DiscardHandler)}}
	c.SetComplete()
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	key := snapshot.LedgerKey{Resource: "gpu", Node: "n"}
	object := func(name, node string, used int64) *ledger.Object {
		return &ledger.Object{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: snapshot.Ledger{
			Resource: "gpu", Node: node, Pods: []snapshot.LedgerPod{{UID: "a"}},
			Units: []snapshot.LedgerUnit{{Name: "0", Capacity: 10, Allocations: []snapshot.LedgerAllocation{{Pod: "a", Amount: used}}}},
		}}
	}
	used := func(step string, want int64) {
		t.Helper()
		c.Publish()
		var got int64
		if l := c.View().Node("n").Ledger("gpu"); l != nil {
			got = l.Unit("0").Used()
		}
		if got != want {
			t.Errorf("%s: %d used, want %d", step, got, want)
		}
	}
	c.setLedger(object(ledger.Name(key), "n", 3))
	c.setLedger(object("made-by-hand", "n", 5))
	used("made by hand", 3)
	c.RemoveLedger(object("made-by-hand", "n", 5))
	used("removed", 3)
	if n := len(c.Ledgers()); n != 1 {
		t.Errorf("%d ledgers", n)
	}
	c.setLedger(object(ledger.Name(key), "another node", 5))
	used("the name has another ledger", 0)
}

func TestConfigMapsOfNodes(t *testing.T) {
	s := NewState()
	s.SetComplete()
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	source := snapshot.ConfigMapSource{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}
	k := configMapStore(s, slog.New(slog.DiscardHandler), source)
	k.feed, k.known = &feed{done: func() {}}, map[identity]struct{}{}
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Annotations: map[string]string{"secret": "x"}}, Data: data}
		k.trim(m)
		return m
	}
	gpus := func(step, want string) {
		t.Helper()
		s.Publish()
		if got := s.View().Node("n").ConfigMap(source)["gpus"]; got != want {
			t.Errorf("%s: got %q, want %q", step, got, want)
		}
	}
	foreign := configMap("other", map[string]string{"password": "x"})
	if foreign.Data != nil || foreign.Annotations != nil {
		t.Errorf("the state has data of another ConfigMap: %v", foreign)
	}
	k.set(foreign)
	gpus("none", "")
	k.set(configMap("unhealthy-gpu-n", map[string]string{"gpus": "0"}))
	gpus("set", "0")
	list := func(objects ...any) {
		if err := k.Replace(objects, ""); err != nil {
			t.Error(err)
		}
	}
	list(configMap("unhealthy-gpu-n", map[string]string{"gpus": "0,2"}), foreign)
	gpus("replaced", "0,2")
	list(foreign)
	gpus("not listed any more", "")
	k.set(configMap("unhealthy-gpu-n", nil))
	k.remove(configMap("unhealthy-gpu-n", nil))
	gpus("removed", "")
}
