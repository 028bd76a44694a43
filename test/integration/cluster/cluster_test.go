package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

func TestViewFollowsTheCluster(t *testing.T) {
	cp, client := sharedServer(t)
	ctx := t.Context()
	createNodes(t, client, "follow", "1", "2")
	first := createPod(t, client, controlplane.PodSpec{Name: "follow-first", NodeName: "follow-1"})
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	awaitView(t, c, "follow", "follow-1[follow-first] follow-2[]")

	pods := client.CoreV1().Pods("default")
	second := createPod(t, client, controlplane.PodSpec{Name: "follow-second", NodeName: "follow-1"})
	createPod(t, client, controlplane.PodSpec{Name: "follow-waiting"})
	awaitView(t, c, "follow", "follow-1[follow-first follow-second] follow-2[]")

	second.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(ctx, second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, c, "follow", "follow-1[follow-first] follow-2[]")
	if got := c.PodByName("default", "follow-second"); got != nil {
		t.Errorf("the cluster has a pod that has ended: %v", got)
	}

	if err := client.CoreV1().Nodes().Delete(ctx, "follow-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, c, "follow", "follow-1[follow-first]")
	if err := controlplane.DeletePod(ctx, client, first); err != nil {
		t.Fatal(err)
	}
	awaitView(t, c, "follow", "follow-1[]")

	one := intstr.FromInt32(1)
	budgets := client.PolicyV1().PodDisruptionBudgets("default")
	if _, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "follow"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitBudgets(t, c, 1)
	for b := range c.View().DisruptionBudgets("default") {
		if b.Name() != "follow" {
			t.Errorf("got budget %q", b.Name())
		}
	}
	if err := budgets.Delete(ctx, "follow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitBudgets(t, c, 0)
}

// awaitBudgets waits until the view has as many disruption budgets in the namespace default.
func awaitBudgets(t *testing.T, c *cluster.Cluster, want int) {
	t.Helper()
	await(t, "budgets", func() error {
		if got := len(slices.Collect(c.View().DisruptionBudgets("default"))); got != want {
			return fmt.Errorf("%d, want %d", got, want)
		}
		return nil
	})
}

// The kubelet's heartbeat, once in a few minutes from every node, changes nothing that a policy reads.
func TestHeartbeatsPublishNothing(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "beat", "1", "2")
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	awaitView(t, c, "beat", "beat-1[] beat-2[]")
	before := c.View()

	nodes := client.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "beat-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
	}
	if _, err := nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A change that policies can read, after the heartbeat.
	if _, err := nodes.Patch(t.Context(), "beat-2", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "label", func() error {
		if c.View().Node("beat-2").Object.Labels["x"] != "y" {
			return fmt.Errorf("is not there")
		}
		return nil
	})
	if after := c.View(); after.Generation() != before.Generation()+1 || after.Node("beat-1") != before.Node("beat-1") {
		t.Errorf("generation went from %d to %d", before.Generation(), after.Generation())
	}
}

func TestPodIsFoundByVersion(t *testing.T) {
	cp, client := sharedServer(t)
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	pod := createPod(t, client, controlplane.PodSpec{Name: "version", Annotations: map[string]string{"a": "b"}})
	found := func(p *corev1.Pod) func() error {
		return func() error {
			if got := c.Pod(p.UID, p.ResourceVersion); got == nil || got.ResourceVersion != p.ResourceVersion {
				return fmt.Errorf("pod of version %s is %v", p.ResourceVersion, got)
			} else if named := c.PodByName("default", "version"); named != got { // which the state changes a moment later
				return fmt.Errorf("PodByName returns %v, and Pod %v", named, got)
			}
			return nil
		}
	}
	await(t, "first version", found(pod))
	if got := c.Pod(pod.UID, pod.ResourceVersion); got.Annotations["a"] != "b" || got.ManagedFields != nil || got.Spec.Containers[0].ImagePullPolicy != "" {
		t.Errorf("got a pod that is not trimmed: %v", got)
	}
	for name, got := range map[string]*corev1.Pod{
		"unknown UID":     c.Pod("nobody", pod.ResourceVersion),
		"unknown version": c.Pod(pod.UID, "1"),
		"no version":      c.Pod(pod.UID, ""),
		"unknown name":    c.PodByName("default", "nobody"),
		"other namespace": c.PodByName("kube-system", "version"),
	} {
		if got != nil {
			t.Errorf("%s finds %v", name, got)
		}
	}
	changed, err := client.CoreV1().Pods("default").Patch(t.Context(), "version", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "second version", found(changed))
	if got := c.Pod(pod.UID, pod.ResourceVersion); got != nil {
		t.Errorf("Pod still returns the old version: %v", got)
	}

	if err := controlplane.DeletePod(t.Context(), client, pod); err != nil {
		t.Fatal(err)
	}
	again := createPod(t, client, controlplane.PodSpec{Name: "version"})
	await(t, "new pod of the same name", found(again))
	if got := c.Pod(changed.UID, changed.ResourceVersion); got != nil {
		t.Errorf("Pod still returns the deleted pod: %v", got)
	}
}

// neededRules are the permissions that a Cluster needs to read and bind, the nodes first.
var neededRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods/binding"}, Verbs: []string{"create"}},
	{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list", "watch"}},
}

// Until everything is read, Synced returns what is missing and why, and no view is published that would show the nodes as free.
func TestSyncedSaysWhatIsMissing(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "missing", "1")
	user, err := cp.AddUser("rbac-missing")
	if err != nil {
		t.Fatal(err)
	}
	allow := func(name string, rules []rbacv1.PolicyRule) {
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user.Name}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	rules := neededRules
	allow("rbac-missing-nodes", rules[:1])
	registry := prometheus.NewRegistry()
	c := run(t, cluster.Options{Config: user.Config, Registerer: registry})
	await(t, "missing", func() error {
		err := c.Synced()
		if err == nil {
			t.Fatal("synced without permissions")
		}
		for _, part := range []string{"not read from the API server yet: pods (", `cannot`, `resource "pods"`, `poddisruptionbudgets (`} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%q is not in %q", part, err)
			}
		}
		if strings.Contains(err.Error(), "nodes") && strings.Contains(err.Error(), "nodes (") {
			return fmt.Errorf("nodes are missing too: %w", err)
		}
		return nil
	})
	if v := c.View(); v == nil || v.Len() != 0 {
		t.Error("a view was published without the pods")
	}
	if got := gather(t, registry, `outboard_cluster_watch_errors_total{resource="pods"}`); got == 0 {
		t.Error("the metric has no errors")
	}
	if got := gather(t, registry, `outboard_cluster_synced{resource="pods"}`); got != 0 {
		t.Error("the metric shows that pods are synced")
	}
	allow("rbac-missing-rest", rules)
	await(t, "sync", c.Synced)
	awaitView(t, c, "missing", "missing-1[]")
}

func TestMetrics(t *testing.T) {
	cp, client := sharedServer(t)
	createNodes(t, client, "metrics", "1")
	registry := prometheus.NewPedanticRegistry()
	c := synced(t, cluster.Options{Config: cp.AdminConfig(), Registerer: registry})
	awaitView(t, c, "metrics", "metrics-1[]")
	for _, outcome := range []string{"success", "already_bound", "bound_elsewhere", "not_found", "rejected", "not_sent", "throttled", "unknown"} {
		// rate() counts the first bind call with an outcome only if there was a 0 before it.
		if name := fmt.Sprintf("outboard_cluster_binds_total{outcome=%q}", outcome); gather(t, registry, name) != 0 {
			t.Errorf("%s is not 0 before the first bind call", name)
		}
	}
	pod := createPod(t, client, controlplane.PodSpec{Name: "metrics"})
	if err := c.Bind(t.Context(), bindingOf(pod, "metrics-1")); err != nil {
		t.Fatal(err)
	}
	awaitView(t, c, "metrics", "metrics-1[metrics]")
	await(t, "pods", func() error { // includes pods of other tests
		if gather(t, registry, "outboard_cluster_pods") == 0 {
			return fmt.Errorf("none are counted")
		}
		return nil
	})
	for name, want := range map[string]float64{
		`outboard_cluster_binds_total{outcome="success"}`:                      1,
		`outboard_cluster_bind_duration_seconds{outcome="success"}`:            1,
		`outboard_cluster_synced{resource="nodes"}`:                            1,
		`outboard_cluster_synced{resource="pods"}`:                             1,
		`outboard_cluster_synced{resource="poddisruptionbudgets"}`:             1,
		`outboard_cluster_nodes`:                                               float64(c.View().Len()),
		`outboard_cluster_watch_errors_total{resource="nodes"}`:                0,
		`outboard_cluster_watch_errors_total{resource="pods"}`:                 0,
		`outboard_cluster_watch_errors_total{resource="poddisruptionbudgets"}`: 0,
	} {
		if got := gather(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{
		`outboard_cluster_view_generation`, `outboard_cluster_view_age_seconds`,
		`outboard_cluster_last_event_age_seconds{resource="nodes"}`, `outboard_cluster_last_event_age_seconds{resource="pods"}`,
	} {
		if got := gather(t, registry, name); got <= 0 || got > 3600 {
			t.Errorf("got %s %v", name, got)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// gather returns the value of a metric, or of a histogram's count.
func gather(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			full := family.GetName()
			for _, label := range m.Label {
				full += fmt.Sprintf("{%s=%q}", label.GetName(), label.GetValue())
			}
			if full != name {
				continue
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
