// Package binder binds pods with their allocations, for the extender's bind call and for the plugin
// inside kube-scheduler.
//
// [Binder.Bind] makes the allocations of a pod, then its Binding with the annotations of the
// allocations, and releases allocations only when no Binding can use them any more. What comes
// after what is in protocol.go, and how long it waits for pods that must be bound first in
// waiting.go, both as pure steps; testdata has histories of them.
package binder
