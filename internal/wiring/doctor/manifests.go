package doctor

import (
	"fmt"
	"io/fs"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config/manifest"
)

// FromManifests uses the objects in Data and in the file of Config, whose content is outboard: the
// Services, and what the Deployment of each configuration mounts. ReadFile and ReadConfigFile then
// read the other files only.
func (in *Input) FromManifests(outboard []byte) {
	in.manifests = objectsOf(in.Data, outboard)
	if schedulers, _, _ := objectsOf(in.Data).configured(""); len(schedulers) == 1 {
		in.ReadFile = schedulers[0].readFirst(in.manifests, in.ReadFile)
	}
	if _, outboards, _ := objectsOf(outboard).configured(""); len(outboards) == 1 {
		in.ReadConfigFile = outboards[0].readFirst(in.manifests, in.ReadConfigFile)
	}
}

// readFirst reads files of the container from ConfigMaps and Secrets in manifests, and the others
// with read.
func (d *deployed) readFirst(manifests *Cluster, read func(string) ([]byte, error)) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		o, ok := mounted(d.deployment.Namespace, &d.deployment.Spec.Template.Spec, d.container, name)
		if ok {
			_, _, err := manifests.read(o)
			ok = err == nil
		}
		if ok {
			return manifests.content(o)
		}
		if read == nil {
			return nil, fs.ErrNotExist
		}
		return read(name)
	}
}

// objectsOf returns the objects in manifests that Check uses, like a cluster that has no others.
func objectsOf(texts ...[]byte) *Cluster {
	c := &Cluster{}
	configMaps, secrets := map[string]*corev1.ConfigMap{}, map[string]*corev1.Secret{}
	c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) { return given(configMaps, namespace, name) }
	c.Secret = func(namespace, name string) (*corev1.Secret, error) { return given(secrets, namespace, name) }
	for _, text := range texts {
		whole := manifest.Text{Data: text}
		for _, document := range whole.Documents() {
			switch kind := decoded[metav1.TypeMeta](document.Data); kind.APIVersion + " " + kind.Kind {
			case "v1 Service":
				c.Services = append(c.Services, decoded[corev1.Service](document.Data))
			case "apps/v1 Deployment":
				c.Deployments = append(c.Deployments, decoded[appsv1.Deployment](document.Data))
			case "v1 ConfigMap":
				m := decoded[corev1.ConfigMap](document.Data)
				configMaps[m.Namespace+"/"+m.Name] = &m
			case "v1 Secret":
				s := decoded[corev1.Secret](document.Data)
				if s.Data == nil {
					s.Data = map[string][]byte{}
				}
				for key, value := range s.StringData {
					s.Data[key] = []byte(value)
				}
				secrets[s.Namespace+"/"+s.Name] = &s
			}
		}
	}
	return c
}

func given[T any](objects map[string]*T, namespace, name string) (*T, error) {
	if o := objects[namespace+"/"+name]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%s/%s is not in the manifests", namespace, name)
}

// decoded returns an object as far as it can be decoded: other commands report what is wrong with
// it.
func decoded[T any](text []byte) (object T) {
	_ = yaml.Unmarshal(text, &object)
	return object
}
