// Package snapshot holds what is true now: an immutable [View] of the nodes and
// the pods on them, which every policy judges and nothing on the request path
// changes.
//
// Facts come in from the side. A [Builder] collects nodes, pods and disruption
// budgets as they change and publishes a new View; a View shares with the one
// before it every [Node] that did not change. A request takes one View and
// keeps it until it has answered, so that all of its policies see one moment.
//
//	informers ──► Builder ──► View ──► policies
//
// # What a policy may rely on
//
// Objects in a View are shared by all requests and must not be written to. They
// are trimmed ([TrimPod], [TrimNode]): what no placement can depend on (managed
// fields, environment, commands, probes, volume mounts, heartbeat times) is not
// there. A pod that comes with a request is trimmed in the same way before any
// policy sees it, so a policy cannot come to depend on where the pod came from.
//
// What a pod counts with is [PodRequests], as in kube-scheduler: a pod on a node may hold
// something else than its spec requests, because it can be resized in place.
//
// # Facts
//
// What a policy needs to know about a node and its pods (how many of them match
// a selector, how much of each device is taken) is a [Fact]: computed when it is
// first asked for and kept with the Node for as long as that node does not
// change. A request over 5,000 nodes after one pod was bound computes it for one
// node, not for 5,000, whatever the number of pods.
//
// # Signals
//
// A [Signal] holds the numbers that an external source reports about nodes, or about
// anything else, by key, each with its age. Whether a number is stale is decided when the
// View is published, so that policies need no clock.
//
// # History
//
// What pods have asked for lately says what will be asked for next. Which pods have
// come and gone ([History]) is a part of the View, so that what a policy learns from
// it follows from the View, as all that it decides. Where nobody learns, nothing is kept:
// [Builder.DropHistory].
//
// # Concurrency
//
// View, Node, Fact and Cursor values may be used by any number of goroutines,
// except that a Cursor belongs to one. A Builder belongs to one goroutine, or is
// guarded by its owner.
package snapshot
