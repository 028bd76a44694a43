package simulate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// somePod is on the node, or on none for "", and belongs to an object of the kind, or to none for "".
func somePod(name, node, owner string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner}}
	}
	return p
}

func podNames(pods []*corev1.Pod) string {
	var names []string
	for _, j := range pods {
		names = append(names, j.Name)
	}
	return strings.Join(names, " ")
}

func TestPlan(t *testing.T) {
	running, daemon, static := somePod("runs", "n", "ReplicaSet"), somePod("proxy", "n", "DaemonSet"), somePod("etcd", "n", "Node")
	pending, waitingDaemon, other := somePod("waits", "", ""), somePod("proxy-2", "", "DaemonSet"), somePod("other", "", "")
	ended := somePod("done", "n", "Job")
	ended.Status.Phase = corev1.PodSucceeded
	file := func(pods ...*corev1.Pod) *Objects { return &Objects{Pods: pods, Nodes: []*corev1.Node{{}}} }
	for _, tt := range []struct {
		name                  string
		files                 []*Objects
		empty                 bool
		running, pending, mix string
		text                  string
	}{
		{
			"a dump", []*Objects{file(running, daemon, static, pending, waitingDaemon, ended)}, false,
			"proxy etcd runs", "waits", "runs",
			"1 node; 3 pods stay, 2 of them of DaemonSets or static. 1 pending pod arrives first. Pods like the 1 pod that runs arrive in turn. Pods that stay do not count as arrived. 1 pending pod of a DaemonSet is left out.",
		},
		{
			"a dump, emptied", []*Objects{file(running, daemon, pending)}, true,
			"proxy", "waits", "runs",
			"1 node; 1 pod stays, 1 of them of DaemonSets or static. 1 pending pod arrives first. Pods like the 1 pod that runs arrive in turn. Pods that stay do not count as arrived.",
		},
		{
			"what is to come, by itself", []*Objects{file(pending, other)}, false,
			"", "", "waits other",
			"1 node; no pod stays. Pods like the 2 pods of the files arrive in turn.",
		},
		{
			"what is to come, beside a dump", []*Objects{file(running, pending), file(other)}, false,
			"runs", "waits", "other",
			"2 nodes; 1 pod stays. 1 pending pod arrives first. Pods like the 1 pod of the files arrive in turn. Pods that stay do not count as arrived.",
		},
		{
			"a new cluster", []*Objects{file(daemon, pending)}, false,
			"proxy", "", "waits",
			"1 node; 1 pod stays, 1 of them of DaemonSets or static. Pods like the 1 pod of the files arrive in turn. Pods that stay do not count as arrived.",
		},
		{
			"nodes alone", []*Objects{file()}, false,
			"", "", "",
			"1 node; no pod stays.",
		},
	} {
		p := NewPlan(tt.files, tt.empty)
		if got := podNames(Again(p.Running)); got != tt.running || podNames(p.Pending) != tt.pending || podNames(p.Mix) != tt.mix {
			t.Errorf("%s: %q run, %q are pending, %q come", tt.name, got, podNames(p.Pending), podNames(p.Mix))
		}
		if got := strings.Join(p.Text("in turn"), " "); got != tt.text {
			t.Errorf("%s: got text %q", tt.name, got)
		}
	}
}
