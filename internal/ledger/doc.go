// Package ledger keeps the allocations of pods on units in objects of the API server, safely for
// many replicas: a [Keeper] writes and releases allocations by compare-and-swap.
// docs/allocations.md describes the protocol.
package ledger
