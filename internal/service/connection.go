package service

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
)

// Connection has the clients of the API server. The zero value is no connection.
type Connection struct {
	Cluster *cluster.Cluster
	// Client is the client configuration of the cluster.
	Client *rest.Config
	Keeper *ledger.Keeper
}

// Connect returns the Connection of the configuration. options has what the configuration does not
// determine, or what replaces its rate limits; its Config is required. Connect makes no request.
func Connect(c *config.Config, options cluster.Options, registry *prometheus.Registry, logger *slog.Logger) (to Connection, err error) {
	needed := requirementsOf(c)
	if options.QPS == 0 {
		options.QPS, options.Burst = float32(c.ClientConnection.QPS), 2*c.ClientConnection.QPS
	}
	options.Ledgers, options.Devices, options.ConfigMaps = needed.ledgers, needed.devices, needed.configMaps
	options.Logger, options.Registerer = logger, registry
	to.Client = options.Config
	if to.Cluster, err = cluster.New(options); err != nil {
		return to, err
	}
	to.Keeper = ledger.New(ledger.Options{
		API: to.Cluster, Cache: to.Cluster, ReclaimAfter: c.Ledgers.ReclaimAfter, Now: to.Cluster.Clock().Latest, Logger: logger, Registerer: registry,
	})
	return to, nil
}
