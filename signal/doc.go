// Package signal follows outside facts: what Prometheus, a license server, a file or
// another cluster says. A [Source] is read again and again in the background, and what
// it says is published as a [snapshot.Column]; no request ever waits for one. The
// kinds of sources are the packages below this one.
package signal
