package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Commands that read the cluster end when they are interrupted, even if the API server does not
// respond.
func TestInterruptedWhileTheAPIServerHangs(t *testing.T) {
	for _, args := range []string{"check --scheduler " + schedulerFile(t, ignorableBinder), "gpus --audit"} {
		name, _, _ := strings.Cut(args, " ")
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				cancel()
				<-ended
			}))
			defer server.Close()
			defer close(ended)
			kubeconfig := file(t, `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}],`+
				`"clusters": [{"name": "a", "cluster": {"server": "`+server.URL+`"}}]}`)
			cmd := NewCommand()
			cmd.SetArgs(append(strings.Fields(args), "--kubeconfig", kubeconfig))
			cmd.SetOut(t.Output())
			if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s ends with error %v", name, err)
			}
		})
	}
}

// The first signal ends the context, and the second kills a process that does not end with it. The
// process is this test, started again.
func TestSecondInterruptKills(t *testing.T) {
	const variable = "OUTBOARD_TEST_INTERRUPTED"
	if os.Getenv(variable) != "" {
		os.Exit(Run(&cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("running")
			<-cmd.Context().Done()
			fmt.Println("interrupted")
			_, err := io.ReadAll(os.Stdin)
			return err
		}, Args: cobra.ArbitraryArgs}))
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSecondInterruptKills$")
			child.Env = append(os.Environ(), variable+"=1")
			stdin, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			says := bufio.NewScanner(stdout)
			for _, want := range []string{"running", "interrupted"} {
				if !says.Scan() || says.Text() != want {
					t.Errorf("the process says %q, want %q (%v)", says.Text(), want, says.Err())
				}
				_ = child.Process.Signal(sig)
			}
			killed := make(chan error, 1)
			go func() { killed <- child.Wait() }()
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); { // the process may have said so before it resets the signal
				select {
				case err := <-killed:
					if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != sig {
						t.Errorf("the process ends with %v, want it killed by %s", err, sig)
					}
					return
				case <-time.After(time.Millisecond):
					_ = child.Process.Signal(sig)
				}
			}
			t.Error("the process ignores the second signal")
			stdin.Close()
			<-killed
		})
	}
}
