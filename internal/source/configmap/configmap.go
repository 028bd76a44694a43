package configmap

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/content"
	"outboard.dev/outboard/signal"
)

// Getter gets ConfigMaps of the configured namespace. client-go's implements it.
type Getter interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
}

// Source is a [signal.Source].
type Source struct {
	getter  Getter
	config  Config
	decoder *content.Decoder
}

// New returns a Source. The configuration is valid, except for the paths of the document.
func New(getter Getter, c Config) (*Source, error) {
	decoder, err := content.New(c.Document)
	if err != nil {
		return nil, err
	}
	return &Source{getter, c, decoder}, nil
}

// Read gets the ConfigMap.
func (s *Source) Read(ctx context.Context, limits signal.Limits) ([]signal.Sample, error) {
	object, err := s.getter.Get(ctx, s.config.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("configMap %s/%s: %w", s.config.Namespace, s.config.Name, err)
	}
	text, ok := object.Data[s.config.DataKey]
	if !ok {
		return nil, fmt.Errorf("configMap %s/%s has no key %q in its data", s.config.Namespace, s.config.Name, s.config.DataKey)
	}
	samples, err := s.decoder.Decode(strings.NewReader(text), limits)
	if err != nil {
		return nil, fmt.Errorf("configMap %s/%s, key %q: %w", s.config.Namespace, s.config.Name, s.config.DataKey, err)
	}
	return samples, nil
}
