package configmap

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"outboard.dev/outboard/internal/content"
	"outboard.dev/outboard/signal"
)

// Config is a document in a ConfigMap.
type Config struct {
	// Namespace, Name and DataKey, a key of the ConfigMap's data, identify the document. Required.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	DataKey   string `json:"dataKey"`
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
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"namespace", c.Namespace}, {"name", c.Name}, {"dataKey", c.DataKey}} {
		if f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), "names the ConfigMap with the document"))
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
