// Package binder binds pods with their claims, for the extender's bind call and for the plugin inside kube-scheduler.
//
// [Binder.Bind] makes the claims of a pod, then its Binding with the annotations of the claims, and releases claims only when no
// Binding can use them any more. What comes after what is in protocol.go, as pure steps; testdata/protocol.txt has histories of it.
package binder
