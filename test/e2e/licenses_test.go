package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
)

const licensesKey = "outboard.dev/licenses"

func licensed(name, needs string) controlplane.PodSpec {
	return controlplane.PodSpec{Name: name, Annotations: map[string]string{licensesKey: needs}}
}

// finish sets the pod's phase to Succeeded, as its kubelet does.
func (th *theater) finish(pod *corev1.Pod) {
	th.t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := th.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(th.ctx, pod, metav1.UpdateOptions{}); err != nil {
		th.t.Fatal(err)
	}
}

// audited fails the test if `outboard audit` finds anything.
func (th *theater) audited() {
	th.t.Helper()
	out, err := exec.CommandContext(th.ctx, th.Binary(), "audit", "--kubeconfig", th.Kubeconfig()).CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "no findings") {
		th.t.Errorf("outboard audit: %v\n%s", err, out)
	}
}

// The example does what its README says. The reason of a pending pod shows who has the seats, and
// the pod runs when somebody outside the cluster returns one.
func TestLicensesExample(t *testing.T) {
	th := open(t)
	play := th.play("licenses")
	waiting := map[string]string{
		"sim-3": "2 not enough free seats of a floating license",
		"cad-2": "1 node(s) do not have a license that the pod requests, 1 node(s) do not have enough free seats of a node-locked license",
		"typo":  `annotation outboard.dev/licenses: there is no license "mathlab"`,
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range play.Example.Pods {
		placed, err := th.Place(th.ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		pods[pod.Name] = placed.Pod
		if want := waiting[pod.Name]; want == "" && placed.Waiting != "" || !strings.Contains(placed.Waiting, want) {
			t.Errorf("%s is on %q, waiting: %q, want %q", pod.Name, placed.Pod.Spec.NodeName, placed.Waiting, want)
		}
	}
	if got := pods["cad-1"].Spec.NodeName; got != "cad" {
		t.Errorf("cad-1 is on %q", got)
	}
	th.audited()
	said := ""
	for _, n := range th.explainPending(play.Outboard, "sim-3").Now[0].Notes {
		said += strings.Join(n.Notes, "\n")
	}
	for _, want := range []string{"matlab: requests 1 seat of 6; 3 used by others as of ", "; 1 reserved; 2 claimed by pods: default/sim-1, default/sim-2"} {
		if !strings.Contains(said, want) {
			t.Errorf("the explanation of sim-3 is %q, want %q", said, want)
		}
	}
	// Ben returns both of his.
	before, rest, _ := strings.Cut(string(play.Example.Data["lmstat.txt"]), "    ben ")
	_, after, _ := strings.Cut(rest, "\n")
	text := strings.Replace(before+after, "Total of 4 licenses in use", "Total of 2 licenses in use", 1)
	th.rewrite(play.Outboard, "lmstat.txt", text, "flexnet")
	th.awaitBound(pods["sim-3"])
	th.finish(pods["cad-1"])
	if bound := th.awaitBound(pods["cad-2"]); bound.Spec.NodeName != "cad" {
		t.Errorf("cad-2 is on %q", bound.Spec.NodeName)
	}
	th.audited()
}

// Two schedulers with a replica each allocate all seats to pods, and never more: the number of
// running pods never exceeds the seats, and each pod runs eventually.
func TestReplicasShareSeats(t *testing.T) {
	const seats, pods = 3, 12
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	var config strings.Builder
	fmt.Fprintf(&config, `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies: [{type: Licenses, config: {features: [{name: solver, seats: %d}, {name: mesh, seats: %d}]}}]
`, seats, seats+1)
	names := []string{"one", "two"}
	for _, name := range names {
		th.scheduler(schedulerConfig(extender{o: th.outboard(config.String()), verbs: "filter bind"}) + "profiles: [{schedulerName: " + name + "}]\n")
	}
	var creating sync.WaitGroup
	for i := range pods {
		creating.Go(func() {
			spec := licensed(fmt.Sprintf("pod-%d", i), "solver,mesh")
			spec.SchedulerName = names[i%len(names)]
			pod := spec.Pod()
			if _, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	for ended := 0; ended < pods && !t.Failed(); {
		var running []*corev1.Pod
		th.eventually(fmt.Sprintf("pods run when %d have ended", ended), func() bool {
			if running = th.running(); len(running) > seats {
				t.Fatalf("%d pods run at once, and there are %d seats", len(running), seats)
			}
			return len(running) == min(seats, pods-ended)
		})
		th.audited()
		for _, pod := range running {
			th.finish(pod)
			ended++
		}
	}
}

// The API server accepts the ledger of a license with the maximum number of pods, and still
// validates it.
func TestAPIServerTakesAFullPool(t *testing.T) {
	th := open(t)
	client := th.Client.Discovery().RESTClient()
	pool := func(capacity, claims int) string {
		l := snapshot.Ledger{Resource: "licenses/solver", LastAt: time.Now()}
		for u, name := range []string{"seats", "seats-2", "seats-3", "seats-4"} {
			unit := snapshot.LedgerUnit{Name: name, Capacity: int64(capacity)}
			for i := range claims {
				uid := types.UID(fmt.Sprintf("%08d-0000-0000-0000-%012d", u, i))
				unit.Claims = append(unit.Claims, snapshot.LedgerClaim{Pod: uid, Amount: 2})
				l.Pods = append(l.Pods, snapshot.LedgerPod{UID: uid, Namespace: "default", Name: string(uid), Node: "n", At: l.LastAt, Token: string(uid)})
			}
			l.Units = append(l.Units, unit)
		}
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	name := ledger.Name(snapshot.LedgerKey{Resource: "licenses/solver"})
	for _, step := range []struct{ what, spec, refused string }{
		{"all claims but one of each unit", pool(2*snapshot.MaxUnitClaims, snapshot.MaxUnitClaims-1), ""},
		{"all claims", pool(2*snapshot.MaxUnitClaims, snapshot.MaxUnitClaims), ""},
		{"fewer seats", pool(snapshot.MaxUnitClaims, snapshot.MaxUnitClaims), ""},
		{"fewer claims", pool(snapshot.MaxUnitClaims, snapshot.MaxUnitClaims-1), ""},
		{"more again", pool(snapshot.MaxUnitClaims, snapshot.MaxUnitClaims), "claims may not grow past capacity"},
		{"a claim more than it can hold", pool(4*snapshot.MaxUnitClaims, snapshot.MaxUnitClaims+1), "must have at most"},
	} {
		err := th.write(client, name, step.spec)
		if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.refused)
		}
	}
}

// running are the pods that are bound and have not ended.
func (th *theater) running() []*corev1.Pod {
	th.t.Helper()
	list, err := th.Client.CoreV1().Pods(corev1.NamespaceAll).List(th.ctx, metav1.ListOptions{})
	if err != nil {
		th.t.Fatal(err)
	}
	var running []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded {
			running = append(running, p)
		}
	}
	return running
}
