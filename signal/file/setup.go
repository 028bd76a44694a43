package file

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/content"
	"outboard.dev/outboard/signal"
)

// Config is a document in a file, which is read again when it changes.
type Config struct {
	// Path is the file. Required.
	Path string `json:"path"`
	// The contents of the document.
	content.Document
}

// Type is the type of source in configuration files.
func Type() signal.Type { return signal.TypeOf("file", Defaults, spec) }

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{Document: content.Defaults()} }

// Files implements signal.FileReader.
func (c *Config) Files() map[string]*string { return map[string]*string{"path": &c.Path} }

func spec(c Config) (signal.Spec, error) {
	var errs field.ErrorList
	if c.Path == "" {
		errs = append(errs, field.Required(field.NewPath("path"), "must name a file"))
	}
	open := func(signal.Cluster) (signal.Source, error) { return New(c) }
	return signal.Spec{About: c.NumbersAbout(), Open: open}, append(errs, c.Validate()...).ToAggregate()
}
