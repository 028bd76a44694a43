package controlplane

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// reaperScript makes the directory $1, and says "ready".
// Then it reads "+ PID" and "- PID" until its standard input ends, which happens
// when the process that holds the other end closes it or is no more, for whatever
// reason. Then it kills the process groups that are left and removes the directory. A
// process that is being killed may still create a file, hence the retries.
const reaperScript = `
trap '' HUP INT QUIT TERM PIPE
mkdir -m 700 "$1" 2>&1 || exit 1
echo ready
exec >/dev/null
pids=
while read -r op pid; do
	case $op in
	+) pids="$pids $pid" ;;
	-) left=
	   for p in $pids; do [ "$p" = "$pid" ] || left="$left $p"; done
	   pids=$left ;;
	esac
done
for p in $pids; do kill -s KILL -- "-$p"; done
tries=0
until rm -rf "$1"; do
	tries=$((tries+1))
	[ $tries -lt 100 ] || exit 1
	sleep 0.1 || sleep 1
done
`

// gateScript becomes the program $0 with its arguments once it has read a line.
// If its standard input ends before that, it ends too: nobody knows of it.
const gateScript = `read -r go && exec "$0" "$@" </dev/null`

// reaper is a small process, out of reach of the terminal's signals, that
// outlives this one just long enough to clear up after it.
type reaper struct {
	cmd  *exec.Cmd
	pipe *os.File // its standard input
}

// startReaper starts a reaper that makes the directory dir now, and removes it
// at the end.
func startReaper(dir string) (*reaper, error) {
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "outboard-reaper", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdin = r
	said, err := cmd.StdoutPipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("reaper: %w", err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
		w.Close()
		return nil, fmt.Errorf("reaper: %s", cmp.Or(strings.TrimSpace(line), fmt.Sprint(errors.Join(err, cmd.Wait()))))
	}
	return &reaper{cmd: cmd, pipe: w}, nil
}

// start starts cmd, which must have neither standard input nor SysProcAttr, such
// that at no moment it runs unknown to the reaper.
func (r *reaper) start(cmd *exec.Cmd) error {
	gate, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer open.Close()
	cmd.Args = append([]string{"/bin/sh", "-c", gateScript, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Stdin = gate
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // also: Ctrl-C is for this process to handle
	err = cmd.Start()
	gate.Close()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(r.pipe, "+ %d\n", cmd.Process.Pid); err != nil {
		open.Close()
		cmd.Wait()
		return fmt.Errorf("reaper: %w", err)
	}
	_, err = open.WriteString("go\n")
	return err
}

// forget tells the reaper that the process pid, started with start, has ended.
func (r *reaper) forget(pid int) {
	fmt.Fprintf(r.pipe, "- %d\n", pid) // fails only when the reaper itself is gone
}

// finish has the reaper do its work now, and waits for it.
func (r *reaper) finish() error {
	r.pipe.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("reaper: %w", err)
	}
	return nil
}
