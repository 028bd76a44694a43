package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// pollInterval is the pause between two looks at whether a server is up,
	// which none of them announces.
	pollInterval = 10 * time.Millisecond

	// startTimeout bounds the start of one server when the context does not. It
	// takes seconds, but more than half a minute has been seen on a busy machine.
	startTimeout = 3 * time.Minute

	// defaultStopGrace is how long Stop waits before it kills. On a busy machine a second's
	// work takes many.
	defaultStopGrace = 30 * time.Second

	// logTail is how much of a log goes into an error, in bytes.
	logTail = 4 << 10
)

// Process is a server of the control plane, or a program beside it. Its methods may be called
// at any time, concurrently, also after it has ended.
type Process struct {
	name      string
	cmd       *exec.Cmd
	logFile   string
	stopGrace time.Duration
	done      chan struct{}
	err       error // what Wait returned; to be read after done
}

// Name returns the name of the server, such as "kube-apiserver" or "kube-scheduler-1".
func (p *Process) Name() string { return p.name }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the process to end and waits until it has. After
// [Command].StopGrace it kills it and returns an error.
func (p *Process) Stop() error {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)             // a paused process could not notice
	for range p.stopGrace / time.Second { // so a machine that stands still for a minute uses one second of it
		select {
		case <-p.done:
			return nil
		case <-time.After(time.Second):
		}
	}
	p.Kill()
	return fmt.Errorf("%s did not end within %v and was killed", p.name, p.stopGrace)
}

// Kill ends the process as a crash would, and waits until it has ended.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Pause freezes the process: its connections stay open and nothing answers. It
// returns when the process has stopped, which on a busy machine is a while after the
// signal.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !p.stopped() {
		select {
		case <-p.done:
			return fmt.Errorf("%s: %w", p.name, os.ErrProcessDone)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// stopped reports whether no thread of the process runs. Without /proc that is taken
// for granted.
func (p *Process) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		panic(err) // the pattern is fine
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE ..., where NAME may hold anything.
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T ")) {
			return false
		}
	}
	return true
}

// Continue ends a pause.
func (p *Process) Continue() error { return p.signal(syscall.SIGCONT) }

// signal sends s to the process and its children, which are a process group.
func (p *Process) signal(s syscall.Signal) error {
	err := os.ErrProcessDone
	if !p.hasEnded() {
		err = syscall.Kill(-p.PID(), s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// Log returns everything the server has logged, and what an earlier server with
// the same log logged before it. After [ControlPlane.Stop] the log is gone.
func (p *Process) Log() string {
	log, err := os.ReadFile(p.logFile)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(log)
}

// await asks up, again and again, until it returns nil. It fails when ctx ends,
// or the process or one it needs does; then the error has the end of the log.
func (p *Process) await(ctx context.Context, up func(context.Context) error, needs ...*Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := up(ctx)
		if err == nil {
			return nil
		}
		for _, needed := range append(needs, p) {
			if needed.hasEnded() {
				return needed.ended()
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.name, context.Cause(ctx), err, p.logEnd())
		}
	}
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ended describes how the process ended before it should have.
func (p *Process) ended() error {
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, err, p.logEnd())
}

func (p *Process) logEnd() string {
	log := []byte(p.Log())
	if len(log) > logTail {
		log = log[len(log)-logTail:]
		if i := bytes.IndexByte(log, '\n'); i >= 0 {
			log = log[i+1:]
		}
	}
	return string(log)
}
