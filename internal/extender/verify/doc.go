// Package verify calls any running scheduler extender as kube-scheduler would, and
// reports which rules of the wire contract its responses follow and which they
// violate.
//
// [Rules] lists the rules; each has a stable ID and names the consequence of a
// violation in kube-scheduler. [Run] uses an HTTP client built like kube-scheduler's
// own, so it sees what kube-scheduler would see.
//
// The calls are harmless to an extender that follows the contract: filter,
// prioritize and preempt have no side effects by definition, and bind is called only
// when its verb is named, for a pod that does not exist. An extender that reserves
// resources in filter holds reservations for imaginary pods afterwards; the report
// shows this.
//
// An extender may hang, close connections, or respond without end: every request is
// bounded in time and memory, and so is the whole run.
package verify
