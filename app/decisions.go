package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
)

func decisionsCommand() *cobra.Command {
	var service serviceFlags
	var namespaces namespaceFlags
	var output outputFlag
	var profile string
	limit := explain.DefaultLatest
	cmd := &cobra.Command{
		Use:   "decisions",
		Short: "List the latest decisions about pods",
		Long: `List the latest decisions of all replicas about the pods of a namespace, latest first. The
command reads from all replicas through the API server, as kubectl port-forward does, or
from one service with --admin. If a replica does not respond, the command says why, and
lists the decisions of the others. The exit status is 0 whether there are decisions or not,
and 2 if no replica responds.`,
		Example: `  outboard decisions
  outboard decisions --all-namespaces --limit 100
  outboard decisions --namespace team --output json`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			namespace, err := namespaces.in(&service.cluster)
			if err != nil {
				return err
			}
			query := url.Values{"namespace": {namespace}, "profile": {profile}, "limit": {strconv.Itoa(limit)}}
			responses, err := read(cmd, &service, func(ctx context.Context, client *http.Client, admin string) ([]*decision.Record, error) {
				return explain.FetchDecisions(ctx, client, admin, query)
			})
			if err != nil {
				return err
			}
			records := replicas.Decisions(responses, limit)
			if len(records) == 0 {
				nothingDecided(cmd.ErrOrStderr(), namespace)
			}
			return output.write(cmd.OutOrStdout(), inJSON(records), func(w io.Writer) error { return decision.List(w, records) })
		},
	}
	service.register(cmd)
	namespaces.register(cmd, &service.cluster)
	namespaces.registerAll(cmd)
	output.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&profile, "profile", "", "list only decisions by the profile with this path")
	complete(cmd, "profile", completeServedProfiles(&service))
	limitFlag(cmd, &limit, 1, "limit", "decisions")
	return cmd
}

// nothingDecided says where no decision was found, as kubectl get does.
func nothingDecided(w io.Writer, namespace string) {
	if namespace == "" {
		fmt.Fprintln(w, "No decisions found.")
		return
	}
	fmt.Fprintf(w, "No decisions found about pods in the namespace %s: --all-namespaces lists those about all pods.\n", namespace)
}
