package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errSilent ends the process with status 1, after the command itself has printed the reasons.
var errSilent = errors.New("")

// Run executes the command until it ends, or until the process gets SIGINT or SIGTERM, prints its error, if any, and returns the
// exit status. A second SIGINT kills the process: reading a terminal or a named pipe does not end with the context.
func Run(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	err := cmd.ExecuteContext(ctx)
	if err != nil && err != errSilent {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.Name(), err)
	}
	return exitStatus(err)
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

// NewCommand returns the command outboard with all its subcommands.
func NewCommand(options ...Option) *cobra.Command {
	types := typesOf(options)
	root := &cobra.Command{
		Use:           "outboard",
		Short:         "Extend kube-scheduler with policies; explain, check and simulate its decisions",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versionLine(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(serveCommand(types), checkCommand(types), schemaCommand(types), schedulerConfigCommand(types), doctorCommand(types), explainCommand(), gpusCommand(), auditCommand(), simulateCommand(types), verifyCommand(), probeCommand(), certsCommand(), versionCommand())
	return root
}
