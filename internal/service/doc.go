// Package service runs everything around the policies of a configuration, for calls of
// kube-scheduler (package app) and for the plugin inside kube-scheduler (package schedplugin). It
// connects the cluster, signals, ledgers and the requeuing of pods with the engines of the
// profiles, reloads the configuration as a whole, and explains decisions.
//
// [Connect] returns the connection to the API server, [New] the [Service] of a configuration, and
// [Service.Run] runs it until its context ends. The caller gets the engines from [Service.Current]
// or from [Options.OnActivate], and adds the records of decisions to [Service.Log].
package service
