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
//	+ GPUs of the largest slot for which a pod without GPUs leaves too little CPU or memory
//	+ a little for each node further down the list
//
// in millionths of a GPU; the smallest is best. The worth of a pod is not its share of a GPU, but
// what it costs beside the other pods that come: see worths. The prices ([Prices]) follow
// Littlewood's rule: the value of what is taken, times the probability that the demand of pods that
// can use nothing else reaches the supply.
//
// While pods come and go (the turnover of the Mix), slots of whole GPUs cost more, because they come
// back slowly: the number of pods that have one varies, so more are kept, and more still of those
// that few nodes can have.
//
// The constants were chosen once, and do not depend on a particular cluster.
package placement
