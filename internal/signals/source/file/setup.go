package file

import (
	"k8s.io/client-go/rest"
	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config is a document in a file, which is read again when it changes.
type Config struct {
	// Path is the path of the document, relative to the configuration file. Required.
	Path string `json:"path" required:"must name a file"`
	// The form of the document.
	format.Document
}

// Type is the type of source in configuration files.
func Type() signal.Type { return signal.TypeOf("file", Defaults, spec) }

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return map[string]*string{"path": &c.Path} }

func spec(c Config) (signal.Spec, error) {
	errs := append(fields.Check(nil, &c), c.Validate()...)
	open := func(*rest.Config) (signal.Source, error) { return New(c) }
	return signal.Spec{About: c.NumbersAbout(), Open: open}, errs.ToAggregate()
}
