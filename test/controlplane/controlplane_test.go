package controlplane_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/test/controlplane"
)

func TestProgramsReportTheirVersion(t *testing.T) {
	cp := plane(t)
	want := kubernetesVersion(t)
	server, err := clientOf(t, cp).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if server.GitVersion != want {
		t.Errorf("kube-apiserver is %s, want %s", server.GitVersion, want)
	}
	out, err := cp.Kubectl(t.Context(), "version").CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl version: %v\n%s", err, out)
	}
	for _, line := range []string{"Client Version: " + want, "Server Version: " + want} {
		if !strings.Contains(string(out), line) {
			t.Errorf("kubectl version prints\n%s\nwithout %q", out, line)
		}
	}
}

func TestRBACIsOn(t *testing.T) {
	cp, ctx := plane(t), within(t)
	user, err := cp.AddUser("outboard", "readers")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(user.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "outboard"`) {
		t.Fatalf("a user without a role lists nodes: %v; want Forbidden with the user's name", err)
	}

	admin := clientOf(t, cp)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "node-reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "node-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The authorizer applies the binding with a delay.
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, ignoreForbidden(err)
	})
	if err != nil {
		t.Errorf("user whose group has the role: %v", err)
	}

	anonymous, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(user.Config))
	if err != nil {
		t.Fatal(err)
	}
	_, err = anonymous.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:anonymous") {
		t.Errorf("anonymous lists nodes: %v; want Forbidden", err)
	}
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

func TestKubeconfigFiles(t *testing.T) {
	cp := plane(t)
	user, err := cp.AddUser("someone", "g1", "g2")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		user.Kubeconfig: {"someone", "g1", "g2"},
		cp.Kubeconfig(): {"admin", "system:masters"},
	} {
		cmd := cp.Kubectl(t.Context(), "auth", "whoami", "--kubeconfig", file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		for _, name := range want {
			if !strings.Contains(string(out), name) {
				t.Errorf("user of %s is\n%s\nwithout %q", file, out, name)
			}
		}
		if _, err := clientcmd.BuildConfigFromFlags("", file); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want that only the owner can read the key", file, info.Mode(), err)
		}
	}
}

func TestStopLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := goleak.IgnoreCurrent()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	program, err := cp.StartProcess(beside(cp))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "etcd, kube-apiserver, kube-scheduler, the reaper and two more run", func() bool { return len(processes(t, tmp)) == 6 })
	for range 2 {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []*controlplane.Process{cp.Etcd(), cp.APIServer(), s.Process, program} {
		select {
		case <-p.Done():
		default:
			t.Errorf("%s is still running", p.Name())
		}
		if err := p.Stop(); err != nil {
			t.Errorf("Stop of a server that has ended: %v", err)
		}
	}
	empty(t, tmp)
	// A killed process ends with a delay, and this process cannot wait for the children of others.
	until(t, "nothing runs any more", func() bool { return len(processes(t, tmp)) == 0 })
	if _, err := cp.StartScheduler(t.Context(), controlplane.SchedulerOptions{}); err == nil {
		t.Error("a scheduler starts in a stopped control plane")
	}
	until(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
}

// The path of the work directory may be longer than the name of a socket can be.
func TestLongDirectory(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	cp := planeOf(t, controlplane.Options{APIServerArgs: []string{"-v=1", "--event-ttl=2m"}})
	if filepath.Dir(cp.Dir()) != long {
		t.Errorf("Dir is %s, want one in %s", cp.Dir(), long)
	}
	if log := cp.APIServer().Log(); !strings.Contains(log, `--event-ttl="2m0s"`) {
		t.Errorf("the log does not show the argument:\n%.2000s", log)
	}
	if _, err := cp.Checkpoint(within(t)); err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	elsewhere := t.TempDir()
	tests := []struct {
		name string
		opts controlplane.Options
		cwd  string
		tmp  string // "": a usable directory
		want []string
	}{
		{"no binaries", controlplane.Options{BinDir: elsewhere}, ".", "", []string{"etcd is not in " + elsewhere}},
		{"not in a checkout", controlplane.Options{}, elsewhere, "", []string{elsewhere, "not in a checkout of outboard.dev/outboard"}},
		{"refused argument", controlplane.Options{APIServerArgs: []string{"--no-such-flag"}}, ".", "",
			[]string{"kube-apiserver ended before it was ready: exit status 1", "unknown flag: --no-such-flag"}},
		{"no directory for temporary files", controlplane.Options{}, ".", filepath.Join(elsewhere, "none"), []string{"mkdir", filepath.Join(elsewhere, "none")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", cmp.Or(test.tmp, tmp))
			t.Chdir(test.cwd)
			_, err := controlplane.Start(t.Context(), test.opts)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			empty(t, tmp)
		})
	}
}

func TestBinariesNotBuilt(t *testing.T) {
	// A checkout without built binaries.
	root := t.TempDir()
	below := filepath.Join(root, "some", "package")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module outboard.dev/outboard\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	_, err := controlplane.Start(t.Context(), controlplane.Options{})
	if want := "make -C " + filepath.Join(root, "kubernetes"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v; want the advice %q", err, want)
	}
}

func TestStartIsCancelled(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := controlplane.Start(ctx, controlplane.Options{}); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("error %v; want %v", err, context.Canceled)
	}
	empty(t, tmp)
}

func TestAPIServerOutage(t *testing.T) {
	cp, ctx := planeOf(t, controlplane.Options{}), within(t)
	client := clientOf(t, cp)
	if err := controlplane.CreateNodes(ctx, client, controlplane.NodeSpec{Name: "n1"}.Node()); err != nil {
		t.Fatal(err)
	}
	first := cp.APIServer()
	first.Kill()
	if _, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err == nil {
		t.Error("a killed API server responds")
	}
	if err := cp.RestartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if cp.APIServer().PID() == first.PID() {
		t.Error("APIServer is still the old process")
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("old client, old data, new process: %v", err)
	}

	if err := cp.APIServer().Pause(); err != nil {
		t.Fatal(err)
	}
	config := cp.AdminConfig()
	config.Timeout = 300 * time.Millisecond
	impatient, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := impatient.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err == nil {
		t.Error("a paused API server responds")
	}
	if err := cp.APIServer().Continue(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// A server that was killed listens at its held address again, because nobody else was given the port meanwhile.
func TestHoldAddress(t *testing.T) {
	cp := plane(t)
	address, err := cp.HoldAddress()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		server, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", address); err == nil {
			second.Close()
			t.Errorf("two servers listen at %s", address)
		}
		server.Close()
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	// Whoever asks for any port gets none where this one is the only port there is.
	only := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, number<<16|number)
		})
		return errors.Join(err, set)
	}}
	if other, err := only.Listen(t.Context(), "tcp", "127.0.0.1:0"); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("somebody who asks for any port is given the held one: %v, %v", other, err)
	}
	dialer := net.Dialer{Control: only.Control}
	if connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(cp.AdminConfig().Host, "https://")); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("a connection's own port is the held one: %v, %v", connection, err)
	}
}

func TestStartProcess(t *testing.T) {
	cp := plane(t)
	var copied bytes.Buffer
	p, err := cp.StartProcess(controlplane.Command{
		Name: "greeter",
		Path: "/bin/sh",
		Args: []string{"-c", `echo "hello from $WHO in $(pwd)"; echo problem >&2; read -r line || echo "no input"`},
		Dir:  "/",
		Env:  []string{"WHO=me"},
		Log:  &copied,
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	want := "hello from me in /\nproblem\nno input\n"
	if p.Log() != want || copied.String() != want {
		t.Errorf("log %q, copy %q; want %q", p.Log(), copied.String(), want)
	}
	if err := p.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Pause of a process that has ended: %v; want %v", err, os.ErrProcessDone)
	}
	for _, name := range []string{"", "a/b", "../x"} {
		if _, err := cp.StartProcess(controlplane.Command{Name: name, Path: "/bin/sh"}); err == nil {
			t.Errorf("Start accepts the name %q", name)
		}
	}
}

func TestStopKillsAProcessThatDoesNotEnd(t *testing.T) {
	t.Parallel() // takes as long as the timeout of Stop
	cp := plane(t)
	p, err := cp.StartProcess(controlplane.Command{Name: "stubborn", Path: "/bin/sh", Args: []string{"-c", `trap '' TERM; echo up; while :; do sleep 0.1; done`}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it ignores SIGTERM", func() bool { return p.Log() != "" })
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "stubborn did not end") {
		t.Errorf("error %v; want that the process did not end", err)
	}
	<-p.Done()
}

// empty fails the test for each file in dir.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
	}
}
