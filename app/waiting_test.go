package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/ui"
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

// A reason for which no pod waits may have a typing error, so the message has those for which pods wait.
func TestNothingWaits(t *testing.T) {
	pods := []*ui.WaitingRow{{Pod: "a/1", Owner: "a/Pod/1", Reason: "PodLimit.TooManyPods"}, {Pod: "a/2", Owner: "a/Pod/2", Reason: "GPUMemory.InsufficientMemory"}}
	for _, tt := range []struct {
		pods  []*ui.WaitingRow
		query ui.Query
		want  string
	}{
		{nil, ui.Query{Reason: "x"}, "No pod waits.\n"},
		{pods, ui.Query{Namespace: "b"}, "None of the waiting pods is selected (pods that wait: 2): --all-namespaces selects those of all namespaces.\n"},
		{pods, ui.Query{Namespace: "b", Reason: "PodLimit.TooManyPods"}, "None of the waiting pods is selected (pods that wait: 2): --all-namespaces selects those of all namespaces.\n"},
		{pods, ui.Query{Reason: "InsufficientMemory"}, "No pod waits for the reason InsufficientMemory: the reasons for which pods wait are GPUMemory.InsufficientMemory, PodLimit.TooManyPods.\n"},
	} {
		var out strings.Builder
		waiting := ui.Group(tt.pods, tt.query)
		nothingWaits(&out, &waiting, tt.query.Reason)
		if out.String() != tt.want {
			t.Errorf("%v: got %q, want %q", tt.query, out.String(), tt.want)
		}
	}
}
