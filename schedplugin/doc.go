// Package schedplugin runs the policies of a profile inside kube-scheduler, as a plugin of its
// scheduling framework. The same policies with the same configuration run behind kube-scheduler's
// extender calls (internal/extender); a build of kube-scheduler with the plugin needs no calls:
//
//	func main() {
//		outboard := app.WithPlugin(schedplugin.Name, schedplugin.New(nil, nil))
//		os.Exit(cli.Run(app.NewSchedulerCommand(outboard)))
//	}
//
// where app is k8s.io/kubernetes/cmd/kube-scheduler/app. This package itself knows the framework's
// interfaces only (k8s.io/kube-scheduler/framework).
//
// # Configuration
//
// The args of the plugin are a configuration file of Outboard with a few more fields, or name such
// a file, which is then reloaded when it changes: docs/extender-or-plugin.md has examples.
//
// The field serving of a file, and the kubeconfig and qps in its clientConnection, have no
// effect: the plugin receives no calls, and uses the connection and the rate limits of
// kube-scheduler. Scores are sent in the framework's range, 0..100. Profiles of kube-scheduler that
// use the plugin must all have the same configuration except for profile and inertPlugins.
//
// # Shortlist
//
// With a shortlist, PreFilter names the best nodes, so that the framework evaluates
// no others. It names only nodes that the filters of all plugins let pass: it calls them itself,
// after the PreFilter of all others. For that it must know which of them the framework will skip. A
// plugin of kube-scheduler tells by what it leaves in the state of the attempt (filterStates). If
// the plugin is wrong about it, which only a plugin in inertPlugins should cause, the framework
// rejects the pod on all nodes, and PostFilter has it retry the pod with all of them.
//
// # Nodes and pods
//
// The framework's NodeInfo has the pods of a node: including pods that are being bound and
// nominated pods, without the pods that preemption would evict. Everything else (the trimmed
// objects, ledgers, signals, ConfigMaps) is from the View, which follows kube-scheduler's own
// informers. If a node of the View has the pods of the NodeInfo, policies get this node, with the
// facts that they have computed.
package schedplugin
