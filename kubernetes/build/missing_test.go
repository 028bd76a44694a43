package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// assets creates a folder with programs that report the version.
func assets(t *testing.T, version string, programs ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "with space")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMissing(t *testing.T) {
	const newer, old = "v1.99.0", "v1.29.3"
	current, err := goOutput(t.Context(), "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	current = strings.TrimSpace(current)
	all := []string{"bin/kube-apiserver", "bin/kube-scheduler", "bin/etcd", "bin/kubectl"}
	envtest := []string{"etcd", "kube-apiserver", "kubectl"}
	for _, tt := range []struct {
		name, folder, build string
		info, err           []string
	}{
		{name: "no folder", build: "bin/kube-apiserver bin/kube-scheduler bin/etcd bin/kubectl\n"},
		{name: "all programs", folder: assets(t, old, append(envtest, "kube-scheduler")...), info: []string{"using kube-apiserver, kube-scheduler, etcd, kubectl in "}},
		{name: "envtest", folder: assets(t, current, envtest...), build: "bin/kube-scheduler\n", info: []string{"using kube-apiserver, etcd, kubectl in ", "kube-scheduler, which is not there, is built here"}},
		{name: "newer envtest", folder: assets(t, newer, envtest...), build: "bin/kube-scheduler\n"},
		{name: "old envtest", folder: assets(t, old, envtest...), build: "bin/kube-scheduler\n", info: []string{"warning: kube-apiserver is v1.29.3"}},
		{name: "no kube-apiserver", folder: assets(t, current, "etcd", "kubectl"), err: []string{"kube-apiserver is not in /", "kube-apiserver, etcd, kubectl", "unset"}},
		{name: "no kubectl", folder: assets(t, current, "etcd", "kube-apiserver"), err: []string{"kubectl is not in /"}},
		{name: "no folder of that name", folder: "/no/such/folder", err: []string{"kube-apiserver is not in /no/such/folder"}},
		{name: "relative", folder: "bin", err: []string{"must be an absolute path: bin"}},
		{name: "no version", folder: assets(t, "", envtest...), err: []string{"is not a version of Kubernetes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, info bytes.Buffer
			err := missing(t.Context(), &out, &info, tt.folder, all)
			if (err != nil) != (len(tt.err) > 0) {
				t.Fatalf("error %v, want one: %v", err, len(tt.err) > 0)
			}
			for _, want := range tt.err {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if err == nil && out.String() != tt.build {
				t.Errorf("builds %q, want %q", &out, tt.build)
			}
			for _, want := range tt.info {
				if !strings.Contains(info.String(), want) {
					t.Errorf("info %q lacks %q", &info, want)
				}
			}
			if tt.name != "old envtest" && strings.Contains(info.String(), "warning") {
				t.Errorf("info %q has a warning", &info)
			}
		})
	}
}
