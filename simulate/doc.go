// Package simulate plays pods against a cluster that exists in memory only, to find out
// how well a set of policies fills it. What decides is the engine with the very
// policies that answer kube-scheduler, over Views of the same Builder, and claims are
// made by the rules of ledgers.
//
// # What stands for kube-scheduler
//
// [Scheduler] does the part of kube-scheduler that decides where pods go beside an
// extender:
//
//   - Filters: NodeResourcesFit (all resources but those it is told to ignore, pods too), and those
//     of package kubescheduler.
//   - Sampling: percentageOfNodesToScore with its adaptive default, and the index at
//     which the next search begins.
//   - The extender: filter is asked about the nodes found, and prioritize about those
//     that it returns, unless it is one; scores are rounded to 0..10 as on the wire, or
//     sent as they are, and multiplied by the extender's weight.
//   - Scores: NodeResourcesFit (LeastAllocated or MostAllocated) and
//     NodeResourcesBalancedAllocation, with cpu and memory.
//   - Equal nodes: one of them at random, or the first.
//
// Left out are ports, volumes, affinity between pods, topology spread, image
// locality, preferred node affinity, dynamic resources, preemption, pod groups, and
// scheduling gates: pods are judged as if they had none. Pods are tried one
// after the other, each bound before the next, and a node is ready at once.
//
// # Time
//
// Time is simulated: it moves from event to event, and no clock is read. The same
// options and seed give the same result.
package simulate
