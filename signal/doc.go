// Package signal follows outside facts: what Prometheus, a license server, a file or
// another cluster says. A [Source] is read again and again in the background, and what
// it says is published as a [snapshot.Column]; no request ever waits for one. The
// types of sources are the packages below this one; a [Type] is what a configuration
// needs to know of one.
package signal
