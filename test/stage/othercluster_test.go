package stage_test

import (
	"os"
	"path/filepath"
	"testing"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// Other clusters use the programs that the stage uses, and need none of the checkout.
func TestOtherClustersUseTheProgramsOfTheStage(t *testing.T) {
	programs, err := filepath.Abs("../../kubernetes/bin")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(filepath.Join(programs, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := stage.Set(t.Context(), stage.Options{Outboard: "not started", ControlPlane: controlplane.Options{BinDir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	other, err := s.StartOther(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := other.KubectlPath(), filepath.Join(dir, "kubectl"); got != want {
		t.Errorf("the other cluster uses %s, want %s", got, want)
	}
}
