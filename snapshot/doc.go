// Package snapshot holds the state of the cluster at one moment: an immutable [View] of the nodes
// and the pods on them. Every policy reads it, and nothing on the request path changes it.
//
// A [Builder] collects nodes, pods and disruption budgets as they change and publishes a new View.
// A View shares every unchanged [Node] with the View before it. A request takes one View and keeps
// it until the response, so that all of its policies see the same moment.
//
//	informers ──► Builder ──► View ──► policies
//
// # Contract for policies
//
// All requests share the objects in a View and must not change them. The objects are trimmed
// ([TrimPod], [TrimNode]): they lack what no placement can depend on (managed fields, environment,
// commands, probes, volume mounts, heartbeat times). A pod that comes with a request is trimmed in
// the same way before any policy sees it, so a policy cannot depend on where the pod came from.
//
// [PodRequests] returns the resources with which a pod counts, as in kube-scheduler: a pod on a
// node may hold other resources than its spec requests, because it can be resized in place.
//
// # Facts
//
// A [Fact] is what a policy needs to know about a node and its pods, such as how many of them match
// a selector, or how much of each GPU is allocated. It is computed on first use and kept with the
// Node while that does not change. After one pod was bound, a request for 5,000 nodes computes it
// for one node, however many pods there are.
//
// # Signals
//
// A [Signal] holds the numbers that an external source reports about nodes, or about anything else,
// by key, each with its age. The View marks stale numbers when it is published, so that policies
// need no clock.
//
// # History
//
// [History] records which pods have come and gone. It is a part of the View, so that what a policy
// learns from it depends on the View alone, like all its decisions. If no policy learns,
// [Builder.DropHistory] omits it.
//
// # Concurrency
//
// View, Node and Fact are safe for concurrent use. A Builder belongs to one goroutine, or its owner
// guards it.
package snapshot
