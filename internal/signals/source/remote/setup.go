package remote

import (
	"k8s.io/client-go/rest"
	"time"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// minTimeout is more than watchTime.
const minTimeout = 3 * time.Second

// Config is another cluster: the amount of each resource, and what is left of it.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file whose current context is the other cluster.
	// Required.
	Kubeconfig string `json:"kubeconfig" required:"must be the kubeconfig of the other cluster"`
}

// Type is the type of source in configuration files.
func Type() signal.Type {
	t := signal.TypeOf("cluster", Defaults, spec)
	t.MinTimeout = minTimeout
	return t
}

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return map[string]*string{"kubeconfig": &c.Kubeconfig} }

func spec(c Config) (signal.Spec, error) {
	open := func(*rest.Config) (signal.Source, error) { return New(c), nil }
	return signal.Spec{About: policy.AboutKeys, Open: open}, fields.Check(nil, &c).ToAggregate()
}
