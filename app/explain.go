package app

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/explain"
)

func explainCommand() *cobra.Command {
	var admin adminAddress
	var namespace, profile, node, output string
	decisions, nodes := explain.DefaultDecisions, explain.DefaultNodes
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Explain why a pod is pending, or on its node",
		Long: `Show the latest decisions of the running service about a pod and, while the pod is
pending, the result of every policy for every node now. The exit status is 1 if the service
does not know the pod: there is none, it has ended, or the service has clientConnection:
None. Decisions about a former pod of that name are shown nevertheless. The exit status is
also 1 if there is no node --node.`,
		Example: `  kubectl --namespace outboard-system exec deploy/outboard -- /outboard explain default/web-1
  kubectl --namespace outboard-system exec deploy/outboard -- /outboard explain default/web-1 --node gpu-1 --output json`,
		Args: positional("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			pod := args[0]
			if before, after, ok := strings.Cut(pod, "/"); ok {
				if cmd.Flags().Changed("namespace") && namespace != before {
					return fmt.Errorf("--namespace=%s does not go with %s", namespace, pod)
				}
				namespace, pod = before, after
			}
			if strings.Contains(pod, "/") {
				return fmt.Errorf("%q: must be [NAMESPACE/]POD", args[0])
			}
			doc, err := explain.Fetch(cmd.Context(), adminClient(), admin.url(), url.Values{
				"namespace": {namespace}, "pod": {pod}, "profile": {profile}, "node": {node},
				"decisions": {strconv.Itoa(decisions)}, "nodes": {strconv.Itoa(nodes)},
			})
			if err != nil {
				return admin.failure(err)
			}
			write := doc.Text
			if output == "json" {
				write = func(w io.Writer) error { return writeJSON(w, doc) }
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if !doc.Known || doc.Error != "" {
				return errFindings
			}
			return nil
		},
	}
	admin.flag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	flags.StringVar(&profile, "profile", "", "show only the profile with this path")
	flags.StringVar(&node, "node", "", "show only this node in the current results")
	flags.IntVar(&decisions, "decisions", decisions, "maximum number of decisions to show")
	flags.IntVar(&nodes, "nodes", nodes, "maximum number of nodes to show")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
