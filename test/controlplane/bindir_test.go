package controlplane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/outboard/test/controlplane"
)

// envtest brings etcd, kube-apiserver and kubectl, but no kube-scheduler.
func TestBinDirWithoutScheduler(t *testing.T) {
	built, err := filepath.Abs("../../kubernetes/bin")
	if err != nil {
		t.Fatal(err)
	}
	assets := t.TempDir()
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(filepath.Join(built, program), filepath.Join(assets, program)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	cp, err := controlplane.Start(ctx, controlplane.Options{BinDir: assets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cp.Stop() })
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{}); err != nil {
		t.Errorf("the scheduler of the checkout: %v", err)
	}
	t.Chdir(t.TempDir())
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{}); err == nil || !strings.Contains(err.Error(), "kube-scheduler is not in "+assets) {
		t.Errorf("a scheduler that does not exist: %v", err)
	}
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{Path: filepath.Join(built, "kube-scheduler")}); err != nil {
		t.Errorf("a scheduler from elsewhere: %v", err)
	}
}
