package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The releases in addition to that of the control plane, oldest first. Each kube-scheduler runs with the kube-apiserver of the control plane. Those
// of servers also run with the kube-apiserver of the same release: it is the oldest that accepts the Ledger CRD.
var (
	schedulers = []string{"v1.29.6", "v1.30.14", "v1.33.13", "v1.34.4", "v1.35.4", "v1.36.3", "v1.38.0-beta.0"}
	servers    = []string{"v1.30.14"}
)

// pair is a kube-apiserver and a kube-scheduler, by release.
type pair struct {
	server, scheduler         string
	serverPath, schedulerPath string
}

func (p pair) String() string {
	return fmt.Sprintf("kube-scheduler %s with kube-apiserver %s", p.scheduler, p.server)
}

// pairsBeside returns all pairs, given the release of the control plane. They have no paths.
func pairsBeside(current string) []pair {
	var all []pair
	for _, release := range servers {
		all = append(all, pair{server: release, scheduler: release})
	}
	for _, release := range append(slices.Clone(schedulers), current) {
		all = append(all, pair{server: current, scheduler: release})
	}
	return all
}

func (o *options) selected(release string) bool {
	return len(o.only) == 0 || slices.Contains(o.only, release)
}

// needs returns the programs of other releases, as RELEASE/PROGRAM.
func (o *options) needs() []string {
	var programs []string
	for _, release := range schedulers {
		if o.selected(release) {
			programs = append(programs, release+"/kube-scheduler")
		}
		if o.selected(release) && slices.Contains(servers, release) {
			programs = append(programs, release+"/kube-apiserver")
		}
	}
	return programs
}

// pairs returns the selected pairs. Each program reports the release that it is tested as.
func (o *options) pairs(ctx context.Context) ([]pair, error) {
	current, err := releaseOf(ctx, filepath.Join(o.kubernetes, "bin", "kube-apiserver"))
	if err != nil {
		return nil, err
	}
	path := func(release, program string) string {
		if release == current {
			return filepath.Join(o.kubernetes, "bin", program)
		}
		return filepath.Join(o.kubernetes, "compat", release, "bin", program)
	}
	pairs := slices.DeleteFunc(pairsBeside(current), func(p pair) bool { return !o.selected(p.scheduler) })
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s: not a release to test", strings.Join(o.only, ", "))
	}
	for i := range pairs {
		p := &pairs[i]
		p.serverPath, p.schedulerPath = path(p.server, "kube-apiserver"), path(p.scheduler, "kube-scheduler")
		for path, want := range map[string]string{p.serverPath: p.server, p.schedulerPath: p.scheduler} {
			release, err := releaseOf(ctx, path)
			if err != nil {
				return nil, err
			}
			if release != want {
				return nil, fmt.Errorf("%s is %s", path, release)
			}
		}
	}
	return pairs, nil
}

// releaseOf returns what the program reports as its version.
func releaseOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "), nil
}
