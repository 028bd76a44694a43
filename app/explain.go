package app

import (
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/explain"
)

func explainCommand() *cobra.Command {
	var admin, namespace, profile, node, output string
	decisions, nodes := explain.DefaultDecisions, explain.DefaultNodes
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Tell why a pod is where it is, or nowhere",
		Long:  "Ask the running service for its latest decisions about a pod, and, while the pod waits, what every policy says about every node now.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			doc, err := explain.Fetch(cmd.Context(), adminClient(), admin, url.Values{
				"namespace": {namespace}, "pod": {args[0]}, "profile": {profile}, "node": {node},
				"decisions": {strconv.Itoa(decisions)}, "nodes": {strconv.Itoa(nodes)},
			})
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(doc)
			}
			return doc.Text(cmd.OutOrStdout())
		},
	}
	adminFlag(cmd, &admin)
	flags := cmd.Flags()
	flags.StringVarP(&namespace, "namespace", "n", "default", "the pod's namespace")
	flags.StringVar(&profile, "profile", "", "tell about the profile with this path only")
	flags.StringVar(&node, "node", "", "tell what the policies say now about this node only")
	flags.IntVar(&decisions, "decisions", decisions, "how many of the latest decisions to tell")
	flags.IntVar(&nodes, "nodes", nodes, "how many nodes to tell about")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
