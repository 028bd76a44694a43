package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/wiring"
)

// deployed is a container of a Deployment with a configuration from a ConfigMap.
type deployed struct {
	deployment *appsv1.Deployment
	container  *corev1.Container
	path       string // of the file in the container
	object     object
	text       []byte
}

func (d *deployed) name() string {
	return "deployment " + d.deployment.Namespace + "/" + d.deployment.Name
}

// readFile reads a file of the container that comes from a ConfigMap or a Secret.
func (d *deployed) readFile(c *Cluster) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		o, ok := mounted(d.deployment.Namespace, &d.deployment.Spec.Template.Spec, d.container, name)
		if !ok {
			return nil, fmt.Errorf("it comes from no ConfigMap or Secret of %s", d.name())
		}
		return c.content(o)
	}
}

// configured returns the containers of the Deployments in a namespace, or in all with "", that read
// a configuration of kube-scheduler or of Outboard from a ConfigMap, and why others could not be
// read.
func (c *Cluster) configured(namespace string) (schedulers, outboards []deployed, unread []error) {
	for i := range c.Deployments {
		d := &c.Deployments[i]
		if namespace != "" && d.Namespace != namespace {
			continue
		}
		spec := &d.Spec.Template.Spec
		for j := range spec.Containers {
			found := deployed{deployment: d, container: &spec.Containers[j]}
			s := scheduler{&corev1.Pod{Spec: *spec}, found.container}
			path, ok := s.flag("config")
			if !ok {
				continue
			}
			found.path = absolute(found.container, path)
			if found.object, ok = mounted(d.Namespace, spec, found.container, path); !ok {
				continue
			}
			var err error
			if found.text, err = c.content(found.object); err != nil {
				unread = append(unread, fmt.Errorf("%s: %w", found.name(), err))
				continue
			}
			if strings.Contains(string(found.text), config.Kind) && !s.runs() {
				outboards = append(outboards, found)
			} else if holdsConfiguration(string(found.text)) || s.runs() {
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
			return errors.Join(append(unread, in.noScheduler(namespace, schedulers))...)
		}
		s := schedulers[0]
		in.File, in.Data, in.ReadFile, in.deployed = s.object.keyRef(), s.text, s.readFile(in.Cluster), true
	}
	in.namespace, in.wired = namespace, append(slices.Clone(schedulers), outboards...)
	if len(outboards) == 1 {
		in.outboardHere = outboards[0].deployment
	}
	if in.Config == nil {
		if len(outboards) != 1 {
			why := "no Deployment in " + namespace + " runs it with a configuration from a ConfigMap: FILE names it"
			if len(outboards) > 1 {
				why = "several Deployments in " + namespace + " run it: FILE names its configuration"
			}
			if len(unread) > 0 {
				why = strings.ReplaceAll(errors.Join(unread...).Error(), "\n", "; ")
			}
			in.Unread = append(in.Unread, Omission{"Outboard's configuration", why})
			return nil
		}
		return in.deployedConfig(&outboards[0], types)
	}
	return nil
}

// deployedConfig reads the configuration of Outboard. Its errors and warnings name the key in the
// cluster.
func (in *Input) deployedConfig(d *deployed, types config.Types) error {
	parsed, err := config.Parse(d.path, d.text, types) // relative paths are relative to that file
	if errs := (strictyaml.Errors)(nil); errors.As(err, &errs) {
		for _, e := range errs {
			e.File = d.object.keyRef()
		}
	}
	if err != nil {
		return err
	}
	for _, w := range parsed.Warnings {
		w.File = d.object.keyRef()
	}
	in.Config, in.ConfigFile, in.ReadConfigFile, in.configDeployed = parsed, d.object.keyRef(), d.readFile(in.Cluster), true
	return nil
}

// missingSecrets reports Secrets that do not exist, although Deployments with a configuration mount
// them.
func (c *checker) missingSecrets() {
	reported := map[string]bool{}
	for _, d := range c.wired {
		for _, name := range requiredSecrets(&d.deployment.Spec.Template.Spec) {
			ref := "secret " + d.deployment.Namespace + "/" + name
			if c.Cluster.Secret == nil || reported[ref] {
				continue
			}
			if _, err := c.Cluster.Secret(d.deployment.Namespace, name); !apierrors.IsNotFound(err) {
				continue
			}
			reported[ref] = true
			command := "outboard setup certs --dir tls --secrets"
			if d.deployment.Namespace != wiring.Namespace {
				command += " --outboard-namespace " + d.deployment.Namespace
			}
			c.elsewhere(Error, "SecretNotFound", ref, "", d.name()+" mounts it, and it does not exist", "the pods do not start", "create it; for certificates: "+command+" | kubectl apply -f -")
		}
	}
}

// requiredSecrets returns the names of the Secrets without which the kubelet does not start the
// pod's containers.
func requiredSecrets(spec *corev1.PodSpec) []string {
	var names []string
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Secret != nil && !ptr.Deref(v.Secret.Optional, false) {
			names = append(names, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil && !ptr.Deref(s.Secret.Optional, false) {
				names = append(names, s.Secret.Name)
			}
		}
	}
	return names
}

// deployedHere reports whether the host of urlPrefix is that of a Service for the Deployment from
// which Outboard's configuration can be read. A Service that is not known belongs to it if it is in
// the same namespace.
func (e *extenderAt) deployedHere() bool {
	u, d := e.url(), e.outboardHere
	if d == nil {
		return false
	}
	s, named := e.Cluster.serviceOf(u)
	if s == nil {
		_, namespace, _ := e.Cluster.serviceName(u.Hostname())
		return named && namespace == d.Namespace
	}
	return s.Namespace == d.Namespace && len(s.Spec.Selector) > 0 &&
		labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels))
}

// noScheduler says why there is not one file to check, and how to name it.
func (in *Input) noScheduler(namespace string, found []deployed) error {
	if len(found) > 1 {
		var names []string
		for _, d := range found {
			names = append(names, d.object.keyRef())
		}
		return fmt.Errorf("%s has several configurations of kube-scheduler: write one of them to a FILE, and name it with --scheduler: %s", namespace, strings.Join(names, ", "))
	}
	var files []string
	for _, s := range in.schedulers() {
		if file, ok := s.flag("config"); ok {
			files = append(files, fmt.Sprintf("%s reads %s on node %s", s.name(), file, s.pod.Spec.NodeName))
		}
	}
	slices.Sort(files)
	return errors.New(strings.Join(append([]string{"no Deployment in " + namespace + " runs kube-scheduler with a configuration from a ConfigMap: copy kube-scheduler's configuration to a FILE, and name it with --scheduler"}, files...), "; "))
}
