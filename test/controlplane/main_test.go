package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/test/controlplane"
)

// shared is the control plane of the tests that restore its state.
var shared = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
	return controlplane.Start(context.Background(), controlplane.Options{})
})

var sharedUsed bool

func TestMain(m *testing.M) {
	if how := os.Getenv(endEnv); how != "" {
		startAndEnd(how)
	}
	if os.Getenv(oldSchedulerEnv) != "" {
		fmt.Fprintln(os.Stderr, serveAsOldScheduler())
		os.Exit(1)
	}
	code := m.Run()
	if sharedUsed {
		if cp, err := shared(); err == nil {
			if err := cp.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// plane returns the shared control plane.
func plane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	sharedUsed = true
	cp, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

// planeOf starts a control plane for one test.
func planeOf(t *testing.T, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cp.APIServer().Log())
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// schedulerOf starts a scheduler for one test.
func schedulerOf(t *testing.T, cp *controlplane.ControlPlane, opts controlplane.SchedulerOptions) *controlplane.Scheduler {
	t.Helper()
	s, err := cp.StartScheduler(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		s.Kill()
	})
	return s
}

func clientOf(t *testing.T, cp *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// within returns the test's context with a timeout that only a failure reaches.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// kubernetesVersion returns the version that kubernetes/go.mod requires.
func kubernetesVersion(t *testing.T) string {
	t.Helper()
	goMod, err := os.ReadFile(filepath.Join("..", "..", "kubernetes", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindSubmatch(goMod)
	if match == nil {
		t.Fatal("kubernetes/go.mod does not require k8s.io/kubernetes")
	}
	return string(match[1])
}
