package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/snapshot"
)

// The View has the objects of a later Follow call when it returns; a resource that cannot be read is not followed, and Follow
// can be called again.
func TestFollowLater(t *testing.T) {
	cp, client := sharedServer(t) // without the CustomResourceDefinition of Ledgers
	createNodes(t, client, "follow", "n")
	for _, name := range []string{"a-follow-n", "b-follow-n"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"is": name}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = client.CoreV1().ConfigMaps("default").Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	registry := prometheus.NewPedanticRegistry()
	c := synced(t, cluster.Options{Config: cp.AdminConfig(), Registerer: registry})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := snapshot.ConfigMapSource{Namespace: "default", Prefix: "a-"}, snapshot.ConfigMapSource{Namespace: "default", Prefix: "b-"}
	says := func(source snapshot.ConfigMapSource, want string) {
		t.Helper()
		if got := c.View().Node("follow-n").ConfigMap(source)["is"]; got != want {
			t.Errorf("ConfigMaps %s*: %q, want %q", source.Prefix, got, want)
		}
	}
	if err := c.Follow(ctx, false, false, []snapshot.ConfigMapSource{a}); err != nil {
		t.Fatal(err)
	}
	says(a, "a-follow-n")
	says(b, "")
	for range 2 {
		err := c.Follow(ctx, true, false, []snapshot.ConfigMapSource{a, b})
		if err == nil || !strings.Contains(err.Error(), "deploy/chart/crds/ledgers.yaml") || strings.Contains(err.Error(), "configmaps") {
			t.Errorf("without Ledgers: %v", err)
		}
		says(b, "b-follow-n")
		if err := c.Synced(); err != nil {
			t.Errorf("Synced misses a resource that is not followed: %v", err)
		}
	}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-follow-n"}, Data: map[string]string{"is": "changed"}}
	if _, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the change of a ConfigMap", func() error {
		if got := c.View().Node("follow-n").ConfigMap(a)["is"]; got != "changed" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	// Nodes, pods, disruption budgets, and two families of ConfigMaps.
	if n, err := testutil.GatherAndCount(registry, "outboard_cluster_synced"); err != nil || n != 5 {
		t.Errorf("%d resources have metrics (%v), want 5", n, err)
	}
}
