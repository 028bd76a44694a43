// Package binder binds pods with their claims, for the extender's bind call and for the plugin inside kube-scheduler.
//
// [Binder.Bind] makes the claims of a pod, then its Binding with the annotations of the claims, and releases claims only when no
// Binding can use them any more. [InFlight] counts pods on their nodes from the bind call until a View shows them, with the
// annotations that they will probably get ([WithPlannedClaims]).
package binder
