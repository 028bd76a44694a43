// Package simulate schedules pods on a cluster that exists only in memory, to measure how well a
// set of policies fills it. The engine and the policies are the same ones that answer
// kube-scheduler, with Views from the same Builder, and allocations follow the rules of ledgers.
//
// # The part of kube-scheduler
//
// [Scheduler] simulates the part of kube-scheduler that decides where pods run, besides the
// extenders:
//
//   - Filters: NodeResourcesFit (all resources except the ignored ones, including pods), those of
//     package kubescheduler, and DynamicResources, with the devices that package firstfit predicts.
//   - Sampling: percentageOfNodesToScore with its adaptive default, and the index at which the next
//     search starts.
//   - The extenders: filter is called for the nodes found, one extender after the other, and
//     prioritize for those that all of them return, unless it is only one; scores are rounded to
//     0..10 as on the wire, or sent as totals, multiplied by the extender's weight, and summed.
//   - Scores: NodeResourcesFit (LeastAllocated or MostAllocated) and
//     NodeResourcesBalancedAllocation, with cpu and memory.
//   - Equal nodes: one of them at random, or the first.
//
// It does not simulate ports, volumes, affinity between pods, topology spread, image locality,
// preferred node affinity, preemption, pod groups, and scheduling gates: pods are scheduled as if
// they had none. Devices that several nodes share, and extended resources that devices serve, do
// not exist. Pods are scheduled one after the other, each bound before the next, and nodes are
// always ready.
//
// # Time
//
// Time is simulated: it advances from event to event, and does not depend on a clock. The same
// options and seed give the same result.
package simulate
