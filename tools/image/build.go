package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// A program is what an image runs.
type program struct {
	name   string // also of its file
	path   string // in the image
	user   string // of the image, and its group; "": root
	module string // its folder in the checkout
}

// The user is a number, because the kubelet must see that it is not root.
var outboard = program{name: "outboard", path: "outboard", user: "65532:65532", module: "."}

// scheduler is kube-scheduler with Outboard as a plugin. Its path and user are those of
// kube-scheduler in its own image, so that it also runs in a static pod of kubeadm, whose files
// only root can read.
var scheduler = program{name: "kube-scheduler-outboard", path: "usr/local/bin/kube-scheduler", module: "kubernetes"}

// A binary is a program for one platform.
type binary struct {
	program
	os, arch string
	content  []byte
	info     *buildinfo.BuildInfo
}

// build compiles the program into the directory, without paths of this machine in the result.
func (p program) build(ctx context.Context, root, platform, dir string) (binary, error) {
	goos, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return binary{}, fmt.Errorf("platform %q: must be OS/ARCHITECTURE", platform)
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return binary{}, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "kubernetes", "build"), p.name)
	cmd.Dir = filepath.Join(root, p.module)
	cmd.Env = append(os.Environ(), "BIN="+dir, "GOOS="+goos, "GOARCH="+arch)
	cmd.Stderr = os.Stderr // says how far it is
	if err := cmd.Run(); err != nil {
		return binary{}, fmt.Errorf("building %s for %s: %w", p.name, platform, err)
	}
	output := filepath.Join(dir, p.name)
	content, err := os.ReadFile(output)
	if err != nil {
		return binary{}, err
	}
	info, err := buildinfo.ReadFile(output)
	if err != nil {
		return binary{}, err
	}
	return binary{program: p, os: goos, arch: arch, content: content, info: info}, nil
}

// setting returns one of the settings of the build, or "".
func (b binary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// created is the time of the commit, so that it is the same for each build of a commit. Without a
// repository, it is 1970.
func (b binary) created() time.Time {
	t, err := time.Parse(time.RFC3339, b.setting("vcs.time"))
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}

func (b binary) digest() string {
	sum := sha256.Sum256(b.content)
	return hex.EncodeToString(sum[:])
}

// modules are the modules in the binary, with the module of Outboard first.
func (b binary) modules() []*debug.Module {
	modules := []*debug.Module{&b.info.Main}
	for _, m := range b.info.Deps {
		switch {
		case m.Replace == nil:
		case m.Replace.Version == "": // another module of the checkout
			m = &debug.Module{Path: m.Path, Version: b.info.Main.Version}
		default:
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules
}
