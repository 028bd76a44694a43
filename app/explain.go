package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
)

func explainCommand() *cobra.Command {
	var service serviceFlags
	var namespaces namespaceFlags
	var output outputFlag
	var profile, node, file string
	decisions, nodes := explain.DefaultDecisions, explain.DefaultNodes
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD | --file FILE",
		Short: "Explain why a pod is pending, or on its node",
		Long: `Show the latest decisions of all replicas about a pod and, while the pod is pending, the
result of every policy for every node now. If it fits on no node, the smallest changes are
shown with which it would fit: less of a resource, pods that end, a toleration, and others.
For a pod on a node, the smallest changes of weights are shown with which another node would
be better. The command reads from all replicas through the API server, as kubectl
port-forward does, or from one service with --admin. If a replica does not respond, the
command says why, and shows what the others know.

With --file, the pod need not exist: the command shows where each pod of the manifest would
fit by itself, and what it would get. The manifest can have several documents and any object
with a template of pods; the command names the other objects, and says why the API server
would refuse one. Nothing is created. The exit status is 1 if a pod fits nowhere, or an object
is refused.

The exit status is 1 if no replica knows the pod: there is none, it has ended, or Outboard
has no connection to the API server. Decisions about a former pod of that name are shown
only then. The exit status is also 1 if there is no node --node, and 2 if no replica
responds.`,
		Example: `  outboard explain web-1
  outboard explain web-1 --namespace team --node gpu-1 --output json
  outboard explain team/web-1 --admin 127.0.0.1:8081
  outboard explain --file pod.yaml`,
		Args: positional("[POD]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			if file != "" {
				if len(args) > 0 {
					return errors.New("--file names the pod, so POD must not be given")
				}
				return try(cmd, &service, &output, file, url.Values{"profile": {profile}, "nodes": {strconv.Itoa(nodes)}})
			}
			if len(args) == 0 {
				return fmt.Errorf("POD is missing: usage: %s", cmd.UseLine())
			}
			namespace, pod, err := podOf(args[0], &namespaces, &service.cluster)
			if err != nil {
				return err
			}
			query := url.Values{
				"namespace": {namespace}, "pod": {pod}, "profile": {profile}, "node": {node},
				"decisions": {strconv.Itoa(decisions)}, "nodes": {strconv.Itoa(nodes)},
			}
			responses, err := read(cmd, &service, func(ctx context.Context, client *http.Client, admin string) (*explain.Document, error) {
				return explain.Fetch(ctx, client, admin, query)
			})
			if err != nil {
				return err
			}
			doc := responses[0].Value
			if responses[0].Replica != "" {
				doc = replicas.Explanation(responses, decisions)
			}
			if err := output.write(cmd.OutOrStdout(), inJSON(doc), doc.Text); err != nil {
				return err
			}
			if !doc.Known || doc.Error != "" {
				return errFindings
			}
			return nil
		},
	}
	cmd.ValidArgsFunction = completePods(&service.cluster, &namespaces)
	service.register(cmd)
	namespaces.register(cmd, &service.cluster)
	output.register(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "explain where the pods of this manifest would fit, or of its workloads' templates, although they do not exist; - is standard input")
	flags.StringVar(&profile, "profile", "", "show only the profile with this path")
	flags.StringVar(&node, "node", "", "show only this node in the current results")
	complete(cmd, "profile", completeServedProfiles(&service))
	complete(cmd, "node", completeNodes(&service.cluster))
	limitFlag(cmd, &decisions, 0, "limit-decisions", "decisions")
	limitFlag(cmd, &nodes, 0, "limit-nodes", "nodes")
	return cmd
}

// podOf returns the namespace and the name of the pod that is named as POD or NAMESPACE/POD.
func podOf(arg string, namespaces *namespaceFlags, cluster *clusterFlags) (namespace, pod string, err error) {
	before, after, qualified := strings.Cut(arg, "/")
	switch {
	case !qualified:
		namespace, err = namespaces.in(cluster)
		return namespace, arg, err
	case strings.Contains(after, "/"):
		return "", "", fmt.Errorf("%q: must be [NAMESPACE/]POD", arg)
	case namespaces.namespace != "" && namespaces.namespace != before:
		return "", "", fmt.Errorf("--namespace=%s does not go with %s", namespaces.namespace, arg)
	}
	return before, after, nil
}

// try shows where the pod of a manifest would fit.
func try(cmd *cobra.Command, from *serviceFlags, output *outputFlag, file string, query url.Values) error {
	var manifest []byte
	var err error
	if file == "-" {
		manifest, err = io.ReadAll(cmd.InOrStdin())
	} else {
		manifest, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	responses, err := read(cmd, from, func(ctx context.Context, client *http.Client, admin string) (*explain.Tried, error) {
		return explain.Try(ctx, client, admin, manifest, query)
	})
	if err != nil {
		return err
	}
	tried := responses[0].Value
	if err := output.write(cmd.OutOrStdout(), inJSON(tried), tried.Text); err != nil {
		return err
	}
	if !tried.Fits() {
		return errFindings
	}
	return nil
}
