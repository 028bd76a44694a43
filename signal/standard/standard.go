// Package standard lists the types of sources of signals that come with Outboard. It is the only
// package that imports all of them.
package standard

import (
	"outboard.dev/outboard/internal/signals/source/file"
	"outboard.dev/outboard/internal/signals/source/httpdoc"
	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/internal/signals/source/prometheus"
	"outboard.dev/outboard/internal/signals/source/remote"
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
