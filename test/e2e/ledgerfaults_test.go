package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

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

// Somebody deletes the CRD of ledgers, with all claims, and installs it again. Meanwhile no pod
// gets a seat, and the messages show the remedy. Afterwards the pod with a seat still has it, and
// Outboard allocates only the others.
func TestLedgersAreDeletedAndInstalledAgain(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	o := th.outboard(twoSeats)
	th.scheduler(schedulerConfig(extender{o: o, verbs: "filter bind"}))
	th.boundAndSeen(o, licensed("first", "solver"))

	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgers.outboard.dev"
	if err := th.Client.Discovery().RESTClient().Delete().AbsPath(path).Do(th.ctx).Error(); err != nil {
		t.Fatal(err)
	}
	th.eventually("/readyz warns", func() bool {
		return strings.Contains(th.get(o.Admin+"/readyz"), "[!] cluster: ledgers (the API server does not serve a resource")
	})
	if ready := th.get(o.Admin + "/readyz"); strings.Contains(ready, "[-]") || !strings.Contains(ready, installLedgers) {
		t.Errorf("/readyz returns\n%s", ready)
	}
	if got := th.metric(o, `outboard_cluster_unreadable{resource="ledgers"} `); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	second := th.create(licensed("second", "solver"))
	th.eventually("the pod's events say what is missing", func() bool { return strings.Contains(th.events(second), installLedgers) })
	if th.pod("second").Spec.NodeName != "" {
		t.Error("a pod without a claim is bound")
	}
	if got := strings.Count(o.Log(), "does not serve a resource"); got != 1 {
		t.Errorf("the log has it %d times", got)
	}

	th.apply(nil, "-f", filepath.Join(th.Root, "deploy", "chart", "crds", "ledgers.yaml"))
	th.awaitBound(second)
	th.eventually("the warning is gone", func() bool { return !strings.Contains(th.get(o.Admin+"/readyz"), "[!]") })
	if third := th.place(licensed("third", "solver")); third.Waiting == "" || !strings.Contains(third.Waiting, "not enough free seats") {
		t.Errorf("a third pod has one of two seats, or waits: %q", third.Waiting)
	}
	if said := fmt.Sprint(th.explainPending(o, "third").Now[0].Notes); !strings.Contains(said, "1 used by pods without a claim: default/first") {
		t.Errorf("the explanation is %q", said)
	}
}

// Without the permission to change a pod its claim stays. The log shows the permission once, and
// /readyz shows it until it is granted.
func TestReclaimWithoutPermission(t *testing.T) {
	th := open(t)
	roles := th.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(th.ctx, "outboard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "patch") })
	if role, err = roles.Update(th.ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.nodes(gpus("gpu-node", 1, 16))
	o := th.outboard(gpushare + "ledgers: {reclaimAfter: 1s}\n")
	th.abandon("gpu-node")
	const warning = `[!] ledgers: cannot delete unneeded claims or ledgers (1): grant the permission "patch pods/status": `
	th.eventually("/readyz warns", func() bool { return strings.Contains(th.get(o.Admin+"/readyz"), warning) })
	if ready := th.get(o.Admin + "/readyz"); strings.Contains(ready, "[-]") {
		t.Errorf("it is not ready:\n%s", ready)
	}
	if got := th.metric(o, "outboard_ledger_forbidden_deletions "); got != "1" {
		t.Errorf("the metric is %q", got)
	}
	role.Rules = rules
	if _, err := roles.Update(th.ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.eventually("the claim is released", func() bool {
		return th.metric(o, `outboard_ledger_released_claims_total{reason="reclaimed"} `) == "1"
	})
	th.eventually("the warning is gone", func() bool { return !strings.Contains(th.get(o.Admin+"/readyz"), "[!]") })
	if th.pod("abandoned").Annotations[cluster.ReleaseAnnotation] == "" {
		t.Error("the pod is unchanged")
	}
	if got := strings.Count(o.Log(), "a permission is missing"); got != 1 {
		t.Errorf("the log has it %d times", got)
	}
}

// events are the messages of the pod's events.
func (th *theater) events(pod *corev1.Pod) string {
	th.t.Helper()
	list, err := th.Client.CoreV1().Events(pod.Namespace).List(th.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err != nil {
		th.t.Fatal(err)
	}
	var messages []string
	for i := range list.Items {
		messages = append(messages, list.Items[i].Message)
	}
	return strings.Join(messages, "\n")
}
