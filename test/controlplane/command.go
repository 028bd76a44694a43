package controlplane

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Command describes a program to run beside the control plane, such as an
// extender.
type Command struct {
	// Name names the process and its log file, NAME.log in the work directory.
	// Processes of the same name share the log.
	Name string
	// Path is the program, Args its arguments, Dir its working directory (default:
	// that of this process).
	Path string
	Args []string
	Dir  string
	// Env has variables to set, as NAME=value, besides PATH, HOME and TMPDIR.
	Env []string
	// StopGrace is how long [Process.Stop] waits before it kills the program. Default: 30 s.
	StopGrace time.Duration
}

// StartProcess starts a program that lives no longer than the control plane,
// however that ends. It does not wait for the program to be up.
func (cp *ControlPlane) StartProcess(c Command) (*Process, error) {
	p, err := cp.start(c)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return p, nil
}

func (cp *ControlPlane) start(c Command) (*Process, error) {
	if c.Name != filepath.Base(c.Name) {
		return nil, fmt.Errorf("process name %q is not the name of a file", c.Name)
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil, errors.New("the control plane is stopped")
	}
	p, err := launch(cp.reaper, c, cp.path(c.Name+".log"))
	if err != nil {
		return nil, err
	}
	cp.processes = append(cp.processes, p)
	return p, nil
}

// launch starts a program that lives no longer than the reaper lets it.
func launch(r *reaper, c Command, logFile string) (*Process, error) {
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(baseEnvironment(), c.Env...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := r.start(cmd); err != nil {
		f.Close()
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{name: c.Name, cmd: cmd, logFile: logFile, stopGrace: cmp.Or(c.StopGrace, defaultStopGrace), done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		r.forget(cmd.Process.Pid)
		f.Close()
		close(p.done)
	}()
	return p, nil
}

// baseEnvironment is what processes get from the environment of this one.
// Proxies and Go settings meant for others would change how they behave.
func baseEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
