package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

const (
	// completionTimeout bounds the request for names while a shell completes a command line.
	completionTimeout = 3 * time.Second
	// maxCompletions is how many names are requested.
	maxCompletions = 500
)

// complete sets the completion of a flag, which must exist.
func complete(cmd *cobra.Command, flag string, completion cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, completion) // fails only without the flag
}

// fromCluster completes the names of the objects that list returns, each after prefix. If the
// cluster cannot be read, there is no completion.
func fromCluster(cluster *clusterFlags, list func(ctx context.Context, api kubernetes.Interface, opts metav1.ListOptions, typed string) (objects runtime.Object, prefix string, err error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		api, err := readingClient(cluster.ClientConnection)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		objects, prefix, err := list(ctx, api, metav1.ListOptions{Limit: maxCompletions}, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var matching []cobra.Completion
		_ = meta.EachListItem(objects, func(o runtime.Object) error { // fails only without a list of objects
			if name := prefix + o.(metav1.Object).GetName(); strings.HasPrefix(name, typed) {
				matching = append(matching, name)
			}
			return nil
		})
		return matching, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePods completes the names of pods in the namespace of the flags, or in that of
// NAMESPACE/POD.
func completePods(cluster *clusterFlags, namespaces *namespaceFlags) cobra.CompletionFunc {
	return onlyFirst(fromCluster(cluster, func(ctx context.Context, api kubernetes.Interface, opts metav1.ListOptions, typed string) (pods runtime.Object, prefix string, err error) {
		namespace, _, qualified := strings.Cut(typed, "/")
		if qualified {
			prefix = namespace + "/"
		} else if namespace, err = namespaces.in(cluster); err != nil {
			return nil, "", err
		}
		pods, err = api.CoreV1().Pods(namespace).List(ctx, opts)
		return pods, prefix, err
	}))
}

// completeNodes completes the names of nodes.
func completeNodes(cluster *clusterFlags) cobra.CompletionFunc {
	return fromCluster(cluster, func(ctx context.Context, api kubernetes.Interface, opts metav1.ListOptions, _ string) (nodes runtime.Object, prefix string, err error) {
		nodes, err = api.CoreV1().Nodes().List(ctx, opts)
		return nodes, "", err
	})
}

// completeNamespaces completes the names of namespaces.
func completeNamespaces(cluster *clusterFlags) cobra.CompletionFunc {
	return fromCluster(cluster, func(ctx context.Context, api kubernetes.Interface, opts metav1.ListOptions, _ string) (namespaces runtime.Object, prefix string, err error) {
		namespaces, err = api.CoreV1().Namespaces().List(ctx, opts)
		return namespaces, "", err
	})
}

// completionOfPlugin is what the help of completion says to a user of the plugin of kubectl.
const completionOfPlugin = `kubectl completes the command lines of a plugin with a program of its own on the PATH. This is
the same program under another name:

	ln -s "$(command -v kubectl-outboard)" ~/bin/kubectl_complete-outboard

The scripts of the following commands complete kubectl-outboard, with a hyphen.
`

// asPlugin makes the root command that of a plugin of kubectl: users type "kubectl outboard", and
// shells complete the program kubectl-outboard.
func asPlugin(root *cobra.Command) {
	name := root.Name()
	root.Use = "kubectl-" + name
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + name}
}

// completionCommand adds cobra's command completion, which reports a missing or unknown shell as
// other commands report arguments.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	commands := root.Commands()
	i := slices.IndexFunc(commands, func(cmd *cobra.Command) bool { return cmd.Name() == "completion" })
	if i < 0 {
		return // the caller wants none
	}
	cmd := commands[i]
	requireSubcommand(cmd, "SHELL")
	if root.Annotations[cobra.CommandDisplayNameAnnotation] != "" {
		cmd.Long = completionOfPlugin
	}
}

// onlyFirst completes the first argument only.
func onlyFirst(completion cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completion(cmd, args, typed)
	}
}
