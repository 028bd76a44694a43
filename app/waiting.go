package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
)

func waitingCommand() *cobra.Command {
	var from serviceFlags
	var namespaces namespaceFlags
	var output outputFlag
	q := ui.Query{Limit: 50}
	cmd := &cobra.Command{
		Use:   "waiting [NAME]",
		Short: "Show the pods that wait for a node, and why, by owner",
		Long: `Show the pods of a namespace that wait for a node and that a profile places, grouped by owner,
those that wait longest first: why the most nodes were rejected, and the node that comes
closest; or what else keeps a pod waiting. NAME is a part of the name of a pod or of its owner. The command reads from all
replicas through the API server, as kubectl port-forward does, or from one service with
--admin. The exit status is 0 whether pods wait or not, and 2 if no replica responds.`,
		Example: `  outboard waiting --all-namespaces
  outboard waiting train --namespace team-a --reason GPUMemory.InsufficientMemory
  outboard waiting --owner team-a/Job/train -o json`,
		Args: positional("[NAME]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if q.Owner != "" && strings.Count(q.Owner, "/") != 2 {
				return fmt.Errorf("--owner=%q: must be NAMESPACE/KIND/NAME", q.Owner)
			}
			if len(args) == 1 {
				q.Find = args[0]
			}
			var err error
			if q.Namespace, err = namespaces.in(&from.cluster); err != nil {
				return err
			}
			if q.Owner != "" && namespaces.namespace == "" {
				q.Namespace = "" // the owner names it
			}
			responses, err := read(cmd, &from, new(replicas.Waits).Fetch)
			if err != nil {
				return err
			}
			waiting := replicas.Waiting(responses, q)
			if waiting.Shown == 0 {
				nothingWaits(cmd.ErrOrStderr(), &waiting, q.Reason)
			}
			return output.write(cmd.OutOrStdout(), inJSON(waiting), func(w io.Writer) error { return waitingTable(w, &waiting, time.Now()) })
		},
	}
	cmd.ValidArgsFunction = completeWaitingPods(&from.cluster, &namespaces)
	from.register(cmd)
	namespaces.register(cmd, &from.cluster)
	namespaces.registerAll(cmd)
	output.register(cmd)
	cmd.Flags().StringVar(&q.Reason, "reason", "", "show only pods that wait for this reason, such as GPUMemory.InsufficientMemory")
	cmd.Flags().StringVar(&q.Owner, "owner", "", "show the pods of this owner one by one: NAMESPACE/KIND/NAME")
	limitFlag(cmd, &q.Limit, 1, "limit", "rows")
	return cmd
}

// nothingWaits says that none of the waiting pods is selected, as kubectl get does, and for which
// reasons pods wait if none waits for the reason.
func nothingWaits(w io.Writer, waiting *ui.Waiting, reason string) {
	if waiting.Pods == 0 {
		fmt.Fprintln(w, "No pod waits.")
		return
	}
	var others []string
	for _, r := range waiting.Reasons {
		others = append(others, r.Code)
	}
	if reason != "" && !slices.Contains(others, reason) {
		fmt.Fprintf(w, "No pod waits for the reason %s: the reasons for which pods wait are %s.\n", reason, strings.Join(others, ", "))
		return
	}
	fmt.Fprintf(w, "None of the waiting pods is selected (pods that wait: %d): --all-namespaces selects those of all namespaces.\n", waiting.Pods)
}

// waitingTable writes one line for each owner, or for each pod of one owner; nothing if no pod is
// selected.
func waitingTable(w io.Writer, waiting *ui.Waiting, now time.Time) error {
	if waiting.Shown == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OWNER\tPODS\tWAITS\tREASON\tPOD\tWHY")
	shown := 0
	for i := range waiting.Rows {
		r := &waiting.Rows[i]
		why := decision.Plain(r.Text)
		if r.Nearest != nil {
			why = strings.TrimRight(fmt.Sprintf("%s: %d of %d %s", r.Nearest.Node, r.Nearest.Have, r.Nearest.Want, r.Unit), " ")
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", r.Owner, r.Pods, now.Sub(r.Since).Truncate(time.Second), r.Reason, r.Pod, why)
		shown += r.Pods
	}
	if err := table.Flush(); err != nil || shown == waiting.Shown {
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d pods are shown; --limit shows more.\n", shown, waiting.Shown)
	return err
}
