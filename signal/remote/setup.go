package remote

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
)

// minTimeout is more than watchTime.
const minTimeout = 3 * time.Second

// Config is another cluster: what it has, and has left, of each resource.
type Config struct {
	// Kubeconfig is a file. Required.
	Kubeconfig string `json:"kubeconfig"`
	// Context is the context in the kubeconfig; "" (the default) is its current one.
	Context string `json:"context"`
}

// Type is the type of source as configuration files know it.
func Type() signal.Type {
	t := signal.TypeOf("cluster", Defaults, spec)
	t.MinTimeout = minTimeout
	return t
}

// Defaults is the configuration of a source of which everything is missing.
func Defaults() Config { return Config{} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return map[string]*string{"kubeconfig": &c.Kubeconfig} }

func spec(c Config) (signal.Spec, error) {
	var errs field.ErrorList
	if c.Kubeconfig == "" {
		errs = append(errs, field.Required(field.NewPath("kubeconfig"), "must be a file that says how to reach the other cluster"))
	}
	open := func(signal.Cluster) (signal.Source, error) { return New(c), nil }
	return signal.Spec{About: policy.AboutKeys, Open: open}, errs.ToAggregate()
}
