package metricsapi

import (
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config is the resource usage of nodes, from the metrics API, such as metrics-server.
type Config struct {
	// Resource is cpu (in cores) or memory (in bytes). Required.
	Resource string `json:"resource" values:"cpu,memory"`
}

// Type is the type of source in configuration files.
func Type() signal.Type {
	t := signal.TypeOf("metrics", Defaults, spec)
	t.NeedsCluster = true
	return t
}

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

func spec(c Config) (signal.Spec, error) {
	open := func(client *rest.Config) (signal.Source, error) { return New(c, client) }
	errs := fields.Check(nil, &c)
	return signal.Spec{About: policy.AboutNodes, Open: open}, errs.ToAggregate()
}
