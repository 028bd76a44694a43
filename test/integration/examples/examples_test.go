// Package examples_test runs the programs of make demo and make cluster as a user does.
package examples_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/test/controlplane"
)

// start builds the program of test/NAME, and runs it until a line of its output contains the
// text. It returns the output, and a function that interrupts the program and returns its error.
func start(t *testing.T, text, name string, args ...string) (string, func() error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, "outboard.dev/outboard/test/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := exec.CommandContext(t.Context(), path, args...)
	program.Stderr = t.Output()
	pipe, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			return out.String(), func() error {
				return errors.Join(program.Process.Signal(os.Interrupt), program.Wait())
			}
		}
	}
	t.Fatalf("%s ended: %v\n%s", name, program.Wait(), &out)
	return "", nil
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With a folder that has an extender of others beside Outboard, kube-scheduler calls both. The table says why each pod is on its node, and
// the pod with a decision is explained.
func TestDemo(t *testing.T) {
	var calls atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.WriteString(w, `{"nodenames":["b"]}`)
	}))
	defer other.Close()
	dir := t.TempDir()
	write(t, dir, "outboard.yaml", `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: "127.0.0.1:7070", insecure: true}
profiles: [{path: /mine, policies: [{type: ImageLocality}]}]
`)
	write(t, dir, "scheduler.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: "http://localhost:7070/mine", filterVerb: filter, nodeCacheCapable: true}
- {urlPrefix: "`+other.URL+`", filterVerb: filter, nodeCacheCapable: true}
`)
	write(t, dir, "nodes.yaml", `{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {pods: 9}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b}, status: {allocatable: {pods: 9}}}
`)
	write(t, dir, "pods.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: fixed}, spec: {nodeName: a, containers: [{name: main, image: main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: own}, spec: {containers: [{name: main, image: main}]}}
`)
	out, interrupt := start(t, "The logs of ", "demo", "--example", dir, "--keep")
	want := regexp.MustCompile(`fixed +a +created with spec.nodeName.*\nown +b +2 of 2 nodes fit\n[^$]*\$ outboard explain own .*\nPod default/own is on node b`)
	if !want.MatchString(out) || calls.Load() == 0 {
		t.Errorf("after %d calls of the other extender, the output is\n%s", calls.Load(), out)
	}
	if err := interrupt(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

// A configuration for another cluster places pods in this one, whose files are gone after the end.
func TestCluster(t *testing.T) {
	file := write(t, t.TempDir(), "scheduler.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
leaderElection: {leaderElect: true}
profiles: [{schedulerName: mine}]
`)
	out, interrupt := start(t, "The logs are in", "cluster", "--scheduler", file)
	found := regexp.MustCompile(`export KUBECONFIG='(.*)'`).FindStringSubmatch(out)
	if found == nil || !strings.Contains(out, "kube-scheduler-1 runs\n") {
		t.Fatalf("the output is\n%s", out)
	}
	connection, err := clientcmd.BuildConfigFromFlags("", found[1])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		t.Fatal(err)
	}
	if err := controlplane.CreateNodes(t.Context(), client, controlplane.NodeSpec{Name: "a"}.Node()); err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), controlplane.PodSpec{Name: "p", SchedulerName: "mine"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.WaitForPodBound(t.Context(), client, pod); err != nil {
		t.Error(err)
	}
	if err := interrupt(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(found[1])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", filepath.Dir(found[1]), err)
	}
}
