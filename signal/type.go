package signal

import (
	"time"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/policy"
)

// Type is a type of source in configuration files.
type Type struct {
	// Name is the field of a signal with the configuration of its source, in camelCase.
	Name string
	// NeedsCluster is true if its sources read the API server of the cluster for which Outboard
	// schedules.
	NeedsCluster bool
	// MinTimeout is the minimum timeout of a read. 0: any.
	MinTimeout time.Duration
	// New builds a Spec from the configuration of a source, and does no I/O. decode and errors are
	// like those of [policy.Type]. If the pointer passed to decode is a [FileReader], its paths are
	// made absolute: in the file they are relative to the directory of the configuration file.
	New func(decode func(into any) error) (Spec, error)
}

// FileReader is a configuration with paths of files.
type FileReader interface {
	// Files returns the paths, by their fields such as "client.caFile"; "" means none.
	Files() map[string]*string
}

// Spec is a source with a valid configuration.
type Spec struct {
	// About is what the keys of its numbers are.
	About policy.SignalAbout
	// Open returns a new source, which reads nothing before Read is called. client is the
	// read-only client configuration for the API server of the cluster for which Outboard
	// schedules; nil if there is none.
	Open func(client *rest.Config) (Source, error)
}

// TypeOf returns the Type with this name. defaults returns the default configuration, and build
// creates the Spec from a configuration.
func TypeOf[C any](name string, defaults func() C, build func(C) (Spec, error)) Type {
	return Type{Name: name, New: func(decode func(any) error) (Spec, error) {
		config := defaults()
		if err := decode(&config); err != nil {
			return Spec{}, err
		}
		return build(config)
	}}
}
