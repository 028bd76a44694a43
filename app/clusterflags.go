package app

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/replicas"
)

// clusterFlags are the flags with which a command finds the API server, as kubectl has them.
type clusterFlags struct {
	config.ClientConnection
}

func (c *clusterFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "the kubeconfig of the cluster (default that of kubectl, or of the pod this runs in)")
	flags.StringVar(&c.Context, "context", "", "the context in the kubeconfig (default its current context)")
}

// given reports whether a flag names the cluster.
func (c *clusterFlags) given() bool { return c.Kubeconfig != "" || c.Context != "" }

// outboardNamespaceFlag adds the flag for the namespace of Outboard, which is never that of the
// pods that --namespace names.
func outboardNamespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "outboard-namespace", replicas.Namespace, "the namespace of Outboard")
}

// namespaceFlags are the flags with which a command selects the namespaces of pods, as kubectl has
// them.
type namespaceFlags struct {
	namespace string
	all       bool
}

func (n *namespaceFlags) register(cmd *cobra.Command, cluster *clusterFlags) {
	cmd.Flags().StringVarP(&n.namespace, "namespace", "n", "", "the namespace of pods (default that of the kubeconfig's context)")
	complete(cmd, "namespace", completeNamespaces(cluster))
	cmd.Flags().BoolVarP(&n.all, "all-namespaces", "A", false, "pods of all namespaces")
}

// in returns the selected namespace, or that of the kubeconfig's context; "" is all namespaces.
func (n *namespaceFlags) in(cluster *clusterFlags) (string, error) {
	switch {
	case n.all:
		return "", nil
	case n.namespace != "":
		return n.namespace, nil
	}
	namespace, _, err := kubeconfigOf(cluster.ClientConnection).Namespace()
	if clientcmd.IsEmptyConfig(err) {
		return metav1.NamespaceDefault, nil // --admin needs no kubeconfig
	}
	if err != nil {
		return "", fmt.Errorf("the namespace of the kubeconfig's context: %w", err)
	}
	return namespace, nil
}
