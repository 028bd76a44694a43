package cluster

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// configMapFeed watches the families of ConfigMaps in one namespace. Of other ConfigMaps it keeps
// nothing.
func (c *Cluster) configMapFeed(namespace string, sources []snapshot.ConfigMapSource) *resourceReflector {
	k := &configMaps{state: c.state, logger: c.options.Logger, sources: sources, known: map[string]*corev1.ConfigMap{}}
	return newResourceReflector(c.client, c.feed("configmaps in "+namespace), "", c.client.CoreV1().ConfigMaps(namespace), store[*corev1.ConfigMap]{
		trim:   k.trim,
		set:    k.set,
		remove: k.remove,
		known:  k.all,
		done:   c.completed,
	})
}

// configMaps writes the data of ConfigMaps into the state. It belongs to one feed.
type configMaps struct {
	state   *state
	logger  *slog.Logger
	sources []snapshot.ConfigMapSource
	known   map[string]*corev1.ConfigMap // those with data, by name
}

// of yields the families to which the ConfigMap belongs, with the name of the node.
func (k *configMaps) of(name string, yield func(source snapshot.ConfigMapSource, node string)) {
	for _, source := range k.sources {
		if node, ok := strings.CutPrefix(name, source.Prefix); ok && node != "" {
			yield(source, node)
		}
	}
}

// maxData bounds the data of one ConfigMap, in bytes. A larger one counts as one without data.
const maxData = 16 << 10

// trim removes the contents of a ConfigMap that is in no family, or is too large.
func (k *configMaps) trim(m *corev1.ConfigMap) {
	data := m.Data
	*m = corev1.ConfigMap{ObjectMeta: m.ObjectMeta}
	m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	k.of(m.Name, func(snapshot.ConfigMapSource, string) {
		if m.Data = data; m.Data == nil {
			m.Data = map[string]string{}
		}
	})
	if m.Data != nil && snapshot.SizeOf(m.Data) > maxData {
		k.logger.Warn("a ConfigMap is too large, and is ignored", "configmap", m.Namespace+"/"+m.Name, "limit", maxData)
		m.Data = map[string]string{}
	}
}

func (k *configMaps) set(m *corev1.ConfigMap) {
	if m.Data == nil {
		return
	}
	k.known[m.Name] = m
	k.put(m.Name, m.Data)
}

func (k *configMaps) remove(m *corev1.ConfigMap) {
	delete(k.known, m.Name)
	k.put(m.Name, nil)
}

func (k *configMaps) all() []*corev1.ConfigMap { return slices.Collect(maps.Values(k.known)) }

func (k *configMaps) put(name string, data map[string]string) {
	k.state.mu.Lock()
	defer k.state.mu.Unlock()
	k.of(name, func(source snapshot.ConfigMapSource, node string) { k.state.builder.SetConfigMap(source, node, data) })
	k.state.requestPublish()
}
