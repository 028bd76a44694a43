package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/test/docs"
)

// The commands of docs/extender-or-plugin.md copy the plugin's file and patch to each node.
func TestCopyPluginToNodes(t *testing.T) {
	for _, node := range copyToNodes(t, "extender-or-plugin.md", map[string]string{"own/scheduler.yaml": "", "own/patches/kube-scheduler+json.yaml": ""}) {
		for _, file := range []string{"scheduler.yaml", "patches/kube-scheduler+json.yaml"} {
			if _, err := os.Stat(filepath.Join(node, wiring.Directory, file)); err != nil {
				t.Error(err)
			}
		}
	}
}

// The command of docs/install.md copies to each node, here a directory, all files that kube-scheduler's configuration names, and the patch.
func TestCopyToNodes(t *testing.T) {
	c, err := config.Parse("outboard.yaml", []byte("apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles: [{policies: [{type: GPUMemory}]}]\n"+
		"serving: {tls: {certFile: a, keyFile: b, clientCAFile: c}}\n"), config.Types{Policies: standard.Types()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := wiring.New(c, wiring.Options{For: wiring.Kubeadm, URL: "https://10.96.0.20"})
	if err != nil {
		t.Fatal(err)
	}
	nodes := copyToNodes(t, "install.md", map[string]string{
		"wiring/scheduler.yaml": string(w.YAML()), "wiring/patches/kube-scheduler+json.yaml": "[]\n",
		"tls/ca.crt": "", "tls/ca.key": "", "tls/client.crt": "", "tls/client.key": "", "tls/server.crt": "", "tls/server.key": "",
	})
	var written schedulerv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(w.YAML(), &written); err != nil {
		t.Fatal(err)
	}
	want := []string{wiring.Directory + "/scheduler.yaml", wiring.Directory + "/patches/kube-scheduler+json.yaml"}
	for _, e := range written.Extenders {
		want = append(want, e.TLSConfig.CAFile, e.TLSConfig.CertFile, e.TLSConfig.KeyFile)
	}
	for _, node := range nodes {
		for _, file := range want {
			if _, err := os.Stat(filepath.Join(node, file)); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(node, wiring.Directory, "ca.key")); err == nil {
			t.Errorf("%s has the key of the CA", node)
		}
	}
}

// copyToNodes runs the commands of the page that copy files to nodes, and returns the directories that stand for the nodes.
func copyToNodes(t *testing.T, name string, files map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	files["bin/ssh"] = "#!/bin/sh\n[ \"$2\" = mkdir ] && exec mkdir \"$3\" \"nodes/${1#root@}$4\"\n"
	files["bin/scp"] = "#!/bin/bash\nto=${!#}\nto=${to#root@}\nexec cp \"${@:1:$#-1}\" \"nodes/${to%%:*}/${to#*:}\"\n"
	write(t, dir, files)
	for _, commands := range blocksWith(t, name, "scp ") {
		onHost(t, dir, commands)
	}
	nodes, err := filepath.Glob(filepath.Join(dir, "nodes", "*"))
	if err != nil || len(nodes) != 3 {
		t.Fatalf("%v: the nodes are %v, want 3", err, nodes)
	}
	return nodes
}

// blocksWith returns the blocks of the page in docs that have the text.
func blocksWith(t *testing.T, name, text string) (found []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docs.Root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	blocks, _ := docs.Page{Path: name, Text: string(page)}.Blocks()
	for _, b := range blocks {
		if strings.Contains(b.Text, text) {
			found = append(found, b.Text)
		}
	}
	return found
}

// write writes the files below the directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// onHost runs commands in the directory, with the programs in its folder bin.
func onHost(t *testing.T, dir, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, commands)
	}
}

// The commands of docs/emergency.md on the host of the cluster's own scheduler remove its entries, and bring them back, also if the first
// ones were repeated. The manifest of the static pod is then where it was.
func TestEmergencyOnTheHost(t *testing.T) {
	const with = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: https://10.96.0.20}]\n"
	host := t.TempDir()
	file := filepath.Join(host, "outboard", "scheduler.yaml")
	write(t, host, map[string]string{"outboard/scheduler.yaml": with, "manifests/kube-scheduler.yaml": "kind: Pod\n", "bin/sleep": "#!/bin/sh\n"})
	blocks := blocksWith(t, "emergency.md", "cd /etc/kubernetes\n")
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks for the host, want one that removes the entries and one that brings them back", len(blocks))
	}
	for _, step := range []struct {
		commands string
		entries  bool
	}{{blocks[0], false}, {blocks[0], false}, {blocks[1], true}} {
		onHost(t, host, strings.ReplaceAll(step.commands, "/etc/kubernetes", host))
		text, err := os.ReadFile(file)
		if err != nil || (string(text) == with) != step.entries || strings.Contains(string(text), "extenders") != step.entries {
			t.Fatalf("%v: the file is\n%s\nafter\n%s", err, text, step.commands)
		}
		if _, err := os.Stat(filepath.Join(host, "manifests", "kube-scheduler.yaml")); err != nil {
			t.Fatalf("%v after\n%s", err, step.commands)
		}
	}
}
