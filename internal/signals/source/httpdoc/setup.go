package httpdoc

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/internal/signals/httpclient"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config is a document at a URL.
type Config struct {
	// URL is the http or https address of the document. Required.
	URL string `json:"url" required:"must be an http or https URL"`
	// The form of the document.
	format.Document
	// Client is how to reach the server.
	Client httpclient.Config `json:"client"`
}

// Type is the type of source in configuration files.
func Type() signal.Type { return signal.TypeOf("http", Defaults, spec) }

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return c.Client.Files() }

func spec(c Config) (signal.Spec, error) {
	open := func(*rest.Config) (signal.Source, error) { return New(c) }
	return signal.Spec{About: c.NumbersAbout(), Open: open}, c.validate().ToAggregate()
}

func (c *Config) validate() field.ErrorList {
	errs := append(fields.Check(nil, c), httpclient.ValidateURL(field.NewPath("url"), c.URL, "an http or https URL")...)
	errs = append(errs, c.Client.Validate(c.URL)...)
	return append(errs, c.Document.Validate()...)
}
