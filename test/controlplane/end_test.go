package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"outboard.dev/outboard/test/controlplane"
)

// endEnv makes the test binary start a control plane and end in the way of its value.
const endEnv = "CONTROLPLANE_TEST_END"

// startAndEnd starts a control plane with a scheduler, prints "ready", and ends without stopping
// it.
func startAndEnd(how string) {
	endsBySignals()
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err == nil {
		_, err = cp.StartScheduler(context.Background(), controlplane.SchedulerOptions{Log: os.Stdout})
	}
	if err == nil {
		_, err = cp.StartProcess(beside(cp))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	if how == "paused" {
		err = cp.Etcd().Pause()
	}
	fmt.Println("ready", err)
	switch how {
	case "panic":
		panic("as a test would")
	case "exit":
		os.Exit(0)
	default:
		select {} // until a signal ends it
	}
}

// endsBySignals restores the default action of signals that the process ignores because its parent
// does: SIGHUP under nohup, SIGINT under a shell's "&".
func endsBySignals() {
	ended := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(ended, s)
		}
	}
	go func() {
		<-ended
		os.Exit(1)
	}()
}

// beside is a program with a child, both of which name the work directory in their arguments.
func beside(cp *controlplane.ControlPlane) controlplane.Command {
	const script = `sh -c 'trap "" TERM; echo hello; while :; do sleep 0.1; done' child "$1"; echo ended`
	return controlplane.Command{Name: "beside", Path: "/bin/sh", Args: []string{"-c", script, "parent", cp.Dir()}}
}

// helper is a test binary that runs startAndEnd with temporary files in tmp.
type helper struct {
	cmd *exec.Cmd
	out *bufio.Reader
	tmp string
}

func startHelper(t *testing.T, how string) *helper {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), endEnv+"="+how, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return &helper{cmd: cmd, out: bufio.NewReader(out), tmp: tmp}
}

// ready waits until the control plane of the helper is up.
func (h *helper) ready(t *testing.T) {
	t.Helper()
	var said strings.Builder
	for {
		line, err := h.out.ReadString('\n')
		said.WriteString(line)
		if line == "ready <nil>\n" {
			return
		}
		if err != nil {
			t.Fatalf("helper: %v\n%s", err, &said)
		}
	}
}

func TestNothingIsLeftHoweverTheProcessEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		how    string
		signal syscall.Signal // to its process group, as a terminal does
	}{
		{"killed", "wait", syscall.SIGKILL},
		{"Ctrl-C", "wait", syscall.SIGINT},
		{"terminated", "wait", syscall.SIGTERM},
		{"hung up", "wait", syscall.SIGHUP},
		{"killed while etcd is paused", "paused", syscall.SIGKILL},
		{"panic", "panic", 0},
		{"exit", "exit", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := startHelper(t, test.how)
			h.ready(t)
			if test.signal != 0 {
				// etcd, API server, scheduler, the two of beside, and the reaper.
				until(t, "all six run", func() bool { return len(processes(t, h.tmp)) == 6 })
				if err := syscall.Kill(-h.cmd.Process.Pid, test.signal); err != nil {
					t.Fatal(err)
				}
			}
			h.cmd.Wait()
			h.gone(t)
		})
	}
}

func TestNothingIsLeftWhenKilledAtAnyMomentOfStart(t *testing.T) {
	for i := range 12 {
		h := startHelper(t, "wait")
		until(t, "the helper starts", func() bool { return len(glob(t, h.tmp)) > 0 })
		time.Sleep(time.Duration(i*i) * 3 * time.Millisecond) // no synchronization: the test tries different moments
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		h.cmd.Wait()
		h.gone(t)
	}
}

// gone waits until no process and no file of the helper is left.
func (h *helper) gone(t *testing.T) {
	t.Helper()
	until(t, "processes have ended", func() bool { return len(processes(t, h.tmp)) == 0 })
	empty(t, h.tmp)
}

func glob(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx := within(t)
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("timeout before %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// processes returns the running processes with dir in their arguments, as "PID arguments".
func processes(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, dir) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // fails if the process has just ended
		if bytes.Contains(args, []byte(dir)) {
			found = append(found, e.Name()+" "+string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return found
}
