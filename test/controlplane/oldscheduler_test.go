package controlplane_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"outboard.dev/outboard/test/controlplane"
)

// oldSchedulerEnv makes the test binary serve the endpoints of kube-scheduler 1.29.
const oldSchedulerEnv = "CONTROLPLANE_TEST_OLD_SCHEDULER"

// serveAsOldScheduler serves what kube-scheduler 1.29 serves: there is no /readyz.
func serveAsOldScheduler() error {
	flags := map[string]string{}
	for _, arg := range os.Args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		http.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "ok")
		})
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); failed != nil {
			return failed
		}
		return err
	}}
	listener, err := config.Listen(context.Background(), "tcp4", "127.0.0.1:"+flags["--secure-port"])
	if err != nil {
		return err
	}
	return http.ServeTLS(listener, nil, flags["--tls-cert-file"], flags["--tls-private-key-file"])
}

// A scheduler that has /healthz only is ready when that succeeds.
func TestSchedulerWithoutReadyz(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	schedulerOf(t, plane(t), controlplane.SchedulerOptions{Path: program, Env: []string{oldSchedulerEnv + "=1"}})
}
