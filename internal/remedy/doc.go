// Package remedy finds the smallest change that makes a waiting pod fit, of each kind: less of one
// resource, pods of one node that end, holders of a pool that end, nodes that one taint, selector,
// affinity term or cordon excludes, or resources that only a policy is to count, and
// less of one capacity in a ResourceClaim.
//
// Each change is evaluated by the same engine, by what kubescheduler knows of kube-scheduler's own
// plugins, and by kube-scheduler's allocator of devices, with the changed pod, claim, nodes or
// View, before it is returned. It is called the smallest only if no smaller one is left to
// evaluate. How many evaluations are permitted is a number, not a time, so that the same View gives
// the same changes on any machine.
//
// Nothing here is on the path of a call: it writes no record, and changes no cache of the Engine.
package remedy
