// Package verify asks a running scheduler extender, anybody's, the questions
// kube-scheduler would ask, and reports which rules of the wire contract the
// answers keep and which they break.
//
// The rules are listed by Rules; each has a stable id, and says what follows in
// kube-scheduler when it is broken. Run asks through an HTTP client built like
// kube-scheduler's own, so what it sees is what kube-scheduler would see.
//
// What is asked is harmless to an extender that keeps the contract: filter,
// prioritize and preempt have no effect by definition, and bind, which is asked
// only when its verb is named, is asked for a pod that does not exist. An extender
// that reserves while it filters will hold reservations for imaginary pods
// afterwards; that is the finding.
//
// An extender may hang, cut connections, or answer without end: every question is
// bounded in time and memory, and so is the whole run.
package verify
