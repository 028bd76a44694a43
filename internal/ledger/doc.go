// Package ledger keeps the claims of pods on units in objects of the API server, safely for many
// replicas: a [Keeper] writes and releases claims by compare-and-swap. docs/claims.md describes the
// protocol.
package ledger
