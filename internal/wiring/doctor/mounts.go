package doctor

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// object is a key of a ConfigMap or Secret.
type object struct {
	kind, namespace, name, key string

	shared bool // other objects of the same volume may have the file instead
}

// keyRef is the name of the key in findings.
func (o object) keyRef() string { return o.kind + " " + o.namespace + "/" + o.name + " " + o.key }

// missingKey is the error of reading a key that an object does not have, so that no file of the
// container has its content.
type missingKey struct {
	object object
	keys   []string // that the object has
}

func (m *missingKey) Error() string {
	return fmt.Sprintf("%s does not exist: there are the keys %s", m.object.keyRef(), strings.Join(m.keys, ", "))
}

// missing returns the error of reading a file, or nil unless the file is known not to exist.
func missing(file string, read func(string) ([]byte, error)) *missingKey {
	var m *missingKey
	if file != "" && read != nil {
		if _, err := read(file); errors.As(err, &m) && m.object.shared {
			return nil
		}
	}
	return m
}

// mounted returns the object whose content a container has at the path of a file. It returns false
// if there is none: the file is on the node, or in the image.
func mounted(namespace string, spec *corev1.PodSpec, container *corev1.Container, file string) (object, bool) {
	file = absolute(container, file)
	mounts := slices.Clone(container.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) }) // the innermost first
	for _, m := range mounts {
		rest, ok := strings.CutPrefix(file, path.Clean(m.MountPath))
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if ok && i >= 0 && (rest == "" || rest[0] == '/') {
			return inVolume(namespace, &spec.Volumes[i], strings.TrimPrefix(path.Join("/", m.SubPath, rest), "/"))
		}
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

// inVolume returns the object at the path of a file in a volume: one that names the file, or else
// one of which each key is a file.
func inVolume(namespace string, v *corev1.Volume, file string) (found object, ok bool) {
	var all []corev1.VolumeProjection
	switch {
	case v.ConfigMap != nil:
		all = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items}}}
	case v.Secret != nil:
		all = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items}}}
	case v.Projected != nil:
		all = v.Projected.Sources
	}
	for _, p := range all {
		o, items := object{namespace: namespace, key: file, shared: len(all) > 1}, []corev1.KeyToPath(nil)
		switch {
		case p.ConfigMap != nil:
			o.kind, o.name, items = "configmap", p.ConfigMap.Name, p.ConfigMap.Items
		case p.Secret != nil:
			o.kind, o.name, items = "secret", p.Secret.Name, p.Secret.Items
		default:
			continue
		}
		for _, item := range items {
			if path.Clean(item.Path) == file {
				o.key = item.Key
				return o, true
			}
		}
		if len(items) == 0 && !ok {
			found, ok = o, file != ""
		}
	}
	return found, ok
}

// content returns the content of the object.
func (c *Cluster) content(o object) ([]byte, error) {
	data := map[string][]byte{}
	switch {
	case o.kind == "secret" && c.Secret != nil:
		s, err := c.Secret(o.namespace, o.name)
		if err != nil {
			return nil, err
		}
		data = s.Data
	case o.kind == "configmap" && c.ConfigMap != nil:
		m, err := c.ConfigMap(o.namespace, o.name)
		if err != nil {
			return nil, err
		}
		for key, text := range m.Data {
			data[key] = []byte(text)
		}
		maps.Copy(data, m.BinaryData)
	default:
		return nil, fmt.Errorf("the %s is not read", o.keyRef())
	}
	text, found := data[o.key]
	if !found {
		return nil, &missingKey{o, slices.Sorted(maps.Keys(data))}
	}
	return text, nil
}
