package trials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
)

// Server is a process that serves an arm. Each arm has a process of its own, so that none pays for the garbage of another.
type Server struct {
	// URL is where it serves.
	URL   string
	cmd   *exec.Cmd
	input io.Closer
}

// StartServer starts a program that calls [Serve], or prints its URL and ends with its standard input as Serve does.
func StartServer(ctx context.Context, program string, args ...string) (*Server, error) {
	s := &Server{cmd: exec.CommandContext(ctx, program, args...)}
	s.cmd.Stderr = os.Stderr
	input, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.input = input
	if _, err := fmt.Fscanln(output, &s.URL); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not print where it serves: %w", s.cmd, err), s.Stop())
	}
	return s, nil
}

// PID returns the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop ends the process and waits for its end.
func (s *Server) Stop() error { return errors.Join(s.input.Close(), s.cmd.Wait()) }

// UntilInputEnds returns a context that ends with the standard input, which ends with the process that has started this one.
func UntilInputEnds() context.Context {
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	return ctx
}

// Serve serves the handler on a free loopback port, prints the URL, and returns when the standard input ends.
func Serve(handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler}
	defer context.AfterFunc(UntilInputEnds(), func() { s.Close() })()
	fmt.Printf("http://%s\n", listener.Addr())
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
