// Package extender answers kube-scheduler's calls: filter, prioritize, preempt
// and bind, as k8s.io/kube-scheduler/extender/v1 defines them. It translates
// between the wire and the engine and does nothing else; package wire below it
// holds the fast paths of decoding and encoding.
//
//	body ──► wire.Request ──► nodes of the View ──► engine ──► wire ──► body
//
// # Answers
//
// Every POST to a verb's URL is answered with 200, Content-Type
// application/json, an exact Content-Length and no trailing newline:
// kube-scheduler drops the body of any other status, and throws away a
// connection whose answer was chunked. What went wrong stands in the answer's
// Error, also that the caller is not allowed to call: see [WriteError]. Two answers have no such field in kube-scheduler's types: an error of
// prioritize is an object where a list is expected, which kube-scheduler logs
// and ignores; an error of preempt is an empty result, which ends the
// preemption, with the Error beside it for people. What is no extender call at
// all (another method, another path) gets the HTTP status it deserves.
//
// # Modes
//
// A request that names nodes is answered with names, one that holds nodes with
// nodes: the request's own bytes. A node that is in the View is judged from the
// View, together with the pods on it; one that is only in the request is judged
// from its object. Without a cluster every node is of the second kind, and names
// alone cannot be judged.
//
// When at least one node passes and a shortlist is set, rejected nodes are left
// out of the answer: kube-scheduler uses them only to explain why nothing fits.
// In every other case each node asked is in exactly one of the answer's lists.
//
// # Scores
//
// kube-scheduler asks about a pod twice, filter and then prioritize. When a filter call
// by names has been answered, the nodes that passed are scored at once, while what is known of
// them is in the processor's caches; a prioritize call with exactly the body that follows from the answer gets these scores. So
// both are answered by the same View, unless a second has passed, a pod is being bound to one of the
// nodes since, or pods have been evicted for another pod. Nothing is computed ahead for a scheduler that
// makes no prioritize calls.
//
// # Bind
//
// A bind call binds pods of the profile only, and only where kube-scheduler would let
// them run. It asks the policies once more, claims what they hand out, waits for a
// moment until pods are bound that should come before, and writes the Binding. What
// becomes of the claim follows from what became of the Binding:
//
//   - Bound: it stays.
//   - Refused, or not sent: it is released.
//   - Not known: the pod is changed, so that the Binding, which names the version from
//     before, cannot come into effect any more. If the pod is not bound then, the claim
//     is released; if the pod cannot be changed, it stays until it is taken back.
package extender
