package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/test/controlplane"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cp != nil {
		if err := shared.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the control plane of all tests that do not disturb it.
var shared struct {
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
}

func sharedServer(t *testing.T) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	if shared.cp == nil {
		shared.cp, shared.client = startServer(t)
	}
	return shared.cp, shared.client
}

func startServer(t testing.TB) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return cp, client
}

// run runs a Cluster until the end of the test, and then checks that nothing of it is left; a second Cluster, which may start
// goroutines later, would interfere with that. A Config in the options gets its own connections.
func run(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	before := goleak.IgnoreCurrent()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.BindTimeout, o.LookupTimeout = cmp.Or(o.BindTimeout, time.Minute), cmp.Or(o.LookupTimeout, time.Minute) // the machine may be busy
	closeIdle := func() {}
	if o.Config != nil {
		o.Config, closeIdle = ownConnections(t, o.Config)
	}
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		await(t, "end of all goroutines", func() error {
			closeIdle()
			return goleak.Find(before)
		})
	})
	return c
}

// synced calls run, and waits until everything is read.
func synced(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c := run(t, o)
	await(t, "sync", c.Synced)
	return c
}

func ownConnections(t *testing.T, config *rest.Config) (*rest.Config, func()) {
	t.Helper()
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}
	config = rest.CopyConfig(config)
	config.Transport, config.TLSClientConfig = transport, rest.TLSClientConfig{}
	return config, transport.CloseIdleConnections
}

// await calls the function until it returns no error.
func await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// awaitView waits until the nodes of the view whose names begin with the prefix match the description: "node[pod pod] node[]".
func awaitView(t testing.TB, c *cluster.Cluster, prefix, want string) {
	t.Helper()
	await(t, "view", func() error {
		if got := show(c, prefix); got != want {
			return fmt.Errorf("is %q, want %q", got, want)
		}
		return nil
	})
}

func show(c *cluster.Cluster, prefix string) string {
	var nodes []string
	for n := range c.View().All() {
		if !strings.HasPrefix(n.Name, prefix) {
			continue
		}
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Name)
		}
		nodes = append(nodes, n.Name+"["+strings.Join(pods, " ")+"]")
	}
	return strings.Join(nodes, " ")
}

// createNodes creates nodes named PREFIX-NAME, and deletes them after the test.
func createNodes(t testing.TB, client kubernetes.Interface, prefix string, names ...string) {
	t.Helper()
	for _, name := range names {
		node := controlplane.NodeSpec{Name: prefix + "-" + name}.Node()
		if err := controlplane.CreateNodes(t.Context(), client, node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // a test may have deleted some of them already
			_ = client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
	}
}

// createPod creates the pod, and deletes it after the test.
func createPod(t testing.TB, client kubernetes.Interface, spec controlplane.PodSpec, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := spec.Pod()
	for _, f := range change {
		f(pod)
	}
	pod, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = controlplane.DeletePod(context.Background(), client, pod) })
	return pod
}

func bindingOf(pod *corev1.Pod, node string, annotations ...string) binder.Binding {
	b := binder.Binding{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: node}
	for chunk := range slices.Chunk(annotations, 2) {
		if b.Annotations == nil {
			b.Annotations = map[string]string{}
		}
		b.Annotations[chunk[0]] = chunk[1]
	}
	return b
}

// bindError returns the error of Bind, which must be a *BindError.
func bindError(t testing.TB, err error) *cluster.BindError {
	t.Helper()
	var bindErr *cluster.BindError
	if !errors.As(err, &bindErr) {
		t.Fatalf("got error %v from Bind", err)
	}
	if errors.Is(err, binder.ErrOutcomeUnknown) != (bindErr.Outcome == "unknown") {
		t.Errorf("the outcome is %s: %v", bindErr.Outcome, err)
	}
	return bindErr
}
