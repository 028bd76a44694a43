package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// deployed is a container of a Deployment with a configuration from a ConfigMap.
type deployed struct {
	deployment *appsv1.Deployment
	container  *corev1.Container
	path       string // of the file in the container
	object     object
	text       []byte
}

// readFile reads a file of the container that comes from a ConfigMap or a Secret.
func (d *deployed) readFile(c *Cluster) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		o, ok := mounted(d.deployment.Namespace, &d.deployment.Spec.Template.Spec, d.container, name)
		if !ok {
			return nil, fmt.Errorf("it comes from no ConfigMap or Secret of deployment %s/%s", d.deployment.Namespace, d.deployment.Name)
		}
		return c.content(o)
	}
}

// configured returns the containers of the Deployments in a namespace that read a configuration of
// kube-scheduler or of Outboard from a ConfigMap, and why others could not be read.
func (c *Cluster) configured(namespace string) (schedulers, outboards []deployed, unread error) {
	for i := range c.Deployments {
		d := &c.Deployments[i]
		spec := &d.Spec.Template.Spec
		for j := range spec.Containers {
			found := deployed{deployment: d, container: &spec.Containers[j]}
			s := scheduler{&corev1.Pod{Spec: *spec}, found.container}
			path, ok := s.flag("config")
			if !ok || d.Namespace != namespace {
				continue
			}
			found.path = absolute(found.container, path)
			if found.object, ok = mounted(d.Namespace, spec, found.container, path); !ok {
				continue
			}
			var err error
			found.text, err = c.content(found.object)
			switch {
			case err != nil:
				unread = errors.Join(unread, fmt.Errorf("deployment %s/%s: %w", d.Namespace, d.Name, err))
			case strings.Contains(string(found.text), config.Kind) && !s.runs():
				outboards = append(outboards, found)
			case typical.Match(found.text) || s.runs():
				schedulers = append(schedulers, found)
			}
		}
	}
	return schedulers, outboards, unread
}

// FromNamespace sets the file to check, and the configuration of Outboard, unless they are set: it
// reads them from the ConfigMaps that the Deployments in the namespace mount, with the certificates
// that these mount. It needs a Cluster.
func (in *Input) FromNamespace(namespace string, types config.Types) error {
	schedulers, outboards, unread := in.Cluster.configured(namespace)
	if in.File == "" {
		if len(schedulers) != 1 {
			return errors.Join(unread, in.noScheduler(namespace, schedulers))
		}
		s := schedulers[0]
		in.File, in.Data, in.ReadFile, in.deployed = s.object.keyRef(), s.text, s.readFile(in.Cluster), true
	}
	in.namespace = namespace
	if len(outboards) == 1 {
		in.outboardHere = outboards[0].deployment
	}
	switch {
	case in.Config != nil:
		return nil
	case len(outboards) == 1:
		return in.deployedConfig(&outboards[0], types)
	case unread != nil:
		in.Unread = append(in.Unread, Omission{"Outboard's configuration", strings.ReplaceAll(unread.Error(), "\n", "; ")})
	default:
		in.Unread = append(in.Unread, Omission{"Outboard's configuration", fmt.Sprintf("%d Deployments in %s run it with a configuration from a ConfigMap: FILE names it", len(outboards), namespace)})
	}
	return nil
}

// deployedConfig reads the configuration of Outboard. Its errors name the key in the cluster.
func (in *Input) deployedConfig(d *deployed, types config.Types) error {
	parsed, err := config.Parse(d.path, d.text, types) // relative paths are relative to that file
	if errs := (strictyaml.Errors)(nil); errors.As(err, &errs) {
		for _, e := range errs {
			e.File = d.object.keyRef()
		}
	}
	in.Config, in.ConfigFile, in.ReadConfigFile, in.configDeployed = parsed, d.object.keyRef(), d.readFile(in.Cluster), true
	return err
}

// deployedHere reports whether urlPrefix is that of a Service for the Deployment from which
// Outboard's configuration can be read. A Service that is not known is one if it is in the same
// namespace.
func (e *extenderAt) deployedHere() bool {
	d := e.outboardHere
	if d == nil {
		return false
	}
	s := e.Cluster.serviceOf(e.url())
	if s == nil {
		return strings.HasSuffix(strings.TrimSuffix(e.url().Hostname(), ".cluster.local"), "."+d.Namespace+".svc")
	}
	return s.Namespace == d.Namespace && len(s.Spec.Selector) > 0 &&
		labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels))
}

// noScheduler says why there is not one file to check, and how to name it.
func (in *Input) noScheduler(namespace string, found []deployed) error {
	var names []string
	for _, d := range found {
		names = append(names, d.object.keyRef())
	}
	if len(names) > 0 {
		return fmt.Errorf("%s has several configurations of kube-scheduler: write one of them to a FILE, and name it with --scheduler: %s", namespace, strings.Join(names, ", "))
	}
	for _, s := range in.schedulers() {
		if file, ok := s.flag("config"); ok {
			names = append(names, fmt.Sprintf("; %s reads %s on node %s", s.name(), file, s.pod.Spec.NodeName))
		}
	}
	slices.Sort(names)
	return errors.New("no Deployment in " + namespace + " runs kube-scheduler with a configuration from a ConfigMap: copy kube-scheduler's configuration to a FILE, and name it with --scheduler" + strings.Join(names, ""))
}
