package e2e

import (
	"encoding/json"
	"fmt"
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
	"outboard.dev/outboard/test/theater"
)

// Two schedulers with a replica each allocate all seats to pods, and never more: the number of
// running pods never exceeds the seats, and each pod runs eventually.
func TestReplicasShareSeats(t *testing.T) {
	const seats, pods = 3, 12
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
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
		th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: th.Outboard(config.String()), Verbs: "filter bind"}) + "profiles: [{schedulerName: " + name + "}]\n")
	}
	var creating sync.WaitGroup
	for i := range pods {
		creating.Go(func() {
			spec := theater.Licensed(fmt.Sprintf("pod-%d", i), "solver,mesh")
			spec.SchedulerName = names[i%len(names)]
			pod := spec.Pod()
			if _, err := th.Client.CoreV1().Pods(pod.Namespace).Create(th.Ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	for ended := 0; ended < pods && !t.Failed(); {
		var running []*corev1.Pod
		th.Eventually(fmt.Sprintf("pods run when %d have ended", ended), func() bool {
			if running = runningPods(th); len(running) > seats {
				t.Fatalf("%d pods run at once, and there are %d seats", len(running), seats)
			}
			return len(running) == min(seats, pods-ended)
		})
		th.Audited()
		for _, pod := range running {
			th.Finish(pod)
			ended++
		}
	}
}

// The API server accepts the ledger of a license with the maximum number of pods, and still
// validates it.
func TestAPIServerTakesAFullPool(t *testing.T) {
	th := theater.Open(t)
	client := th.Client.Discovery().RESTClient()
	pool := func(capacity, allocations int) string {
		l := snapshot.Ledger{Resource: "licenses/solver", LastAt: time.Now()}
		unit := snapshot.LedgerUnit{Name: "seats", Capacity: int64(capacity)}
		for i := range allocations {
			uid := types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
			unit.Allocations = append(unit.Allocations, snapshot.LedgerAllocation{Pod: uid, Amount: 2})
			l.Pods = append(l.Pods, snapshot.LedgerPod{UID: uid, Namespace: "default", Name: string(uid), Node: "n", At: l.LastAt, Token: string(uid)})
		}
		for u := range 8 { // of pods that share several units
			l.Units = append(l.Units, unit)
			l.Units[u].Name = fmt.Sprint("seats", u)
		}
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	name := ledger.Name(snapshot.LedgerKey{Resource: "licenses/solver"})
	for _, step := range []struct{ what, spec, refused string }{
		{"all allocations but one", pool(2*snapshot.MaxLedgerPods, snapshot.MaxLedgerPods-1), ""},
		{"all allocations", pool(2*snapshot.MaxLedgerPods, snapshot.MaxLedgerPods), ""},
		{"fewer seats", pool(snapshot.MaxLedgerPods, snapshot.MaxLedgerPods), ""},
		{"fewer allocations", pool(snapshot.MaxLedgerPods, snapshot.MaxLedgerPods-1), ""},
		{"more again", pool(snapshot.MaxLedgerPods, snapshot.MaxLedgerPods), "allocations may not grow past capacity"},
		{"an allocation more than it can hold", pool(4*snapshot.MaxLedgerPods, snapshot.MaxLedgerPods+1), "must have at most"},
	} {
		err := writeLedger(th, client, name, step.spec)
		if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.refused)
		}
	}
}

// runningPods are the pods that are bound and have not ended.
func runningPods(th *theater.Theater) []*corev1.Pod {
	th.T.Helper()
	list, err := th.Client.CoreV1().Pods(corev1.NamespaceAll).List(th.Ctx, metav1.ListOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	var running []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded {
			running = append(running, p)
		}
	}
	return running
}
