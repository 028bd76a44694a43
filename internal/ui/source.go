package ui

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/pending"
	"outboard.dev/outboard/snapshot"
)

// Source is what the data of one replica is made of. All functions may be called concurrently, and
// what they return is shared. Without a cluster, CountPods, Unbound, Rejected, Version and Audit
// are nil.
type Source struct {
	// Name is that of the replica.
	Name string
	// Metrics has the metrics of the process: the version, the calls, the certificates.
	Metrics prometheus.Gatherer
	// Repeat has a function called a few times each minute, so that the overview knows the calls
	// before somebody looks. Nil: it does not.
	Repeat func(func())
	// Checks and Warnings are the lines of /readyz.
	Checks   func() []Check
	Warnings func() []string
	Log      *decision.Log
	Signals  func() []explain.Signal
	View     func() *snapshot.View
	pending.Source
	// Hints returns a function that returns mistakes in what a pod requests, by what nodes report
	// now. Nil: none is known.
	Hints func() func(pod *corev1.Pod) []string
	// Now is the time of the API server, as far as it is known.
	Now func() time.Time

	// CountPods returns how many pods have not ended.
	CountPods func() int
	// Unbound returns those of them that are not on a node, in no particular order.
	Unbound func() []*corev1.Pod
	// Version returns numbers that are others after each change of what Unbound and Rejected
	// return.
	Version func() [2]uint64
	// Audit returns what the latest audit found, and when that was; zero if there was none.
	Audit func() (time.Time, []audit.Finding)
}
