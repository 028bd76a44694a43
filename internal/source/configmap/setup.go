package configmap

import (
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"outboard.dev/outboard/internal/content"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// Config is a document in a ConfigMap.
type Config struct {
	// Namespace is the namespace of the ConfigMap. Required.
	Namespace string `json:"namespace" required:"names the ConfigMap with the document"`
	// Name is the name of the ConfigMap. Required.
	Name string `json:"name" required:"names the ConfigMap with the document"`
	// DataKey is the key of the document in the data of the ConfigMap. Required.
	DataKey string `json:"dataKey" required:"names the ConfigMap with the document"`
	// The contents of the document.
	content.Document
}

// Type is the type of source in configuration files.
func Type() signal.Type {
	t := signal.TypeOf("configMap", Defaults, spec)
	t.NeedsCluster = true
	return t
}

// Defaults is the default configuration, without the required fields.
func Defaults() Config { return Config{Document: content.Defaults()} }

func spec(c Config) (signal.Spec, error) {
	errs := append(fields.Check(nil, &c), c.Validate()...)
	return signal.Spec{About: c.NumbersAbout(), Open: c.open}, errs.ToAggregate()
}

func (c Config) open(cluster signal.Cluster) (signal.Source, error) {
	client, err := corev1.NewForConfig(cluster.Client)
	if err != nil {
		return nil, err
	}
	return New(client.ConfigMaps(c.Namespace), c)
}
