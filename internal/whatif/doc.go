// Package whatif finds a small change that makes a waiting pod fit, of each kind: less of one
// resource, pods that end, and what excludes nodes: a taint, a selector or a cordon.
//
// Each change is evaluated by the same engine, and by what kubescheduler knows of kube-scheduler's
// own plugins, with the changed pod or nodes, before it is returned. How many evaluations are
// permitted is a number, not a time, so that the same View gives the same changes on any machine.
//
// Nothing here is on the path of a call: it writes no record, and changes no cache of the Engine.
package whatif
