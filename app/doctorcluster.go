package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// readForDoctor reads the objects of the cluster that outboard check --cluster checks. A list that
// the user may not read is in Unlisted. It reads the Deployments of the namespace, if it is not "".
func readForDoctor(ctx context.Context, connection config.ClientConnection, namespace string) (*doctor.Cluster, error) {
	api, err := readingClient(connection)
	if err != nil {
		return nil, err
	}
	client, err := clientConfig(connection)
	if err != nil {
		return nil, err
	}
	c := &doctor.Cluster{Unlisted: map[string]error{}}
	version, err := api.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	c.Version = version.GitVersion
	optional := func(kind string, err error) error {
		switch {
		case apierrors.IsForbidden(err):
			c.Unlisted[kind], err = err, nil
		case apierrors.IsNotFound(err): // ResourceSlices, before Kubernetes 1.34
			err = nil
		}
		return err
	}
	err = errors.Join(
		optional("nodes", eachPage(ctx, "nodes", api.CoreV1().Nodes().List, func(l *corev1.NodeList) { c.Nodes = append(c.Nodes, l.Items...) })),
		optional("pods", eachPage(ctx, "pods", api.CoreV1().Pods("").List, func(l *corev1.PodList) { c.Pods = append(c.Pods, l.Items...) })),
		optional("services", eachPage(ctx, "Services", api.CoreV1().Services("").List, func(l *corev1.ServiceList) { c.Services = append(c.Services, l.Items...) })),
		optional("endpointslices", eachPage(ctx, "EndpointSlices", api.DiscoveryV1().EndpointSlices("").List, func(l *discoveryv1.EndpointSliceList) {
			c.EndpointSlices = append(c.EndpointSlices, l.Items...)
		})),
		optional("validatingadmissionpolicybindings", eachPage(ctx, "ValidatingAdmissionPolicyBindings", api.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List, func(l *admissionv1.ValidatingAdmissionPolicyBindingList) {
			c.AdmissionBindings = append(c.AdmissionBindings, l.Items...)
		})),
		optional("resourceslices", eachPage(ctx, "ResourceSlices", api.ResourceV1().ResourceSlices().List, func(l *resourcev1.ResourceSliceList) {
			c.ResourceSlices = append(c.ResourceSlices, l.Items...)
		})),
	)
	if namespace != "" {
		err = errors.Join(err, eachPage(ctx, "Deployments", api.AppsV1().Deployments(namespace).List, func(l *appsv1.DeploymentList) {
			c.Deployments = append(c.Deployments, l.Items...)
		}))
		if len(c.Deployments) == 0 {
			// Whoever may not read the namespace learns only that there are no Deployments.
			if _, missing := api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(missing) {
				err = errors.Join(err, fmt.Errorf("there is no namespace %s: --outboard-namespace names that of Outboard; if it is not installed, outboard check FILE --scheduler FILE --cluster reads the configurations from files", namespace))
			}
		}
	}
	type object struct{ namespace, name string }
	configMap := once(func(o object) (*corev1.ConfigMap, error) {
		return api.CoreV1().ConfigMaps(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	})
	secret := once(func(o object) (*corev1.Secret, error) {
		return api.CoreV1().Secrets(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	})
	type endpoint struct {
		object
		port int
	}
	loaded := once(func(e endpoint) ([]byte, error) { return configz(ctx, client, api, e.namespace, e.name, e.port) })
	c.ConfigMap = func(namespace, name string) (*corev1.ConfigMap, error) { return configMap(object{namespace, name}) }
	c.Secret = func(namespace, name string) (*corev1.Secret, error) { return secret(object{namespace, name}) }
	c.Configz = func(namespace, pod string, port int) ([]byte, error) {
		return loaded(endpoint{object{namespace, pod}, port})
	}
	return c, err
}

// once returns a function that calls read once for each key, since several checks need the same
// object.
func once[K comparable, T any](read func(K) (T, error)) func(K) (T, error) {
	results := map[K]func() (T, error){}
	return func(key K) (T, error) {
		if results[key] == nil {
			results[key] = sync.OnceValues(func() (T, error) { return read(key) })
		}
		return results[key]()
	}
}
