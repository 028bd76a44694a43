package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
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
	for _, i := range []image{
		{[]string{Busybox, pause}, busybox, "/bin/busybox", []string{"/bin/sh", "/bin/ls", "/bin/env", "/bin/sleep"}},
		{[]string{"registry.k8s.io/kube-scheduler:" + version.GitVersion}, scheduler, "/usr/local/bin/kube-scheduler", nil},
	} {
		archive, err := i.archive()
		if err != nil {
			return err
		}
		file := filepath.Join("/run/node", "image.tar")
		if err := os.WriteFile(file, archive, 0o600); err != nil {
			return err
		}
		if err := n.ctr(ctx, "images", "import", file); err != nil {
			return err
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

// image is an image with one statically linked program.
type image struct {
	names         []string
	from, program string
	links         []string // to the program
}

// archive returns the image as docker save writes it.
func (i image) archive() ([]byte, error) {
	program, err := os.ReadFile(i.from)
	if err != nil {
		return nil, err
	}
	entries := []entry{{tar.Header{Name: "tmp", Typeflag: tar.TypeDir, Mode: 0o1777}, nil}, {tar.Header{Name: i.program, Mode: 0o755}, program}}
	for _, link := range i.links {
		entries = append(entries, entry{tar.Header{Name: link, Typeflag: tar.TypeSymlink, Linkname: i.program, Mode: 0o777}, nil})
	}
	layer, err := archive(entries)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Cmd": []string{i.program, "sleep", "2147483647"}, "Env": []string{"PATH=" + path.Dir(i.program)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": i.names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return archive([]entry{
		{tar.Header{Name: "manifest.json", Mode: 0o600}, manifest}, {tar.Header{Name: "config.json", Mode: 0o600}, config},
		{tar.Header{Name: "layer.tar", Mode: 0o600}, layer},
	})
}

// entry is a file of an archive.
type entry struct {
	tar.Header
	content []byte
}

func archive(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
