package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"outboard.dev/outboard/snapshot"
)

// A nomination counts only if a scheduler wrote it.
func TestNominationsOfSchedulers(t *testing.T) {
	const (
		nominates = `{"f:status":{"f:nominatedNodeName":{}}}`
		schedules = `{"f:status":{"f:conditions":{"k:{\"type\":\"PodScheduled\"}":{".":{},"f:type":{}}}}}`
		both      = `{"f:status":{"f:conditions":{"k:{\"type\":\"PodScheduled\"}":{".":{},"f:type":{}}},"f:nominatedNodeName":{}}}`
		other     = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{}},"f:nominatedNodeName":{}}}`
	)
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: "status", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for _, tc := range []struct {
		what     string
		managers []metav1.ManagedFieldsEntry
		counts   bool
	}{
		{"nobody knows who", nil, true},
		{"kube-scheduler", []metav1.ManagedFieldsEntry{entry("kubectl", `{"f:spec":{}}`), entry("kube-scheduler", both)}, true},
		{"kube-scheduler before it binds", []metav1.ManagedFieldsEntry{entry("kube-scheduler", nominates)}, true},
		{"another scheduler", []metav1.ManagedFieldsEntry{entry("my-scheduler", both)}, true},
		{"a cluster autoscaler", []metav1.ManagedFieldsEntry{entry("kube-scheduler", schedules), entry("cluster-autoscaler", nominates)}, false},
		{"who sets other conditions", []metav1.ManagedFieldsEntry{entry("x", other)}, false},
		{"two, one of them a scheduler", []metav1.ManagedFieldsEntry{entry("x", other), entry("kube-scheduler", both)}, true},
		{"damaged", []metav1.ManagedFieldsEntry{entry("x", `{"f:status":{`), {Manager: "y"}, entry("z", nominates)}, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", ManagedFields: tc.managers}, Status: corev1.PodStatus{NominatedNodeName: "n"}}
		if got := trimmedPod(pod).Status.NominatedNodeName != ""; got != tc.counts || pod.Status.NominatedNodeName == "" {
			t.Errorf("nominated by %s: counts in the informers of kube-scheduler: %v, want %v", tc.what, got, tc.counts)
		}
		api := fake.NewClientset()
		api.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, pod.DeepCopy(), nil })
		live, err := (&Cluster{client: api, state: newState(), options: Options{LookupTimeout: time.Second}}).LivePod(t.Context(), "", "p", "p")
		if err != nil {
			t.Fatal(err)
		}
		if got := live.Status.NominatedNodeName != ""; got != tc.counts {
			t.Errorf("nominated by %s: counts in what is read from the API server: %v, want %v", tc.what, got, tc.counts)
		}
		trimPod(pod)
		s := newState()
		s.setComplete()
		s.setPod(pod)
		s.publish()
		if got := len(s.view().Nominated()) == 1; got != tc.counts {
			t.Errorf("nominated by %s: counts: %v, want %v", tc.what, got, tc.counts)
		}
		if pod.ManagedFields != nil {
			t.Errorf("nominated by %s: the pod still has managed fields", tc.what)
		}
	}
}

// A pod that was created with its node has no condition PodScheduled until a kubelet writes it.
func TestPodsCreatedWithTheirNode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.Unix(100, 0)}, Spec: corev1.PodSpec{NodeName: "n"}}
	shared := trimmedPod(pod)
	trimPod(pod)
	for what, pod := range map[string]*corev1.Pod{"own watch": pod, "kube-scheduler's informers": shared} {
		if at, _ := snapshot.BoundBefore(pod); at.Unix() != 101 {
			t.Errorf("%s: bound before %s, want a second after the pod was created", what, at)
		}
	}
	waiting := trimmedPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.Unix(100, 0)}})
	if at, known := snapshot.BoundBefore(waiting); known {
		t.Errorf("a pod without a node was bound before %s", at)
	}
}

// A nomination ends when this process or another one binds the pod, or when the pod is deleted.
func TestNominationEnds(t *testing.T) {
	pod := func(node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: node}}
		if node == "" {
			p.Status.NominatedNodeName = "n"
		}
		return p
	}
	for what, end := range map[string]func(*state){
		"bound by us": func(s *state) {
			s.endRequest("p", s.beginRequest("p"), pod("n"), time.Now())
		},
		"seen bound": func(s *state) { s.setPod(pod("n")) },
		"gone":       func(s *state) { s.removePod(pod("")) },
		"not nominated any more": func(s *state) {
			p := pod("")
			p.Status.NominatedNodeName = ""
			s.setPod(p)
		},
	} {
		s := newState()
		s.setComplete()
		s.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		s.setPod(pod(""))
		s.publish()
		if len(s.view().Nominated()) != 1 {
			t.Fatalf("%s: the pod is not nominated at first", what)
		}
		end(s)
		s.publish()
		if n := len(s.view().Nominated()); n != 0 {
			t.Errorf("%s: the pod is still nominated", what)
		}
	}
}
