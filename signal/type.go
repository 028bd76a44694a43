package signal

import (
	"time"

	"k8s.io/client-go/rest"

	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
)

// Type is a type of source as configuration files know it.
type Type struct {
	// Name is the field of a signal that holds the configuration of its source, in
	// camelCase.
	Name string
	// NeedsCluster says that its sources read the cluster for which Outboard schedules.
	NeedsCluster bool
	// MinTimeout is how long a reading may need to be given at least. 0: any time.
	MinTimeout time.Duration
	// New builds a Spec from the configuration of a source, and does no I/O. decode and
	// errors are as those of [policy.Type]. If the pointer given to decode is a
	// [FileReader], the paths that it returns are made absolute: in the file they are
	// relative to the directory of the configuration file.
	New func(decode func(into any) error) (Spec, error)
}

// FileReader is a configuration with paths of files.
type FileReader interface {
	// Files returns the paths, by their fields such as "client.caFile"; "" is none.
	Files() map[string]*string
}

// Spec is a source with a valid configuration.
type Spec struct {
	// About says what the keys of its numbers are.
	About policy.SignalAbout
	// Open returns a new source, which reads nothing before it is asked.
	Open func(Cluster) (Source, error)
}

// Cluster is the cluster for which Outboard schedules; the zero value if there is none.
type Cluster struct {
	// View returns what is known of it now.
	View func() *snapshot.View
	// Client says how to reach its API server. It is read-only.
	Client *rest.Config
}

// TypeOf returns the Type of the sources that build makes of a configuration, whose
// defaults are what defaults returns.
func TypeOf[C any](name string, defaults func() C, build func(C) (Spec, error)) Type {
	return Type{Name: name, New: func(decode func(any) error) (Spec, error) {
		config := defaults()
		if err := decode(&config); err != nil {
			return Spec{}, err
		}
		return build(config)
	}}
}
