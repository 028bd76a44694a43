package cluster

import (
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outboard.dev/outboard/snapshot"
)

// configMapFeed watches a family of ConfigMaps. Of other ConfigMaps in its namespace it keeps only
// the names.
func (c *Cluster) configMapFeed(source snapshot.ConfigMapSource) *feed {
	resource := schema.GroupVersionResource{Resource: "configmaps " + source.Prefix + "* in " + source.Namespace}
	return newFeed(c, resource, "", c.client.CoreV1().ConfigMaps(source.Namespace), configMapStore(c.State, c.options.Logger, source))
}

func configMapStore(s *State, logger *slog.Logger, source snapshot.ConfigMapSource) store[*corev1.ConfigMap] {
	put := func(m *corev1.ConfigMap, data map[string]string) {
		if node, ok := nodeOf(m, source); ok {
			s.change(func(b *snapshot.Builder) { b.SetConfigMap(source, node, data) })
		}
	}
	return store[*corev1.ConfigMap]{
		trim:   func(m *corev1.ConfigMap) { trimConfigMap(m, logger, source) },
		set:    func(m *corev1.ConfigMap) { put(m, m.Data) },
		remove: func(m *corev1.ConfigMap) { put(m, nil) },
	}
}

// nodeOf returns the name of the node whose ConfigMap of the family it is.
func nodeOf(m *corev1.ConfigMap, source snapshot.ConfigMapSource) (node string, ok bool) {
	node, ok = strings.CutPrefix(m.Name, source.Prefix)
	return node, ok && node != ""
}

// maxData bounds the data of one ConfigMap, in bytes. A larger one counts as one without data.
const maxData = 16 << 10

// trimConfigMap removes the contents of a ConfigMap that is not in the family, or is too large.
func trimConfigMap(m *corev1.ConfigMap, logger *slog.Logger, source snapshot.ConfigMapSource) {
	data := m.Data
	*m = corev1.ConfigMap{ObjectMeta: m.ObjectMeta}
	m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	if _, ok := nodeOf(m, source); !ok {
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
