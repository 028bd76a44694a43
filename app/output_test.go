package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Names and messages of a cluster cannot control the terminal, in the output of any command.
func TestControlCharacters(t *testing.T) {
	var out, errs strings.Builder
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(cmd.OutOrStdout(), "a\tü\n\x1b[2J\u009b1m\u202e\r")
		return errors.New("\x1b]0;x")
	}}
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(nil)
	if Run(cmd); out.String() != "a\tü\n"+`\u001b[2J\u009b1m\u202e\u000d` || errs.String() != `x: \u001b]0;x`+"\n" {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
}
