package doctor

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is a key of a ConfigMap or Secret.
type object struct {
	kind            string // configmap or secret
	namespace, name string
	key             string
	shared          bool     // other objects of the same volume may have the file instead
	items           []string // not nil: the paths of the volume's items, none of which is the file
}

// keyRef is the name of the key in findings.
func (o object) keyRef() string { return o.ref() + " " + o.key }

// ref is the name of the whole object. A manifest need not have a namespace.
func (o object) ref() string { return o.kind + " " + strings.TrimPrefix(o.namespace+"/"+o.name, "/") }

// missingKey is the error of reading a key that an object or the items of its volume do not have,
// so that no file of the container has its content.
type missingKey struct {
	object object
	keys   []string // that the object has
}

func (m *missingKey) Error() string {
	if m.object.items != nil {
		return fmt.Sprintf("the items of the volume with %s have no path %s: they have %s", m.object.ref(), m.object.key, strings.Join(m.object.items, ", "))
	}
	if len(m.keys) == 0 {
		return fmt.Sprintf("%s has no key %s: it has no keys", m.object.ref(), m.object.key)
	}
	return fmt.Sprintf("%s has no key %s: it has %s", m.object.ref(), m.object.key, strings.Join(m.keys, ", "))
}

// missing returns the error of reading a file, or nil unless the file is known not to exist.
func missing(file string, read func(string) ([]byte, error)) *missingKey {
	var m *missingKey
	if file != "" && read != nil {
		if _, err := read(file); errors.As(err, &m) && !m.object.shared {
			return m
		}
	}
	return nil
}

// mounted returns the object whose content a container has at the path of a file. It returns false
// if there is none: the file is on the node, or in the image.
func mounted(namespace string, spec *corev1.PodSpec, container *corev1.Container, file string) (object, bool) {
	file = absolute(container, file)
	mounts := slices.Clone(container.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) }) // the innermost first
	for _, m := range mounts {
		rest, ok := strings.CutPrefix(file, path.Clean(m.MountPath))
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return object{}, false
		}
		return inVolume(namespace, &spec.Volumes[i], strings.TrimPrefix(path.Join("/", m.SubPath, rest), "/"))
	}
	return object{}, false
}

// absolute returns the absolute path of a file in a container.
func absolute(container *corev1.Container, file string) string {
	if path.IsAbs(file) {
		return path.Clean(file)
	}
	return path.Join("/", container.WorkingDir, file)
}

// inVolume returns the object at the path of a file in a volume.
func inVolume(namespace string, v *corev1.Volume, file string) (object, bool) {
	var projected []corev1.VolumeProjection
	switch {
	case v.ConfigMap != nil:
		projected = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items}}}
	case v.Secret != nil:
		projected = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items}}}
	case v.Projected != nil:
		projected = v.Projected.Sources
	}
	for _, p := range projected {
		o, items := object{namespace: namespace, shared: len(projected) > 1}, []corev1.KeyToPath(nil)
		switch {
		case p.ConfigMap != nil:
			o.kind, o.name, items = "configmap", p.ConfigMap.Name, p.ConfigMap.Items
		case p.Secret != nil:
			o.kind, o.name, items = "secret", p.Secret.Name, p.Secret.Items
		default:
			continue
		}
		var ok bool
		if o.key, ok = keyAt(items, file); ok {
			return o, true
		}
		if !o.shared && file != "" {
			o.key = file
			for _, item := range items {
				o.items = append(o.items, item.Path)
			}
			return o, true
		}
	}
	return object{}, false
}

// keyAt returns the key of which a file has the content. Without items, each key is a file.
func keyAt(items []corev1.KeyToPath, file string) (string, bool) {
	for _, item := range items {
		if path.Clean(item.Path) == file {
			return item.Key, true
		}
	}
	return file, len(items) == 0 && file != "" && !strings.Contains(file, "/")
}

// read returns the metadata and the data of the ConfigMap or Secret with the object.
func (c *Cluster) read(o object) (*metav1.ObjectMeta, map[string][]byte, error) {
	if o.kind == "secret" && c.Secret != nil {
		s, err := c.Secret(o.namespace, o.name)
		if err != nil {
			return nil, nil, err
		}
		return &s.ObjectMeta, s.Data, nil
	}
	if o.kind == "secret" || c.ConfigMap == nil {
		return nil, nil, fmt.Errorf("the %s is not read", o.keyRef())
	}
	m, err := c.ConfigMap(o.namespace, o.name)
	if err != nil {
		return nil, nil, err
	}
	data := map[string][]byte{}
	for key, text := range m.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, m.BinaryData)
	return &m.ObjectMeta, data, nil
}

// content returns the content of the object.
func (c *Cluster) content(o object) ([]byte, error) {
	_, data, err := c.read(o)
	if err != nil {
		return nil, err
	}
	text, found := data[o.key]
	if !found || o.items != nil {
		return nil, &missingKey{o, slices.Sorted(maps.Keys(data))}
	}
	return text, nil
}
