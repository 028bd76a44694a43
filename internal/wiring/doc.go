// Package wiring writes kube-scheduler's side of a configuration: the extenders of a
// KubeSchedulerConfiguration that call the profiles of an Outboard configuration, with comments
// that say why each field has its value. It reads no files and makes no requests.
//
// [New] decides on the extenders, [Wiring.YAML] prints them, and [Wiring.Kubeadm] adds what kubeadm
// needs to pass the file to kube-scheduler.
//
// # Strict and soft extenders
//
// Each profile is called by one extender, which is strict or soft. A strict extender is not
// ignorable: while it does not respond, its pods stay pending. It is for profiles with
// managedResources, for profiles whose policies allocate resources, for a profile that serves bind
// or preempt alone, and for all others if [Options].Strict is set. A soft extender is ignorable,
// and is called for filter and prioritize only.
package wiring
