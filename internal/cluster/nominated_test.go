package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

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
	for what, end := range map[string]func(*State){
		"bound by us": func(s *State) {
			s.EndRequest("p", s.BeginRequest("p"), pod("n"), time.Now())
		},
		"seen bound": func(s *State) { s.SetPod(pod("n")) },
		"gone":       func(s *State) { s.RemovePod(pod("")) },
		"not nominated any more": func(s *State) {
			p := pod("")
			p.Status.NominatedNodeName = ""
			s.SetPod(p)
		},
	} {
		s := NewState()
		s.SetComplete()
		s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		s.SetPod(pod(""))
		s.Publish()
		if len(s.View().Nominated()) != 1 {
			t.Fatalf("%s: the pod is not nominated at first", what)
		}
		end(s)
		s.Publish()
		if n := len(s.View().Nominated()); n != 0 {
			t.Errorf("%s: the pod is still nominated", what)
		}
	}
}
