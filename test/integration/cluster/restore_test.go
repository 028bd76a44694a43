package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

// A backup replaces the contents of etcd. Later writes are lost, and the resourceVersions continue from an older one.
func TestRestoreOfABackup(t *testing.T) {
	cp, client := startServer(t)
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	createNodes(t, client, "restore", "1")
	pod := createPod(t, client, controlplane.PodSpec{Name: "restore-first"})
	gone := createPod(t, client, controlplane.PodSpec{Name: "restore-gone", NodeName: "restore-1"})
	c := synced(t, cluster.Options{Config: cp.AdminConfig()})
	awaitView(t, c, "restore", "restore-1[restore-gone]")

	// Make the backup.
	startEtcd, startAPIServer := again(t, cp, cp.Etcd()), again(t, cp, cp.APIServer())
	data, backup := filepath.Join(cp.Dir(), "etcd"), t.TempDir()
	cp.Etcd().Kill()
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	etcd := startEtcd()
	await(t, "API server after the backup", func() error {
		_, err := client.CoreV1().Nodes().Patch(ctx, "restore-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"since":"backup"}}}`), metav1.PatchOptions{})
		return err
	})

	// The restore undoes all of the following.
	createNodes(t, client, "restore", "2")
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "restore"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		extra := createPod(t, client, controlplane.PodSpec{Name: "restore-extra"})
		if err := controlplane.DeletePod(ctx, client, extra); err != nil {
			t.Fatal(err)
		}
	}
	if err := controlplane.DeletePod(ctx, client, gone); err != nil {
		t.Fatal(err)
	}
	await(t, "bind", func() error { return c.Bind(ctx, bindingOf(pod, "restore-1")) })
	awaitView(t, c, "restore", "restore-1[restore-first] restore-2[]")
	await(t, "confirmation", func() error { return sameAsServer(t, c, client, "restore") })
	awaitBudgets(t, c, 1)

	cp.APIServer().Kill()
	etcd.Kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	startEtcd()
	startAPIServer()
	awaitView(t, c, "restore", "restore-1[restore-gone]")
	await(t, "truth", func() error { return sameAsServer(t, c, client, "restore") })
	awaitBudgets(t, c, 0)
	if got := c.View().Node("restore-1").Object.Labels["since"]; got != "" {
		t.Errorf("the node still has a label that the restore removed")
	}
	if err := c.Bind(ctx, bindingOf(pod, "restore-1")); err != nil {
		t.Fatal(err)
	}
	if got := show(c, "restore"); got != "restore-1[restore-first restore-gone]" {
		t.Errorf("got view %q", got)
	}
}

// again returns a function that starts the program of a running process again.
func again(t *testing.T, cp *controlplane.ControlPlane, p *controlplane.Process) func() *controlplane.Process {
	t.Helper()
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	return func() *controlplane.Process {
		p, err := cp.StartProcess(controlplane.Command{Name: p.Name() + "-again", Path: args[0], Args: args[1:], Dir: cp.Dir()})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}
