package cluster

import (
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outboard.dev/outboard/snapshot"
)

// configMapFeed watches the families of ConfigMaps in one namespace. Of other ConfigMaps it keeps
// only the names.
func (c *Cluster) configMapFeed(namespace string, sources []snapshot.ConfigMapSource) *feed {
	resource := schema.GroupVersionResource{Resource: "configmaps in " + namespace}
	return newFeed(c, resource, "", c.client.CoreV1().ConfigMaps(namespace), configMapStore(c.State, c.options.Logger, sources))
}

func configMapStore(s *State, logger *slog.Logger, sources []snapshot.ConfigMapSource) store[*corev1.ConfigMap] {
	put := func(name string, data map[string]string) {
		s.change(func(b *snapshot.Builder) {
			for source, node := range familiesOf(name, sources) {
				b.SetConfigMap(source, node, data)
			}
		})
	}
	return store[*corev1.ConfigMap]{
		trim: func(m *corev1.ConfigMap) { trimConfigMap(m, logger, sources) },
		set: func(m *corev1.ConfigMap) {
			if m.Data != nil {
				put(m.Name, m.Data)
			}
		},
		remove: func(m *corev1.ConfigMap) { put(m.Name, nil) },
	}
}

// familiesOf returns the families to which the ConfigMap belongs, with the name of the node.
func familiesOf(name string, sources []snapshot.ConfigMapSource) map[snapshot.ConfigMapSource]string {
	nodes := map[snapshot.ConfigMapSource]string{}
	for _, source := range sources {
		if node, ok := strings.CutPrefix(name, source.Prefix); ok && node != "" {
			nodes[source] = node
		}
	}
	return nodes
}

// maxData bounds the data of one ConfigMap, in bytes. A larger one counts as one without data.
const maxData = 16 << 10

// trimConfigMap removes the contents of a ConfigMap that is in no family, or is too large.
func trimConfigMap(m *corev1.ConfigMap, logger *slog.Logger, sources []snapshot.ConfigMapSource) {
	data := m.Data
	*m = corev1.ConfigMap{ObjectMeta: m.ObjectMeta}
	m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	if len(familiesOf(m.Name, sources)) == 0 {
		return
	}
	if snapshot.SizeOf(data) > maxData {
		logger.Warn("a ConfigMap is too large, and is ignored", "configmap", m.Namespace+"/"+m.Name, "limit", maxData)
		data = nil
	}
	if m.Data = data; data == nil {
		m.Data = map[string]string{}
	}
}
