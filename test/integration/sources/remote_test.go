package sources_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/internal/signals/source/remote"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/test/controlplane"
)

var limits = signal.Limits{Values: 1000, Bytes: 16 << 20}

// other is another cluster, with a reader.
type other struct {
	*controlplane.ControlPlane
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	reader *controlplane.User
	source *remote.Source
}

// shared is the control plane of all tests, and its first state, with which each test begins.
var shared struct {
	*controlplane.ControlPlane
	first *controlplane.Checkpoint
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.ControlPlane != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func start(t *testing.T) *other {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	var err error
	if shared.ControlPlane == nil {
		shared.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{})
	}
	switch {
	case err != nil:
	case shared.first == nil:
		shared.first, err = shared.Checkpoint(ctx)
	default:
		err = shared.Restore(ctx, shared.first)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &other{ControlPlane: shared.ControlPlane, t: t, ctx: ctx}
	if o.client, err = kubernetes.NewForConfig(o.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	// The authorizer knows the permissions of an earlier test's user for a moment.
	if o.reader, err = o.AddUser(t.Name()); err != nil {
		t.Fatal(err)
	}
	o.source = remote.New(remote.Config{Kubeconfig: o.reader.Kubeconfig})
	return o
}

// grant gives the reader the role of deploy/other-cluster.yaml.
func (o *other) grant() {
	o.t.Helper()
	if out, err := o.Kubectl(o.ctx, "apply", "-f", "../../../deploy/other-cluster.yaml").CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
	_, err := o.client.RbacV1().ClusterRoleBindings().Create(o.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "outboard-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.reader.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
}

// read makes a reading as the service does.
func (o *other) read(timeout time.Duration) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(o.ctx, timeout)
	defer cancel()
	samples, err := o.source.Read(ctx, limits)
	if err != nil {
		return nil, err
	}
	got := map[string]float64{}
	for _, s := range samples {
		if !s.At.IsZero() { // its time is that of the reading
			o.t.Errorf("%s is from %v", s.Key, s.At)
		}
		got[s.Key] = s.Number
	}
	return got, nil
}

// await reads until it gets the values, because the API server applies some changes with a delay.
func (o *other) await(what string, want map[string]float64) {
	o.t.Helper()
	for {
		got, err := o.read(time.Minute)
		diff := cmp.Diff(want, got)
		if err == nil && diff == "" {
			return
		}
		select {
		case <-o.ctx.Done():
			o.t.Fatalf("%s: %v, -want +got\n%s", what, err, diff)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// expect reads once.
func (o *other) expect(what string, want map[string]float64) {
	o.t.Helper()
	got, err := o.read(time.Minute)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		o.t.Errorf("%s: %v, -want +got\n%s", what, err, diff)
	}
}

func (o *other) nodes(specs ...controlplane.NodeSpec) {
	o.t.Helper()
	for _, spec := range specs {
		if err := controlplane.CreateNodes(o.ctx, o.client, spec.Node()); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *other) pod(spec controlplane.PodSpec, change ...func(*corev1.Pod)) *corev1.Pod {
	o.t.Helper()
	pod := spec.Pod()
	for _, f := range change {
		f(pod)
	}
	pod, err := o.client.CoreV1().Pods(pod.Namespace).Create(o.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	return pod
}

func (o *other) status(pod *corev1.Pod, phase corev1.PodPhase) {
	o.t.Helper()
	pod.Status.Phase = phase
	if _, err := o.client.CoreV1().Pods(pod.Namespace).UpdateStatus(o.ctx, pod, metav1.UpdateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func changed(values map[string]float64, key string, value float64, more ...any) map[string]float64 {
	next := map[string]float64{key: value}
	for i := 0; i < len(more); i += 2 {
		next[more[i].(string)] = more[i+1].(float64)
	}
	for k, v := range values {
		if _, ok := next[k]; !ok {
			next[k] = v
		}
	}
	return next
}

func TestAnotherCluster(t *testing.T) {
	o := start(t)
	if _, err := o.read(time.Minute); err == nil || !strings.Contains(err.Error(), `User "TestAnotherCluster" cannot list resource`) {
		t.Fatalf("without the permission the error is %v", err)
	}
	o.grant()
	o.await("an empty cluster", map[string]float64{"nodes/total": 0, "nodes/ready": 0, "nodes/open": 0})

	const gib = 1 << 30
	o.nodes(
		controlplane.NodeSpec{Name: "a", CPU: "4", Memory: "8Gi", Resources: map[string]string{"example.com/gpu": "2"}},
		controlplane.NodeSpec{Name: "b", CPU: "2500m", Memory: "16Gi"},
		controlplane.NodeSpec{Name: "broken", CPU: "64", Memory: "1Gi", NotReady: true},
		controlplane.NodeSpec{Name: "control-plane", CPU: "16", Memory: "1Gi", Taints: []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}},
		controlplane.NodeSpec{Name: "tainted", CPU: "1", Memory: "1Gi", Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}},
	)
	empty := map[string]float64{
		"nodes/total": 5, "nodes/ready": 4, "nodes/open": 3,
		"cpu/total": 87.5, "cpu/free": 7.5, "cpu/largest": 4,
		"memory/total": 27 * gib, "memory/free": 25 * gib, "memory/largest": 16 * gib,
		"pods/total": 550, "pods/free": 330, "pods/largest": 110,
		"example.com/gpu/total": 2, "example.com/gpu/free": 2, "example.com/gpu/largest": 2,
	}
	o.expect("nodes without pods", empty)

	spec := controlplane.PodSpec{Name: "web", NodeName: "a", CPU: "1500m", Memory: "2Gi", Resources: map[string]string{"example.com/gpu": "1"}}
	web := o.pod(spec)
	used := changed(empty, "cpu/free", 6.0, "cpu/largest", 2.5, "memory/free", 23.0*gib, "pods/free", 329.0,
		"example.com/gpu/free", 1.0, "example.com/gpu/largest", 1.0)
	o.expect("a pod", used)
	o.pod(controlplane.PodSpec{Name: "pending", CPU: "1"})
	o.pod(controlplane.PodSpec{Name: "on-broken", NodeName: "broken", CPU: "1"})
	o.pod(controlplane.PodSpec{Name: "on-nothing", NodeName: "gone", CPU: "1"})
	o.expect("pods that take nothing of what is free", used)
	if err := controlplane.DeletePod(o.ctx, o.client, web); err != nil {
		t.Fatal(err)
	}
	o.expect("the pod is gone", empty)
	spec.Name = "web-2"
	o.status(o.pod(spec), corev1.PodSucceeded)
	o.expect("a pod that has ended", empty)

	// A second Source lists what the first one has followed by watches.
	followed, err := o.read(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	o.source = remote.New(remote.Config{Kubeconfig: o.reader.Kubeconfig})
	o.expect("listed", followed)

	o.cordon("a")
	o.expect("a cordoned node", changed(empty, "nodes/open", 2.0, "cpu/free", 3.5, "cpu/largest", 2.5,
		"memory/free", 17.0*gib, "pods/free", 220.0, "example.com/gpu/free", 0.0, "example.com/gpu/largest", 0.0))
	if err := o.client.CoreV1().Nodes().Delete(o.ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.expect("a node that is gone", map[string]float64{
		"nodes/total": 4, "nodes/ready": 3, "nodes/open": 2,
		"cpu/total": 83.5, "cpu/free": 3.5, "cpu/largest": 2.5,
		"memory/total": 19 * gib, "memory/free": 17 * gib, "memory/largest": 16 * gib,
		"pods/total": 440, "pods/free": 220, "pods/largest": 110,
	})
}

func (o *other) cordon(name string) {
	o.t.Helper()
	if out, err := o.Kubectl(o.ctx, "cordon", name).CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
}

// TestOutage: while the cluster is unreachable each reading fails in time, and afterwards the
// readings include the changes of the meantime.
func TestOutage(t *testing.T) {
	o := start(t)
	o.grant()
	o.nodes(controlplane.NodeSpec{Name: "a", CPU: "4"})
	want := map[string]float64{
		"nodes/total": 1, "nodes/ready": 1, "nodes/open": 1, "cpu/total": 4, "cpu/free": 4, "cpu/largest": 4,
		"memory/total": 32 << 30, "memory/free": 32 << 30, "memory/largest": 32 << 30, "pods/total": 110, "pods/free": 110, "pods/largest": 110,
	}
	o.await("before", want)

	if err := o.APIServer().Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.read(4 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an API server that does not respond: the error is %v", err)
	}
	if err := o.APIServer().Continue(); err != nil {
		t.Fatal(err)
	}
	o.pod(controlplane.PodSpec{Name: "one", NodeName: "a", CPU: "1"})
	o.await("after it hung", changed(want, "cpu/free", 3.0, "cpu/largest", 3.0, "pods/free", 109.0, "pods/largest", 109.0))

	// A restarted API server does not have the events from before its start, so the Source lists
	// everything again.
	o.pod(controlplane.PodSpec{Name: "two", NodeName: "a", CPU: "1"})
	o.APIServer().Kill()
	_, err := o.read(time.Minute)
	for err != nil && !strings.Contains(err.Error(), "connection refused") && o.ctx.Err() == nil {
		_, err = o.read(time.Minute) // notices the end of the open connection with a delay
	}
	if err == nil || o.ctx.Err() != nil {
		t.Errorf("without an API server: the error is %v", err)
	}
	if err := o.RestartAPIServer(o.ctx); err != nil {
		t.Fatal(err)
	}
	o.await("after it was away", changed(want, "cpu/free", 2.0, "cpu/largest", 2.0, "pods/free", 108.0, "pods/largest", 108.0))
}

// TestManyPages: lists longer than a page, and limits that they exceed.
func TestManyPages(t *testing.T) {
	o := start(t)
	o.grant()
	var nodes []*corev1.Node
	for i := range 600 {
		nodes = append(nodes, controlplane.NodeSpec{Name: fmt.Sprint("n", i), CPU: "1"}.Node())
	}
	if err := controlplane.CreateNodes(o.ctx, o.client, nodes...); err != nil {
		t.Fatal(err)
	}
	got, err := o.read(time.Minute)
	for err != nil && strings.Contains(err.Error(), "cannot list") {
		got, err = o.read(time.Minute)
	}
	if err != nil || got["nodes/total"] != 600 || got["cpu/free"] != 600 {
		t.Errorf("read %v, %v", got, err)
	}
	for want, limits := range map[error]signal.Limits{
		signal.ErrTooMany: {Values: 11, Bytes: 16 << 20},
		signal.ErrTooLong: {Values: 12, Bytes: 100},
	} {
		if _, err := remote.New(remote.Config{Kubeconfig: o.reader.Kubeconfig}).Read(o.ctx, limits); !errors.Is(err, want) {
			t.Errorf("with at most %+v the error is %v, want %v", limits, err, want)
		}
	}
}

// TestKubeconfig: a wrong kubeconfig is an error until it is corrected, and the Source reads a
// changed one again.
func TestKubeconfig(t *testing.T) {
	o := start(t)
	o.grant()
	o.nodes(controlplane.NodeSpec{Name: "a"})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	right, err := os.ReadFile(o.reader.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, kubeconfig, err string
	}{
		{"no file", "", "no such file"},
		{"nonsense", "nonsense", "couldn't get version/kind"},
		{"no context", "apiVersion: v1\nkind: Config", "invalid configuration"},
		{"right", string(right), ""},
	} {
		o.source = remote.New(remote.Config{Kubeconfig: file})
		if tc.kubeconfig != "" {
			if err := os.WriteFile(file, []byte(tc.kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := o.read(time.Minute)
		for err != nil && strings.Contains(err.Error(), "cannot list") {
			_, err = o.read(time.Minute)
		}
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: the error is %v, want %q", tc.what, err, tc.err)
		}
	}
	if _, err := o.read(time.Second / 2); err == nil || !strings.Contains(err.Error(), "timeout is too short") {
		t.Errorf("with a timeout of a second the error is %v", err)
	}
	stranger, err := o.AddUser("stranger")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(stranger.Kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	if _, err := o.read(time.Minute); err == nil || !strings.Contains(err.Error(), `User "stranger" cannot list`) {
		t.Errorf("after the kubeconfig has changed: the error is %v", err)
	}
}
