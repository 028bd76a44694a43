package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
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
// of binding pods. No pod loses its claim, nothing is allocated twice, and nothing is leaked. What
// the newer version has added to ledgers is there after the rollback.
func TestUpgrade(t *testing.T) {
	s := small
	u := &upgrade{scene: open(t, s)}
	current, former := u.Binary(), u.Binary()
	if *from != "" {
		former = *from
	}
	u.extendCRD()
	u.SetBinary(former)
	for _, r := range u.replicas {
		r.Kill()
		if err := r.start(u.ctx); err != nil {
			t.Fatal(err)
		}
	}
	u.bound(u.createPods())
	var extendedLedgers []string
	for _, step := range []struct{ name, to, point string }{
		{"upgrade", current, "after-ledger-write"},
		{"rollback", former, "before-binding"},
		{"upgrade again", current, "after-binding"},
	} {
		for i := range u.replicas {
			u.replace(u.replicas[i], u.replicas[1-i], step.to, step.point)
		}
		if *from == "" && step.name == "upgrade" {
			extendedLedgers = u.addFields()
		}
		u.deletePods(batch)
		t.Logf("%s: %s", step.name, u.awaitReleases())
	}
	u.bound(u.createPods())
	if *from == "" { // only a build that keeps fields it does not know is tested for it
		u.checkFields(extendedLedgers)
	}
	t.Log(u.awaitReleases())
}

// replace kills a replica in the middle of binding pods, and starts it with another binary. No pod
// that was bound before changes its claim.
func (u *upgrade) replace(r, other *replica, to, point string) {
	u.t.Helper()
	before := u.claims()
	reached := r.api.arm(point, 2) // pods that wait for a ledger are claimed together, so there may be no third write
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
	after := u.claims()
	for uid, claim := range before {
		if after[uid] != claim {
			u.t.Errorf("a pod had the claim %q before the replica was replaced, and has %q", claim, after[uid])
		}
	}
	if len(after) != len(before)+batch {
		u.t.Errorf("%d pods have claims, want %d and %d", len(after), len(before), batch)
	}
}

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

// claims returns what each bound pod has claimed on its node, as text. On another node it may still have the claim of a bind call that a
// killed replica did not finish.
func (u *upgrade) claims() map[types.UID]string {
	u.t.Helper()
	var list ledger.ObjectList
	if err := json.Unmarshal(u.ledgers(), &list); err != nil {
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
			for _, c := range unit.Claims {
				if nodes[c.Pod] == spec.Node {
					all[c.Pod] += fmt.Sprintf("%d of GPU %s on %s;", c.Amount, unit.Name, spec.Node)
				}
			}
		}
	}
	return all
}

const ledgersPath = "/apis/outboard.dev/v1alpha1/ledgers"

func (u *upgrade) ledgers() []byte {
	u.t.Helper()
	data, err := u.Client.Discovery().RESTClient().Get().AbsPath(ledgersPath).Do(u.ctx).Raw()
	if err != nil {
		u.t.Fatal(err)
	}
	return data
}

// extendCRD adds optional fields to the CRD, as a newer version does.
func (u *upgrade) extendCRD() {
	u.t.Helper()
	const properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
	var patch []string
	for _, path := range []string{"", "/units/items/properties", "/pods/items/properties"} {
		patch = append(patch, fmt.Sprintf(`{"op": "add", "path": "%s%s/added", "value": {"type": "string"}}`, properties, path))
	}
	err := u.Client.Discovery().RESTClient().Patch(types.JSONPatchType).AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgers.outboard.dev").
		Body([]byte("[" + strings.Join(patch, ",") + "]")).Do(u.ctx).Error()
	if err != nil {
		u.t.Fatal(err)
	}
}

// extended is the part of a ledger that extendCRD changes.
type extended struct {
	Metadata struct{ Name string }
	Spec     struct {
		Added string
		Units []struct{ Added string }
		Pods  []struct {
			UID   types.UID
			Added string
		}
	}
}

func (u *upgrade) extended() []extended {
	u.t.Helper()
	var list struct{ Items []extended }
	if err := json.Unmarshal(u.ledgers(), &list); err != nil {
		u.t.Fatal(err)
	}
	return list.Items
}

// addFields sets the added fields of all ledgers, their units and pods, and returns the names of the
// ledgers. A replica may release a claim after addFields has read the ledgers; then it tries again.
func (u *upgrade) addFields() (names []string) {
	u.t.Helper()
	for _, l := range u.extended() {
		names = append(names, l.Metadata.Name)
		for {
			patch := []string{`{"op": "add", "path": "/spec/added", "value": "ledger"}`}
			for i := range l.Spec.Units {
				patch = append(patch, fmt.Sprintf(`{"op": "add", "path": "/spec/units/%d/added", "value": "unit"}`, i))
			}
			for i, p := range l.Spec.Pods {
				patch = append(patch,
					fmt.Sprintf(`{"op": "test", "path": "/spec/pods/%d/uid", "value": %q}`, i, p.UID),
					fmt.Sprintf(`{"op": "add", "path": "/spec/pods/%d/added", "value": %q}`, i, p.UID))
			}
			err := u.Client.Discovery().RESTClient().Patch(types.JSONPatchType).AbsPath(ledgersPath, l.Metadata.Name).
				Body([]byte("[" + strings.Join(patch, ",") + "]")).Do(u.ctx).Error()
			if err == nil {
				break
			}
			if u.ctx.Err() != nil {
				u.t.Fatal(err)
			}
			current := u.extended()
			l = current[slices.IndexFunc(current, func(c extended) bool { return c.Metadata.Name == l.Metadata.Name })]
		}
	}
	return names
}

// checkFields checks that the ledgers have the added fields where they were, and on no claim made
// since.
func (u *upgrade) checkFields(names []string) {
	u.t.Helper()
	before, since := 0, 0
	for _, l := range u.extended() {
		want := ""
		if slices.Contains(names, l.Metadata.Name) {
			want = "ledger"
		}
		if l.Spec.Added != want {
			u.t.Errorf("ledger %s has the added field %q, want %q", l.Metadata.Name, l.Spec.Added, want)
		}
		for i, unit := range l.Spec.Units {
			if (unit.Added == "unit") != (want != "") {
				u.t.Errorf("unit %d of ledger %s has the added field %q", i, l.Metadata.Name, unit.Added)
			}
		}
		for _, p := range l.Spec.Pods {
			switch p.Added {
			case string(p.UID):
				before++
			case "":
				since++
			default:
				u.t.Errorf("the claim of %s has the added field of %s", p.UID, p.Added)
			}
		}
	}
	// Five batches are bound since then, and two batches are deleted.
	if before == 0 || since > 5*batch {
		u.t.Errorf("%d claims have the added field, and %d do not", before, since)
	}
	u.t.Logf("%d claims keep the added field; %d were made later", before, since)
}
