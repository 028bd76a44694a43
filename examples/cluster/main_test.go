package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/test/controlplane"
)

// signaling is a buffer that closes seen when it has the text.
type signaling struct {
	bytes.Buffer
	text string
	seen chan struct{}
}

func (s *signaling) Write(p []byte) (int, error) {
	had := strings.Contains(s.String(), s.text)
	n, err := s.Buffer.Write(p)
	if !had && strings.Contains(s.String(), s.text) {
		close(s.seen)
	}
	return n, err
}

// A configuration that was written for another cluster places pods in this one, whose files are gone after the end.
func TestCluster(t *testing.T) {
	limit, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ctx, interrupt := context.WithCancel(limit)
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	const config = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
leaderElection: {leaderElect: true}
profiles: [{schedulerName: mine}]
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &signaling{text: "The logs are in", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, file) }()
	select {
	case <-out.seen:
	case err := <-ended:
		t.Fatal(err)
	}
	found := regexp.MustCompile(`export KUBECONFIG='(.*)'`).FindStringSubmatch(out.String())
	if found == nil || !strings.Contains(out.String(), "kube-scheduler-1 runs\n") {
		t.Fatalf("the output is\n%s", out.String())
	}
	connection, err := clientcmd.BuildConfigFromFlags("", found[1])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		t.Fatal(err)
	}
	if err := controlplane.CreateNodes(ctx, client, controlplane.NodeSpec{Name: "a"}.Node()); err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, controlplane.PodSpec{Name: "p", SchedulerName: "mine"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.WaitForPodBound(ctx, client, pod); err != nil {
		t.Error(err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(found[1])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", filepath.Dir(found[1]), err)
	}
}

// What cannot be read is an error before anything starts.
func TestClusterWithoutConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := run(t.Context(), io.Discard, file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(file, []byte("a: b: c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), io.Discard, file); err == nil || !strings.Contains(err.Error(), "kube-scheduler's configuration") {
		t.Errorf("with an invalid file: %v", err)
	}
}
