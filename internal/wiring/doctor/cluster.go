package doctor

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/wiring"
)

// Cluster has objects of a cluster. Lists may be of all namespaces.
type Cluster struct {
	// Version is that of the API server, such as v1.37.0.
	Version        string
	Nodes          []corev1.Node
	Pods           []corev1.Pod
	Services       []corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice
	ResourceSlices []resourcev1.ResourceSlice
	// AdmissionBindings are those of ValidatingAdmissionPolicies.
	AdmissionBindings []admissionv1.ValidatingAdmissionPolicyBinding
	// Deployments are required by Input.FromNamespace only.
	Deployments []appsv1.Deployment
	// Unlisted has the kinds of the above that could not be listed, such as "nodes", and why.
	Unlisted map[string]error
	// ConfigMap and Secret read an object that a container mounts. nil: none can be read.
	ConfigMap func(namespace, name string) (*corev1.ConfigMap, error)
	Secret    func(namespace, name string) (*corev1.Secret, error)
	// Configz returns the response to a request of /configz at a port of kube-scheduler's pod: what
	// it has loaded, as JSON. nil: it cannot be requested.
	Configz func(namespace, pod string, port int) ([]byte, error)
}

// scheduler is a container that runs kube-scheduler.
type scheduler struct {
	pod       *corev1.Pod
	container *corev1.Container
}

func (s scheduler) name() string { return "pod " + s.pod.Namespace + "/" + s.pod.Name }

func (s scheduler) words() []string { return slices.Concat(s.container.Command, s.container.Args) }

// flag returns the value of a flag, and whether it is set.
func (s scheduler) flag(name string) (string, bool) {
	words := s.words()
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			return value, true
		}
		if word == "--"+name && i+1 < len(words) {
			return words[i+1], true
		}
	}
	return "", false
}

// runs reports whether the container runs kube-scheduler.
func (s scheduler) runs() bool {
	image, _, _ := strings.Cut(path.Base(s.container.Image), ":")
	return image == "kube-scheduler" || slices.ContainsFunc(s.words(), func(word string) bool { return path.Base(word) == "kube-scheduler" })
}

// reads reports whether the container may read the file: it mounts the object of that name, or a
// file with the same base name.
func (s scheduler) reads(file string) bool {
	name, ok := s.flag("config")
	if !ok {
		return false
	}
	o, ok := mounted(s.pod.Namespace, &s.pod.Spec, s.container, name)
	return ok && o.keyRef() == file || path.Base(name) == filepath.Base(file)
}

// schedulers returns the containers that run kube-scheduler and may read the file; if there are
// none and the file is not from the cluster, those with --config; or else all.
func (in *Input) schedulers() []scheduler {
	var all, configured, same []scheduler
	for i := range in.Cluster.Pods {
		p := &in.Cluster.Pods[i]
		for j := range p.Spec.Containers {
			s := scheduler{p, &p.Spec.Containers[j]}
			if s.reads(in.File) && (in.deployed || s.runs()) {
				same = append(same, s)
			}
			if !s.runs() {
				continue
			}
			all = append(all, s)
			if _, ok := s.flag("config"); ok {
				configured = append(configured, s)
			}
		}
	}
	for _, some := range [][]scheduler{same, configured} {
		if len(some) > 0 || in.deployed {
			return some
		}
	}
	return all
}

// cluster compares the file with the cluster.
func (c *checker) cluster() {
	schedulers := c.schedulers()
	for _, s := range schedulers {
		if _, ok := s.flag("config"); !ok {
			c.elsewhere(Warning, "SchedulerWithoutConfig", s.name(), "", "kube-scheduler has no flag --config", "it does not read the file, and calls no extender", "start it with --config; outboard setup scheduler --for kubeadm writes the patches for a static pod")
		}
		for _, e := range c.extenders() {
			e.reachable(s)
		}
		c.running(s)
	}
	c.admission()
	if c.listed("pods") && len(schedulers) == 0 {
		c.omit("the running kube-scheduler", "no pod of the cluster runs it with this file")
	}
	c.devices()
	c.requests()
	for i := 0; c.Config != nil && i < len(c.Config.Profiles); i++ {
		for j := range c.Config.Profiles[i].Policies {
			var policy map[string]any
			_ = c.Config.Profiles[i].Policies[j].Config.Decode(&policy) // it has been encoded from a valid one
			c.unmatched(fmt.Sprintf("profiles[%d].policies[%d].config", i, j), "", policy)
		}
	}
	for _, e := range c.extenders() {
		e.service()
		for j, r := range e.extender.ManagedResources {
			if counted(r) {
				e.reported(fmt.Sprintf("managedResources[%d]", j), corev1.ResourceName(r.Name))
			}
		}
	}
}

// requests reports a pod that requests what policies allocate in a way that none of them reads.
func (c *checker) requests() {
	for i := 0; c.Config != nil && c.listed("pods") && i < len(c.Cluster.Pods); i++ {
		p := &c.Cluster.Pods[i]
		if text := c.Config.UnreadRequest(p); text != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			c.elsewhere(Error, "RequestNotRead", c.ConfigFile, "", fmt.Sprintf("pod %s/%s %s", p.Namespace, p.Name, text),
				"no profile allocates anything to it", "correct nodeAgent, or what pods request: docs/node-agents.md")
			return
		}
	}
}

// admission checks that the ValidatingAdmissionPolicies that policies require are bound.
func (c *checker) admission() {
	if c.Config == nil {
		return
	}
	for i := range c.Config.Profiles {
		for j := range c.Config.Profiles[i].Policies {
			p := &c.Config.Profiles[i].Policies[j]
			name := p.Inputs().AdmissionPolicy
			bound := func(b admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == name }
			if name == "" || !c.listed("validatingadmissionpolicybindings") || slices.ContainsFunc(c.Cluster.AdmissionBindings, bound) {
				continue
			}
			c.elsewhere(Warning, "NoAdmissionPolicy", c.ConfigFile, fmt.Sprintf("profiles[%d].policies[%d]", i, j), "no ValidatingAdmissionPolicy "+name+" is in force",
				"whoever may create pods can take what "+p.Name+" allocates to other pods", "install the Helm chart with this configuration, or apply deploy/gpu-devices.yaml")
		}
	}
}

// reachable checks whether the scheduler can call the extender.
func (e *extenderAt) reachable(s scheduler) {
	u := e.url()
	host := u.Hostname()
	if clusterName(host) && s.pod.Spec.HostNetwork && s.pod.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		e.clusterDNS(Error, s.name()+" is on the network of its host")
	}
	env := map[string]string{}
	for _, v := range s.container.Env {
		env[strings.ToUpper(v.Name)] = v.Value
	}
	proxies := httpproxy.Config{HTTPProxy: env["HTTP_PROXY"], HTTPSProxy: env["HTTPS_PROXY"], NoProxy: env["NO_PROXY"]}
	if proxy, err := proxies.ProxyFunc()(u); err == nil && proxy != nil {
		e.report(Warning, "ProxyEnvironment", "urlPrefix", fmt.Sprintf("%s calls %s through the proxy %s", s.name(), host, proxy.Host), "the calls fail, or leave the cluster; kubeadm copies proxy variables from the shell in which it runs", "add "+host+" to NO_PROXY of kube-scheduler")
	}
}

// clusterDNS reports that kube-scheduler cannot find a Service by its name, and why.
func (e *extenderAt) clusterDNS(severity Severity, why string) {
	e.report(severity, "ClusterDNS", "urlPrefix", why+", and cannot resolve "+e.url().Hostname(), "every call fails", "write the ClusterIP of the Service, with the name in tlsConfig.serverName")
}

// hostNetwork checks names of Services for a kube-scheduler that is started as kubeadm does, of
// which no cluster is known.
func (e *extenderAt) hostNetwork() {
	if clusterName(e.url().Hostname()) && e.doc.config.ClientConnection.Kubeconfig == wiring.KubeadmKubeconfig {
		e.clusterDNS(Warning, "with the kubeconfig of kubeadm, kube-scheduler probably is a static pod on the network of its host")
	}
}

// service checks that the Service exists, has the port and has a ready endpoint.
func (e *extenderAt) service() {
	u := e.url()
	if !e.listed("services") || !e.listed("endpointslices") {
		return
	}
	s := e.Cluster.serviceOf(u)
	switch {
	case s == nil && clusterName(u.Hostname()):
		e.report(Error, "NoEndpoints", "urlPrefix", "there is no Service for "+u.Host, "every call fails", "apply the Service, or correct urlPrefix")
	case s == nil:
		e.omit("whether an extender listens at "+u.Host, "no Service has this address")
	case !hasPort(s, portOf(u)):
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, strconv.Itoa(int(p.Port)))
		}
		e.report(Error, "NoEndpoints", "urlPrefix", fmt.Sprintf("the Service %s/%s has no port %s: it has %s", s.Namespace, s.Name, portOf(u), strings.Join(ports, ", ")), "every call fails", "correct urlPrefix")
	case !e.Cluster.anyReady(s):
		e.report(Error, "NoEndpoints", "urlPrefix", fmt.Sprintf("the Service %s/%s has no ready endpoint", s.Namespace, s.Name), "every call fails", "check its pods: kubectl -n "+s.Namespace+" get pods")
	}
}

// anyReady reports whether the Service has a ready endpoint.
func (c *Cluster) anyReady(s *corev1.Service) bool {
	return slices.ContainsFunc(c.EndpointSlices, func(slice discoveryv1.EndpointSlice) bool {
		return slice.Namespace == s.Namespace && slice.Labels[discoveryv1.LabelServiceName] == s.Name && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
	})
}

// portOf returns the port of the URL, or that of its scheme.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" || u.Scheme != "https" {
		return cmp.Or(port, "80")
	}
	return "443"
}

// hasPort reports whether the Service has the port, itself or on nodes. A headless one has the
// ports of its pods, and one of type ExternalName those of another host.
func hasPort(s *corev1.Service, port string) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName || slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == port || p.NodePort != 0 && strconv.Itoa(int(p.NodePort)) == port
	})
}

// clusterName reports whether only the cluster's DNS knows the host.
func clusterName(host string) bool {
	return strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")
}

// serviceOf returns the Service of a URL with its name, ClusterIP or NodePort; nil if there is none.
func (c *Cluster) serviceOf(u *url.URL) *corev1.Service {
	host, port := u.Hostname(), u.Port()
	i := slices.IndexFunc(c.Services, func(s corev1.Service) bool {
		return strings.TrimSuffix(host, ".cluster.local") == s.Name+"."+s.Namespace+".svc" || host != "" && (slices.Contains(s.Spec.ClusterIPs, host) || s.Spec.ClusterIP == host) ||
			net.ParseIP(host) != nil && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 && strconv.Itoa(int(p.NodePort)) == port })
	})
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

// reported checks that a node reports a resource that kube-scheduler counts.
func (e *extenderAt) reported(at string, name corev1.ResourceName) {
	if !e.listed("nodes") || e.Cluster.reports(name) {
		return
	}
	message, fix := fmt.Sprintf("no node reports %s, and ignoredByScheduler is false", name), "install a device plugin or another program that reports it; or, if a policy of Outboard counts it, set ignoredByScheduler: true in both files"
	if i := slices.IndexFunc(e.Cluster.Nodes, func(n corev1.Node) bool { return n.Status.Capacity.Name(name, resource.DecimalSI).Sign() > 0 }); i >= 0 {
		message, fix = fmt.Sprintf("%s is in the capacity of node %s, and no node has more than 0 of it in allocatable", name, e.Cluster.Nodes[i].Name), "start the device plugin again: while it does not run, the kubelet sets allocatable to 0"
	}
	e.report(Error, "ResourceNotReported", at, message, "kube-scheduler rejects every node with \"Insufficient "+string(name)+"\"", fix)
}

// reports reports whether a node has more than 0 of a resource for pods.
func (c *Cluster) reports(name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.Nodes, func(n corev1.Node) bool { return n.Status.Allocatable.Name(name, resource.DecimalSI).Sign() > 0 })
}
