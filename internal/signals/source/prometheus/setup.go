package prometheus

import (
	"k8s.io/client-go/rest"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config is an instant query.
type Config struct {
	// Address is the server's URL, http or https, with a path if it has one. Required.
	Address string `json:"address" required:"must be the server's URL, such as http://prometheus:9090"`
	// Query is a PromQL query that returns a vector or a scalar. Required.
	Query string `json:"query" required:"-"`
	// NodeNameLabel is the label with the name of the node, or with its InternalIP, each with or
	// without a port.
	NodeNameLabel string `json:"nodeNameLabel" oneOf:"label?"`
	// KeyLabel is the label with the key, for numbers that are not about nodes. Without both
	// labels, the query must return one number.
	KeyLabel string `json:"keyLabel" oneOf:"label?"`
	// Client is how to reach the server.
	Client httpclient.Config `json:"client"`
}

// Type is the type of source in configuration files.
func Type() signal.Type { return signal.TypeOf("prometheus", Defaults, spec) }

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return c.Client.Files() }

func spec(c Config) (signal.Spec, error) {
	about := policy.AboutKeys
	if c.NodeNameLabel != "" {
		about = policy.AboutNodes
	}
	open := func(*rest.Config) (signal.Source, error) { return New(c) }
	return signal.Spec{About: about, Open: open}, c.validate().ToAggregate()
}

func (c *Config) validate() field.ErrorList {
	errs := append(fields.Check(nil, c), httpclient.ValidateURL(field.NewPath("address"), c.Address, "the server's URL, such as http://prometheus:9090")...)
	if strings.TrimSpace(c.Query) == "" {
		errs = append(errs, field.Required(field.NewPath("query"), "must be a query in PromQL"))
	}
	return append(errs, c.Client.Validate(c.Address)...)
}
