// Package extender serves kube-scheduler's calls (filter, prioritize, preempt and bind), as
// k8s.io/kube-scheduler/extender/v1 defines them. It only translates between the wire and the
// engine; package wire below it implements fast decoding and encoding.
//
//	body ──► wire.Request ──► nodes of the View ──► engine ──► wire ──► body
//
// # Responses
//
// Every POST to a verb's URL gets status 200, Content-Type application/json, an exact
// Content-Length and no trailing newline: kube-scheduler drops the body of any other status, and
// closes a connection after a chunked response. The Error field of the response contains errors,
// including that the caller is not allowed to call: see [WriteError]. Two responses have no such
// field in kube-scheduler's types: an error of prioritize is an object where a list is expected,
// which kube-scheduler logs and ignores; an error of preempt is an empty result, which ends the
// preemption, with an additional Error for people. Requests that are not extender calls (another
// method, another path) get the appropriate HTTP status.
//
// # Modes
//
// A request with node names gets a response with node names. A request with Node objects gets these
// objects back, byte for byte. A node that is in the View is evaluated from the View, with the pods
// on it; a node that exists only in the request is evaluated from its object. Without a cluster
// every node is of the second kind, and requests with names fail.
//
// If a call has whole Node objects and none of them is in the View, a cluster autoscaler asks about
// nodes that it could add. The response is that for empty nodes, and the call changes nothing: it
// is counted in the metrics, but it has no record in the log of decisions, and its nodes are not
// cached.
//
// If at least one node passes and a shortlist is set, the response omits rejected nodes:
// kube-scheduler uses them only to explain why no node fits. In all other cases each requested node
// is in exactly one of the response's lists.
//
// # Bind
//
// A bind call binds pods of the profile only, and only where kube-scheduler would let them run. It
// filters again, makes the allocations, waits briefly for pods that should be bound first, and
// writes the Binding. The outcome of the Binding decides about the allocation:
//
//   - Bound: the allocation stays.
//   - Rejected, or not sent: the allocation is released.
//   - Unknown: the pod is changed, so that the API server rejects the Binding, which has an earlier
//     resourceVersion. If the pod is not bound then, the allocation is released. If the pod cannot be
//     changed, the allocation stays until a replica reclaims it.
package extender
