// Package signal is the contract of a source of numbers outside the cluster: Prometheus, a license
// server, a file, another cluster. Outboard reads each [Source] periodically in the background and
// publishes the result as a [snapshot.Signal]; no request ever waits for a source. A [Type]
// describes a type of sources to the configuration.
package signal
