package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Busybox is an image with the commands of a shell.
const Busybox = "localhost/busybox:1"

const pause = "registry.k8s.io/pause:3.10"

// importOwn imports the images of this machine's programs: those of pods that only run a shell, and kube-scheduler's.
func (n *Node) importOwn(ctx context.Context) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	scheduler, err := n.cp.SchedulerPath()
	if err != nil {
		return err
	}
	version, err := n.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{busybox, "/bin/busybox", fmt.Sprintf("%q, %q", Busybox, pause), "sh ls env grep sleep"},
		{scheduler, "/usr/local/bin/kube-scheduler", fmt.Sprintf("%q", "registry.k8s.io/kube-scheduler:"+version.GitVersion), ""},
	} {
		cmd := exec.CommandContext(ctx, filepath.Join(n.root, "test", "node", "image"), append([]string{runtime.GOARCH}, args...)...)
		cmd.Env = append(os.Environ(), n.searchPath())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("image of %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// Import imports the OCI layout that make image writes, by the name, such as docker.io/library/outboard:dev.
func (n *Node) Import(ctx context.Context, layout, name string) error {
	const file = "/run/node/layout.tar"
	if out, err := exec.CommandContext(ctx, "tar", "-C", layout, "-cf", file, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return n.ctr(ctx, "images", "import", "--index-name", name, file)
}
