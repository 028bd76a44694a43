package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"
)

// A binary is Outboard for one platform.
type binary struct {
	os, arch string
	content  []byte
	info     *buildinfo.BuildInfo
}

// build compiles Outboard, without paths of this machine in the result.
func build(ctx context.Context, root, platform, output string) (binary, error) {
	goos, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return binary{}, fmt.Errorf("platform %q: must be OS/ARCHITECTURE", platform)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", output, "./cmd/outboard")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch, "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return binary{}, fmt.Errorf("building for %s: %w\n%s", platform, err, out)
	}
	content, err := os.ReadFile(output)
	if err != nil {
		return binary{}, err
	}
	info, err := buildinfo.ReadFile(output)
	if err != nil {
		return binary{}, err
	}
	return binary{os: goos, arch: arch, content: content, info: info}, nil
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

// created is the time of the commit, so that it is the same for each build of a commit. Without a repository, it is 1970.
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
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules
}
