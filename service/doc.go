// Package service is what runs around the policies of a configuration, whoever asks them: kube-scheduler by calls (package app), or
// from inside (package schedplugin). It connects the cluster, signals, ledgers and the requeuing of pods with the engines of the
// profiles, reloads the configuration as a whole, and explains decisions.
//
// [Connect] makes what works with the API server, [New] a [Service] of a configuration, and [Service.Run] works until its context
// ends. Who asks the policies finds the engines in [Service.Current], or is told of them by [Options.Enforced], and adds records of
// decisions to [Service.Log].
package service
