package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/test/controlplane"
)

// endEnv makes the test binary start a control plane and end in the way of its value.
const endEnv = "CONTROLPLANE_TEST_END"

func TestMain(m *testing.M) {
	if how := os.Getenv(endEnv); how != "" {
		startAndEnd(how)
	}
	os.Exit(m.Run())
}

// startAndEnd starts a control plane, says so, and ends without stopping it.
func startAndEnd(how string) {
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err == nil {
		_, err = cp.StartProcess(beside(cp))
	}
	if err == nil && how == "paused" {
		err = cp.Etcd().Pause()
	}
	fmt.Println("ready", err)
	if how == "panic" {
		panic("as a test would")
	}
	select {} // until it is killed
}

// beside is a program with a child. Both ignore SIGTERM, and name the work directory in their arguments.
func beside(cp *controlplane.ControlPlane) controlplane.Command {
	const script = `trap "" TERM; sh -c 'echo up; while :; do sleep 0.1; done' child "$1"; echo ended`
	return controlplane.Command{Name: "beside", Path: "/bin/sh", Args: []string{"-c", script, "parent", cp.Dir()}, StopGrace: time.Second}
}

func TestNothingIsLeftHoweverTheProcessEnds(t *testing.T) {
	for _, tt := range []struct {
		how    string
		killed time.Duration // after the first file; 0: when it is ready
	}{{how: "killed"}, {how: "paused"}, {how: "panic"}, {"early", time.Millisecond}, {"early", 100 * time.Millisecond}, {"early", time.Second}} {
		t.Run(fmt.Sprint(tt.how, tt.killed), func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), endEnv+"="+tt.how, "TMPDIR="+tmp)
			out, err := cmd.StdoutPipe()
			if err := errors.Join(err, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			if tt.killed > 0 {
				until(t, "it starts", func() bool { return len(list(t, tmp)) > 0 })
				time.Sleep(tt.killed) // no synchronization: the test tries different moments
			} else if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready <nil>\n" {
				t.Errorf("it says %q, %v", line, err)
			}
			if tt.how != "panic" {
				cmd.Process.Kill()
			}
			cmd.Wait()
			until(t, "all processes have ended", func() bool { return len(processes(t, tmp)) == 0 })
			if left := list(t, tmp); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// The programs are those of envtest, which has no kube-scheduler.
func TestStopLeavesNothing(t *testing.T) {
	tmp, assets := filepath.Join(t.TempDir(), strings.Repeat("long", 30)), t.TempDir() // longer than the name of a socket can be
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	for _, program := range []string{"etcd", "kube-apiserver"} {
		built, err := filepath.Abs("../../kubernetes/bin/" + program)
		if err := errors.Join(err, os.Symlink(built, filepath.Join(assets, program))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	cp := start(t)
	if filepath.Dir(cp.KubectlPath()) != assets {
		t.Errorf("kubectl is %s", cp.KubectlPath())
	}
	s, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stubborn, err := cp.StartProcess(beside(cp))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it ignores SIGTERM", func() bool { return stubborn.Log() != "" })
	if n := len(processes(t, tmp)); n != 6 {
		t.Errorf("%d processes run; want etcd, kube-apiserver, kube-scheduler, the reaper and two more", n)
	}
	if err := stubborn.Stop(); err == nil || !strings.Contains(err.Error(), "beside did not end within 1s and was killed") {
		t.Errorf("error %v; want that the process did not end", err)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if !ended(cp.Etcd()) || !ended(cp.APIServer()) || !ended(s.Process) || len(list(t, tmp)) > 0 {
		t.Errorf("a server is still running, or files are left: %s", list(t, tmp))
	}
	until(t, "nothing runs any more", func() bool { return len(processes(t, tmp)) == 0 })
	if _, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{}); err == nil {
		t.Error("a scheduler starts in a stopped control plane")
	}
}

func TestStartErrors(t *testing.T) {
	elsewhere := t.TempDir()
	for _, tt := range []struct {
		opts      controlplane.Options
		cwd, want string
	}{
		{controlplane.Options{BinDir: elsewhere}, ".", "etcd is not in " + elsewhere},
		{controlplane.Options{}, elsewhere, "not in a checkout of outboard.dev/outboard"},
		{controlplane.Options{APIServerArgs: []string{"--no-such-flag"}}, ".", "kube-apiserver ended before it was ready: exit status 1\nError: unknown flag: --no-such-flag"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			t.Setenv("KUBEBUILDER_ASSETS", "")
			t.Chdir(tt.cwd)
			if _, err := controlplane.Start(t.Context(), tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want %q", err, tt.want)
			}
			if left := list(t, tmp); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

const (
	kept = `
{apiVersion: v1, kind: Namespace, metadata: {name: kept}}
---
{apiVersion: v1, kind: Pod, metadata: {name: kept, namespace: default}, spec: {containers: [{name: main, image: nginx}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: kept, namespace: default}, spec: {ports: [{port: 80}]}}
`
	left = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: default, finalizers: [outboard.dev/left]}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lefts.example.outboard.dev}
spec:
  group: example.outboard.dev
  names: {kind: Left, plural: lefts}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	binding = `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"kept"},"target":{"kind":"Node","name":"kept"}}`
)

// Restore also reverts what nobody can change, such as the node of a pod, or what waits for others, such as a finalizer. It continues etcd
// before it starts kube-apiserver.
func TestRestore(t *testing.T) {
	cp := start(t)
	kubectl(t, cp, kept, "create", "-f", "-")
	lasting, err := cp.StartProcess(beside(cp))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := cp.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// state returns the kinds that are served, objects, and files.
	state := func() string {
		return kubectl(t, cp, "", "api-resources", "--cached=false", "--no-headers", "--sort-by=name") +
			kubectl(t, cp, "", "get", "--all-namespaces", "--no-headers", "namespaces,pods,services,ipaddresses,configmaps,clusterroles,crds", "-o",
				"custom-columns=:kind,:metadata.namespace,:metadata.name,:metadata.labels,:metadata.finalizers,:metadata.deletionTimestamp,:metadata.uid,:spec,:rules") +
			fmt.Sprint(list(t, cp.Dir()))
	}
	before := state()
	kubectl(t, cp, left, "create", "-f", "-")
	kubectl(t, cp, "", "patch", "clusterrole/view", "--type=merge", `-p={"rules":[],"metadata":{"labels":{"left":"yes"}}}`)
	kubectl(t, cp, binding, "create", "--raw", "/api/v1/namespaces/default/pods/kept/binding", "-f", "-")
	kubectl(t, cp, "", "delete", "--wait=false", "--grace-period=1000", "pod/kept", "service/kept", "namespace/kept", "clusterrole/edit", "configmap/left")
	if _, err := cp.AddUser("left"); err != nil {
		t.Fatal(err)
	}
	started, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cp.APIServer().Kill()
	if err := cp.Etcd().Pause(); err != nil {
		t.Fatal(err)
	}
	if err := cp.Restore(t.Context(), checkpoint); err != nil {
		t.Fatal(err)
	}
	if after := state(); after != before {
		t.Errorf("the state is\n%s\nand was\n%s", after, before)
	}
	if !ended(started.Process) || ended(lasting) {
		t.Error("the scheduler still runs, or a process from before the checkpoint has ended")
	}
}

// start starts a control plane for one test.
func start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cp.Stop() })
	return cp
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("timeout before %s", what)
		}
	}
}

func ended(p *controlplane.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// processes returns the running processes with dir in their arguments.
func processes(t *testing.T, dir string) (found []string) {
	t.Helper()
	for _, file := range list(t, "/proc") {
		args, _ := os.ReadFile(filepath.Join("/proc", file, "cmdline")) // it fails if the process has just ended
		if bytes.Contains(args, []byte(dir)) {
			found = append(found, file)
		}
	}
	return found
}

// list returns the names of the entries of a directory.
func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func kubectl(t *testing.T, cp *controlplane.ControlPlane, input string, args ...string) string {
	t.Helper()
	cmd := cp.Kubectl(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
