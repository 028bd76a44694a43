package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/test/controlplane"
)

// from is another build, for example of an earlier commit (make upgrade).
var from = flag.String("from", "", "a binary of Outboard from which TestUpgrade upgrades, and to which it rolls back")

// batch is how many pods each step of an upgrade creates.
const batch = 16

// upgrade is a scene in which replicas change their version.
type upgrade struct {
	*scene
	created int
}

// Two replicas are upgraded one after the other, and rolled back, and each is killed in the middle
// of binding pods. No pod loses its allocation, nothing is allocated twice, and nothing is leaked.
func TestUpgrade(t *testing.T) {
	s := small
	u := &upgrade{scene: open(t, s)}
	current, former := u.Binary(), u.Binary()
	if *from != "" {
		former = *from
	}
	u.SetBinary(former)
	for _, r := range u.replicas {
		r.Kill()
		if err := r.start(u.ctx); err != nil {
			t.Fatal(err)
		}
	}
	u.bound(u.createPods())
	for _, step := range []struct{ name, to, point string }{
		{"upgrade", current, "after-ledger-write"},
		{"rollback", former, "before-binding"},
		{"upgrade again", current, "after-binding"},
	} {
		for i := range u.replicas {
			u.replace(u.replicas[i], u.replicas[1-i], step.to, step.point)
		}
		u.deletePods(batch)
		t.Logf("%s: %s", step.name, u.awaitReleases())
	}
	u.bound(u.createPods())
	t.Log(u.awaitReleases())
}

// replace kills a replica in the middle of binding pods, and starts it with another binary. No pod
// that was bound before changes its allocation.
func (u *upgrade) replace(r, other *replica, to, point string) {
	u.t.Helper()
	before := u.allocations()
	reached := r.api.arm(point, 2) // pods that wait for a ledger are allocated together, so there may be no third write
	other.away.Store(true)         // all calls go to the replica that will be killed
	u.service.Cut()
	pods := u.createPods()
	select {
	case <-reached.happens:
	case <-r.Done():
		u.t.Fatal(r.crash())
	case <-u.ctx.Done():
		u.t.Fatal("no pod is being bound")
	}
	r.Kill()
	reached.drop()
	other.away.Store(false)
	u.SetBinary(to)
	if err := r.start(u.ctx); err != nil {
		u.t.Fatal(err)
	}
	u.bound(pods)
	after := u.allocations()
	for uid, allocation := range before {
		if after[uid] != allocation {
			u.t.Errorf("a pod had the allocation %q before the replica was replaced, and has %q", allocation, after[uid])
		}
	}
	if len(after) != len(before)+batch {
		u.t.Errorf("%d pods have allocations, want %d and %d", len(after), len(before), batch)
	}
}

const ledgersPath = "/apis/outboard.dev/v1alpha1/ledgers"

// createPods creates a batch of pods for both schedulers.
func (u *upgrade) createPods() (names []string) {
	u.t.Helper()
	for range batch {
		pod := controlplane.PodSpec{
			Name: fmt.Sprintf("pod-%05d", u.created), SchedulerName: schedulerName(u.created % schedulers), Resources: gpuMemory(1 + int64(u.created%4)),
		}.Pod()
		if _, err := u.Client.CoreV1().Pods(pod.Namespace).Create(u.ctx, pod, metav1.CreateOptions{}); err != nil {
			u.t.Fatal(err)
		}
		names = append(names, pod.Name)
		u.created++
	}
	return names
}

// bound waits until the pods are bound, in a cluster with occasional events, which make
// kube-scheduler retry pods.
func (u *upgrade) bound(names []string) {
	u.t.Helper()
	for n := 0; ; n++ {
		pending := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return slices.ContainsFunc(u.pods(), func(p corev1.Pod) bool { return p.Name == name && p.Spec.NodeName != "" })
		})
		if len(pending) == 0 {
			return
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"happened":"%d"}}}`, n)
		if _, err := u.Client.CoreV1().Nodes().Patch(u.ctx, nodeName(n%u.scale.nodes), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			u.t.Fatalf("%v; pending: %v", err, pending)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// deletePods deletes n pods, old and new ones: every second in the order of creation.
func (u *upgrade) deletePods(n int) {
	u.t.Helper()
	pods := u.pods()
	for i := range n {
		if err := controlplane.DeletePod(u.ctx, u.Client, &pods[2*i]); err != nil {
			u.t.Fatal(err)
		}
	}
}

func (u *upgrade) pods() []corev1.Pod {
	u.t.Helper()
	list, err := u.Client.CoreV1().Pods(metav1.NamespaceDefault).List(u.ctx, metav1.ListOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return list.Items
}

// allocations returns what each bound pod has allocated on its node, as text. On another node it may still have the allocation of a bind call that a
// killed replica did not finish.
func (u *upgrade) allocations() map[types.UID]string {
	u.t.Helper()
	data, err := u.Client.Discovery().RESTClient().Get().AbsPath(ledgersPath).Do(u.ctx).Raw()
	if err != nil {
		u.t.Fatal(err)
	}
	var list ledger.ObjectList
	if err := json.Unmarshal(data, &list); err != nil {
		u.t.Fatal(err)
	}
	nodes := map[types.UID]string{}
	for _, pod := range u.pods() {
		nodes[pod.UID] = pod.Spec.NodeName
	}
	all := map[types.UID]string{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for _, unit := range spec.Units {
			for _, c := range unit.Allocations {
				if nodes[c.Pod] == spec.Node {
					all[c.Pod] += fmt.Sprintf("%d of GPU %s on %s;", c.Amount, unit.Name, spec.Node)
				}
			}
		}
	}
	return all
}
