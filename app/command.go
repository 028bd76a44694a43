package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
)

// The exit statuses of every command.
const (
	statusGood     = 0
	statusFindings = 1
	statusFailed   = 2
)

// errFindings is the error of a command that did its work, and has printed findings. Any other
// error means that the command could not do its work.
var errFindings = errors.New("the command has findings")

// Run executes the command until it ends, or until the process gets SIGINT or SIGTERM, prints its
// error, if any, and returns the exit status. A program kubectl-outboard is a plugin of kubectl,
// and kubectl_complete-outboard completes the plugin's command lines for kubectl. A second signal
// kills the process, unless it has PID 1: reading a terminal or a named pipe does not end with the
// context, and a service serves for a while.
func Run(cmd *cobra.Command) int {
	switch program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); program {
	case "kubectl-" + cmd.Name():
		asPlugin(cmd)
	case "kubectl_complete-" + cmd.Name():
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	completionCommand(cmd)
	cmd.SetOut(visible{cmd.OutOrStdout()})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
	err := cmd.ExecuteContext(ctx)
	status := exitStatus(err)
	if status == statusFailed {
		fmt.Fprintf(visible{cmd.ErrOrStderr()}, "%s: %v\n", cmd.Name(), err)
	}
	return status
}

func exitStatus(err error) int {
	switch {
	case err == nil:
		return statusGood
	case errors.Is(err, errFindings):
		return statusFindings
	}
	return statusFailed
}

// NewCommand returns the command outboard with all its subcommands.
func NewCommand(options ...Option) *cobra.Command {
	types := typesOf(options)
	root := &cobra.Command{
		Use:   "outboard",
		Short: "Extend kube-scheduler with policies; explain, check and simulate its decisions",
		Long: `Extend kube-scheduler with policies; explain, check and simulate its decisions.

The exit status means the same for every command:
  0  the command did its work and has no findings
  1  the command did its work and has findings: an error in what it checks, a pod that
     Outboard does not know
  2  the command could not do its work: wrong usage, a file that cannot be read, a
     configuration that it needs and that is not valid, no API server, no running
     service`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), errors.New("COMMAND is missing"))
		},
	}
	root.SetFlagErrorFunc(wrongFlag)
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run", []*cobra.Command{serveCommand(types)}},
		{"Set up", []*cobra.Command{setupCommand(types), checkCommand(types)}},
		{"Explain", []*cobra.Command{explainCommand(), gpusCommand(types), uiCommand()}},
		{"Simulate", []*cobra.Command{simulateCommand(types)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(versionCommand())
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" {
			help.Args = func(_ *cobra.Command, topic []string) error {
				_, _, err := root.Find(topic)
				return err
			}
		}
	}
	return root
}

// setupCommand has a command for each side of the connection.
func setupCommand(types config.Types) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "setup",
		SuggestFor: []string{"certs"},
		Short:      "Print kube-scheduler's configuration, and create certificates",
	}
	cmd.AddCommand(setupSchedulerCommand(types), setupCertsCommand())
	requireSubcommand(cmd, "COMMAND")
	return cmd
}

// requireSubcommand makes the command, which does nothing itself, report a missing or unknown
// subcommand. what is what errors call it.
func requireSubcommand(cmd *cobra.Command, what string) {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.Join(cmd.Help(), fmt.Errorf("%s is missing: must be %s", what, alternatives(names)))
		}
		return fmt.Errorf("%q: must be %s", args[0], alternatives(names))
	}
}
