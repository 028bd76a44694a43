package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/theater"
)

// writeLedger sends a Ledger as a faulty client does, and returns the API server's response.
func writeLedger(th *theater.Theater, client rest.Interface, name, spec string) error {
	th.T.Helper()
	old := new(ledger.Object)
	data, err := client.Get().AbsPath(theater.LedgersPath, name).DoRaw(th.Ctx)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, old); err != nil {
			th.T.Fatal(err)
		}
	case !apierrors.IsNotFound(err):
		th.T.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"apiVersion":"outboard.dev/v1alpha1","kind":"Ledger","metadata":{"name":%q,"resourceVersion":%q},"spec":%s}`, name, old.ResourceVersion, spec)
	request := client.Post().AbsPath(theater.LedgersPath)
	if old.ResourceVersion != "" {
		request = client.Put().AbsPath(theater.LedgersPath, name)
	}
	return request.SetHeader("Content-Type", "application/json").Body(body).Do(th.Ctx).Error()
}

// The API server itself rejects a ledger that allocates more than there is, from any client.
func TestAPIServerGuardsLedgers(t *testing.T) {
	th := theater.Open(t)
	client := th.Client.Discovery().RESTClient()
	unit := func(capacity int, allocations string) string {
		return fmt.Sprintf(`{"resource":"gpu","node":"n","units":[{"name":"0","capacity":%d,"allocations":[%s]}]}`, capacity, allocations)
	}
	allocation := func(pod string, amount int) string { return fmt.Sprintf(`{"pod":%q,"amount":%d}`, pod, amount) }
	both := allocation("a", 6) + "," + allocation("b", 4)
	const past = "allocations may not grow past capacity"
	for _, step := range []struct{ name, spec, refused string }{
		{"a new ledger that is overcommitted", unit(9, both), past},
		{"a new ledger, used up", unit(10, both), ""},
		{"one more allocation of 1", unit(10, both+","+allocation("c", 1)), past},
		{"an allocation that grows", unit(10, allocation("a", 7)+","+allocation("b", 4)), past},
		{"hardware shrinks", unit(8, both), ""},
		{"overcommitted, one more", unit(8, both+","+allocation("c", 1)), past},
		{"overcommitted, another pod for one that leaves, more than it", unit(8, allocation("a", 6)+","+allocation("c", 5)), past},
		{"overcommitted, less", unit(8, allocation("a", 6)+","+allocation("b", 3)), ""},
		{"hardware is gone", unit(0, allocation("a", 6)+","+allocation("b", 3)), ""},
		{"and back", unit(16, allocation("a", 6)+","+allocation("b", 3)), ""},
		{"a second unit that is overcommitted", `{"resource":"gpu","node":"n","units":[{"name":"0","capacity":16},{"name":"1","capacity":1,"allocations":[{"pod":"c","amount":2}]}]}`, past},
		{"the same unit twice", `{"resource":"gpu","node":"n","units":[{"name":"0","capacity":16},{"name":"0","capacity":16}]}`, "Duplicate value"},
		{"the same pod twice", unit(16, allocation("a", 6)+","+allocation("a", 3)), "Duplicate value"},
		{"an allocation of nothing", unit(16, allocation("a", 0)), "greater than or equal to 1"},
		{"an allocation of less than nothing", unit(16, allocation("a", 17)+","+allocation("b", -5)), "greater than or equal to 1"},
		{"a negative capacity", unit(-1, ""), "greater than or equal to 0"},
		{"another resource", `{"resource":"other","node":"n"}`, "cannot change its resource or node"},
		{"another node", `{"resource":"gpu","node":"m"}`, "cannot change its resource or node"},
		{"no node", `{"resource":"gpu"}`, "cannot change its resource or node"},
		{"more units than it can hold", `{"resource":"gpu","node":"n","units":[` + units(snapshot.MaxLedgerUnits+1) + `]}`, "must have at most 64 items"},
		{"as many units as it can hold", `{"resource":"gpu","node":"n","units":[` + units(snapshot.MaxLedgerUnits) + `]}`, ""},
	} {
		err := writeLedger(th, client, "by-hand", step.spec)
		if step.refused == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s: %v, want it rejected: %s", step.name, err, step.refused)
		}
	}
}

func units(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"%d","capacity":1}`, i)
	}
	return strings.Join(list, ",")
}

const twoSeats = `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
profiles:
- policies:
  - type: Licenses
    config: {features: [{name: solver, seats: 2}]}
`

const installLedgers = "kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml"

// Somebody deletes the CRD of ledgers, with all allocations, and installs it again. Meanwhile no pod
// gets a seat, and the messages show the remedy. Afterwards the pod with a seat still has it, and
// Outboard allocates only the others.
func TestLedgersAreDeletedAndInstalledAgain(t *testing.T) {
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
	o := th.Outboard(twoSeats)
	th.Scheduler(theater.SchedulerConfig(theater.Extender{Outboard: o, Verbs: "filter bind"}))
	th.BoundAndSeen(o, theater.Licensed("first", "solver"))

	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgers.outboard.dev"
	if err := th.Client.Discovery().RESTClient().Delete().AbsPath(path).Do(th.Ctx).Error(); err != nil {
		t.Fatal(err)
	}
	th.Eventually("/readyz warns", func() bool {
		return strings.Contains(th.Get(o.Admin+"/readyz"), "[!] cluster: ledgers (the API server does not serve a resource")
	})
	if ready := th.Get(o.Admin + "/readyz"); strings.Contains(ready, "[-]") || !strings.Contains(ready, installLedgers) {
		t.Errorf("/readyz returns\n%s", ready)
	}
	if got := th.Metric(o, `outboard_cluster_unreadable{resource="ledgers"} `); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	second := th.Create(theater.Licensed("second", "solver"))
	th.Eventually("the pod's events say what is missing", func() bool { return strings.Contains(th.Events(second), installLedgers) })
	if podNamed(th, "second").Spec.NodeName != "" {
		t.Error("a pod without an allocation is bound")
	}
	if got := strings.Count(o.Log(), "does not serve a resource"); got != 1 {
		t.Errorf("the log has it %d times", got)
	}

	th.Apply(nil, "-f", filepath.Join(th.Root, "deploy", "chart", "crds", "ledgers.yaml"))
	th.AwaitBound(second)
	th.Eventually("the warning is gone", func() bool { return !strings.Contains(th.Get(o.Admin+"/readyz"), "[!]") })
	if third := th.Placed(theater.Licensed("third", "solver")); third.Waiting == "" || !strings.Contains(third.Waiting, "not enough free seats") {
		t.Errorf("a third pod has one of two seats, or waits: %q", third.Waiting)
	}
	if said := fmt.Sprint(th.ExplainPending(o, "third").Now[0].Notes); !strings.Contains(said, "1 used by pods without an allocation: default/first") {
		t.Errorf("the explanation is %q", said)
	}
}

// Without the permission to change a pod its allocation stays. The log shows the permission once, and
// /readyz shows it until it is granted.
func TestReclaimWithoutPermission(t *testing.T) {
	th := theater.Open(t)
	roles := th.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(th.Ctx, "outboard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "patch") })
	if role, err = roles.Update(th.Ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.Nodes(theater.GPUs("gpu-node", 1, 16))
	o := th.Outboard(theater.GPUShare + "ledgers: {reclaimAfter: 1s}\n")
	abandon(th, "gpu-node")
	const warning = `[!] ledgers: cannot delete unneeded allocations or ledgers (1): grant the permission "patch pods/status": `
	th.Eventually("/readyz warns", func() bool { return strings.Contains(th.Get(o.Admin+"/readyz"), warning) })
	if ready := th.Get(o.Admin + "/readyz"); strings.Contains(ready, "[-]") {
		t.Errorf("it is not ready:\n%s", ready)
	}
	if got := th.Metric(o, "outboard_ledger_forbidden_deletions "); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	role.Rules = rules
	if _, err := roles.Update(th.Ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.Eventually("the allocation is released", func() bool {
		return th.Metric(o, `outboard_ledger_released_allocations_total{reason="reclaimed"} `) == "1"
	})
	th.Eventually("the warning is gone", func() bool { return !strings.Contains(th.Get(o.Admin+"/readyz"), "[!]") })
	if podNamed(th, "abandoned").Annotations[cluster.ReleaseAnnotation] == "" {
		t.Error("the pod is unchanged")
	}
	if got := strings.Count(o.Log(), "a permission is missing"); got != 1 {
		t.Errorf("the log has it %d times", got)
	}
}
