package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
)

// The signal needs only the permission to get its ConfigMap.
func TestConfigMapSignal(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"}, controlplane.NodeSpec{Name: "b"})
	prices, err := th.Client.CoreV1().ConfigMaps("default").Create(th.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "prices"}, Data: map[string]string{"prices.yaml": "a: 0.2\nb: 0.8\n"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := th.outboard(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {insecure: true}
signals:
- {name: load, interval: 1s, configMap: {namespace: default, name: prices, dataKey: prices.yaml}}
profiles:
- policies: [{type: Utilization, config: {cpu: {signal: load, unit: Fraction}}}]
`)
	if ready := th.get(o.Admin + "/readyz"); !strings.Contains(ready, `cannot get resource "configmaps"`) {
		t.Errorf("without the permission to get it /readyz returns %q", ready)
	}
	grantConfigMap(th, "prices")
	caller := newCaller(o, th.create(controlplane.PodSpec{Name: "asked", SchedulerName: "nobody"}), "a", "b")
	better := func(one, other string) func() bool {
		return func() bool { s := caller.scores(t, ""); return s[one] > s[other] }
	}
	th.eventually("a is better than b", better("a", "b"))
	prices.Data["prices.yaml"] = "a: 0.8\nb: 0.2\n"
	if _, err := th.Client.CoreV1().ConfigMaps("default").Update(th.ctx, prices, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	th.eventually("b is better than a", better("b", "a"))
}

func grantConfigMap(th *theater, name string) {
	th.t.Helper()
	meta := metav1.ObjectMeta{Name: "outboard-" + name}
	_, err := th.Client.RbacV1().Roles("default").Create(th.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{})
	if err == nil {
		_, err = th.Client.RbacV1().RoleBindings("default").Create(th.ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "outboard"}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		th.t.Fatal(err)
	}
}
