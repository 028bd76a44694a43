package app

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/explain"
)

func explainCommand() *cobra.Command {
	var admin adminAddress
	var namespace, profile, node, output string
	decisions, nodes := explain.DefaultDecisions, explain.DefaultNodes
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Tell why a pod is where it is, or nowhere",
		Long:  "Ask the running service for its latest decisions about a pod, and, while the pod waits, what every policy says about every node now. The exit status is 1 if it knows nothing of the pod.",
		Args:  positional("POD"),
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
			doc, err := explain.Fetch(cmd.Context(), adminClient(), admin.url(), url.Values{
				"namespace": {namespace}, "pod": {pod}, "profile": {profile}, "node": {node},
				"decisions": {strconv.Itoa(decisions)}, "nodes": {strconv.Itoa(nodes)},
			})
			if err != nil {
				return err
			}
			write := doc.Text
			if output == "json" {
				write = func(w io.Writer) error { return writeJSON(w, doc) }
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if !doc.Known && len(doc.Decisions) == 0 {
				return errSilent
			}
			return nil
		},
	}
	admin.flag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&namespace, "namespace", "n", "default", "the pod's namespace")
	flags.StringVar(&profile, "profile", "", "tell about the profile with this path only")
	flags.StringVar(&node, "node", "", "tell what the policies say now about this node only")
	flags.IntVar(&decisions, "decisions", decisions, "how many of the latest decisions to tell")
	flags.IntVar(&nodes, "nodes", nodes, "how many nodes to tell about")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
