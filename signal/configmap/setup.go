package configmap

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/signal/content"
)

// Config is a document in a ConfigMap.
type Config struct {
	// Namespace, Name and Key say where it is. Required.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	// What is in the document. A path or column with the key of a number cannot be
	// given: key is where the document is.
	content.Document
}

// Type is the type of source as configuration files know it.
func Type() signal.Type {
	t := signal.TypeOf("configMap", Defaults, spec)
	t.NeedsCluster = true
	return t
}

// Defaults is the configuration of a source of which everything is missing.
func Defaults() Config { return Config{Document: content.Defaults()} }

func spec(c Config) (signal.Spec, error) {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"namespace", c.Namespace}, {"name", c.Name}, {"key", c.Key}} {
		if f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), "says where the document is"))
		}
	}
	return signal.Spec{About: c.NumbersAbout(), Open: c.open}, append(errs, c.Validate()...).ToAggregate()
}

func (c Config) open(cluster signal.Cluster) (signal.Source, error) {
	client, err := corev1.NewForConfig(cluster.Client)
	if err != nil {
		return nil, err
	}
	return New(client.ConfigMaps(c.Namespace), c)
}
