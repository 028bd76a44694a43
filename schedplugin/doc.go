// Package schedplugin runs the policies of a profile inside kube-scheduler, as a plugin of its scheduling framework. The same
// policies with the same configuration run behind kube-scheduler's extender calls (package extender); a build of kube-scheduler with
// the plugin needs no calls:
//
//	func main() {
//		outboard := app.WithPlugin(schedplugin.Name, schedplugin.New(config.Types{}))
//		os.Exit(cli.Run(app.NewSchedulerCommand(outboard)))
//	}
//
// where app is k8s.io/kubernetes/cmd/kube-scheduler/app. This package itself knows the framework's interfaces only
// (k8s.io/kube-scheduler/framework).
//
// # Configuration
//
// The args of the plugin are a configuration file of Outboard, with two more fields; package config describes it:
//
//	profiles:                       # of a KubeSchedulerConfiguration
//	- schedulerName: default-scheduler
//	  plugins:
//	    multiPoint:
//	      enabled: [{name: Outboard}]
//	    bind:                       # before DefaultBinder; needed where policies allocate resources
//	      enabled: [{name: Outboard}]
//	  pluginConfig:
//	  - name: Outboard
//	    args:
//	      apiVersion: outboard.dev/v1alpha1
//	      kind: OutboardConfiguration
//	      profile: /                # which of the profiles; default: the only one
//	      profiles:
//	      - policies: [{type: ImageLocality}]
//
// Or the args name the file, which is then reloaded when it changes:
//
//	args: {configFile: /etc/outboard/outboard.yaml, profile: /gpu}
//
// Of a file, serving, and the path of the API server in clientConnection, mean nothing here: nobody calls, and kube-scheduler's own
// connection is used. Scores are sent in the framework's range, 0..100, whatever scoreRange says, and shortlist has no effect.
// Profiles of kube-scheduler that use the plugin must all have the same configuration, but for profile.
//
// # What is judged
//
// The framework's NodeInfo says which pods are on a node: also those that are being bound, without those that preemption would
// evict, and with those that are nominated. The rest (the trimmed objects, ledgers, signals, ConfigMaps) is from the View, which
// follows kube-scheduler's own informers. A node of the View is judged as it is if it has the pods of the NodeInfo, so that what
// policies have computed about it stays.
//
// # Claims
//
// From Reserve on, a pod counts on its node with the annotations that it will probably get, for all profiles; Unreserve reverts that,
// and nothing has been written by then. Bind makes the claims and the Binding of pods to which policies allocate resources (package
// binder), with the guarantees of the extender's bind call, and leaves other pods to the next plugin.
//
// # Requeuing
//
// Package requeue evaluates the pods that the policies rejected when the View changes, and has kube-scheduler retry those that fit.
// A ledger is a custom resource, which kube-scheduler could follow as well, but it would not become ready where the CRD is missing;
// and signals are no objects at all.
package schedplugin
