// Package standard lists the types of sources of signals that come with Outboard. It is the only
// package that imports all of them.
package standard

import (
	"outboard.dev/outboard/internal/source/file"
	"outboard.dev/outboard/internal/source/httpdoc"
	"outboard.dev/outboard/internal/source/metricsapi"
	"outboard.dev/outboard/internal/source/prometheus"
	"outboard.dev/outboard/internal/source/remote"
	"outboard.dev/outboard/signal"
)

// Types returns the types of sources that come with Outboard.
func Types() []signal.Type {
	return []signal.Type{
		prometheus.Type(),
		metricsapi.Type(),
		httpdoc.Type(),
		file.Type(),
		remote.Type(),
	}
}
