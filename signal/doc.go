// Package signal reads numbers from external sources: Prometheus, a license server, a
// file, another cluster. It reads each [Source] periodically in the background and
// publishes the result as a [snapshot.Signal]; no request ever waits for a source. The
// packages below this one are the types of sources; a [Type] describes one to the
// configuration.
package signal
