// Package standard lists the types of sources of signals that come with Outboard. It is the only
// package that imports all of them.
package standard

import (
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/configmap"
	"outboard.dev/outboard/signal/file"
	"outboard.dev/outboard/signal/httpdoc"
	"outboard.dev/outboard/signal/metricsapi"
	"outboard.dev/outboard/signal/nodes"
	"outboard.dev/outboard/signal/prometheus"
	"outboard.dev/outboard/signal/remote"
)

// Types returns the types of sources that come with Outboard.
func Types() []signal.Type {
	return []signal.Type{
		prometheus.Type(),
		metricsapi.Type(),
		httpdoc.Type(),
		file.Type(),
		configmap.Type(),
		nodes.Type(),
		remote.Type(),
	}
}
