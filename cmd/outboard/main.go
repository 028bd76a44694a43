// Command outboard is a Kubernetes scheduler extender and its tools. Named
// kubectl-outboard it is a kubectl plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errSilent ends the process with status 1 after a command has told its reasons
// itself.
var errSilent = errors.New("")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if err != errSilent {
		fmt.Fprintln(os.Stderr, "outboard:", err)
	}
	os.Exit(exitStatus(err))
}

func exitStatus(err error) int {
	if special := (*statusError)(nil); errors.As(err, &special) {
		return special.status
	}
	if err != nil {
		return 1
	}
	return 0
}

// statusError ends the process with an exit status of its own.
type statusError struct {
	status int
	error
}

func (e *statusError) Unwrap() error { return e.error }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "outboard",
		Short:         "A scheduler extender for Kubernetes, and its tools",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs, // so that an unknown command is an error
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(serveCommand(), explainCommand(), gpusCommand(), auditCommand(), simulateCommand(), verifyCommand(), probeCommand(), certificatesCommand(), versionCommand())
	return root
}
