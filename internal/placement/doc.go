// Package placement computes where pods that share GPUs should run, so that a cluster fills up
// instead of fragmenting. It does not depend on Kubernetes or on policies: a [Node] is what is free
// of one machine, and a [Shape] is what a pod requests. Everything is pure except [Learner] and
// [Supply], which their owners update.
//
// [Waste] rates a placement by how little it wastes of what could be allocated to the usual pods.
// [PartitionValues] rate a partition of a GPU, such as a MIG instance, by what else of the GPU can
// still be allocated.
//
// # Least waste
//
// A GPU with 700 free thousandths is worth 700 to a cluster whose pods request 100 each, and little
// more than 500 to one whose pods request 500. [Waste] computes the value of each state of a GPU
// from the shapes of the pods that have come so far (a [Mix], collected by a [Learner]), and rates
// a placement by
//
//	what the node is worth before − what it is worth after − what the pod gets
//	+ price of the GPU model × what the pod gets
//	+ price of the whole-GPU slots that the placement breaks
//	+ a little for each node further down the list
//
// in millionths of a GPU; the smallest is best. The worth of a pod is not its share of a GPU, but
// what it costs beside the other pods that come: see worths. The prices ([Prices]) follow
// Littlewood's rule: the value of what is taken, times the probability that the demand of pods that
// can use nothing else reaches the supply.
//
// # Constants
//
// The constants were chosen once, and do not depend on a particular cluster.
//
//	rounds      400   corrections of what pods are worth: the more, the closer to the optimum
//	correction  0.5   the first of them
//	closing     0.01  how likely a GPU takes no further pod after each offer
//	withoutGPU  0.3   how much a pod without GPUs counts in what a node is worth
//	orderSpan   200   thousandths of a GPU between the first and the last node; 70 to 600 are as good
//	priorSlots  0.5   pods with 2, 4 and 8 GPUs that are expected before any was seen
//	minMemory   1000  pods remembered at least, and
//	perNode     0.8   for each node
package placement
