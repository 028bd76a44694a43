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
	// Deployments are required by Input.FromNamespace only.
	Deployments []appsv1.Deployment
	// Unlisted has the kinds of the above that could not be listed, such as "nodes", and why.
	Unlisted map[string]error
	// NoLedgers says that the API server does not serve the Ledger resource.
	NoLedgers bool
	// ConfigMap and Secret read an object that a container mounts. nil: none can be read.
	ConfigMap func(namespace, name string) (*corev1.ConfigMap, error)
	Secret    func(namespace, name string) (*corev1.Secret, error)
	// Configz returns the response to a request of /configz at a port of kube-scheduler's pod: what
	// it has loaded, as JSON. nil: it cannot be requested.
	Configz func(namespace, pod string, port int) ([]byte, error)
}

// podPort is the port of the pods that the manifests and the chart create. Their Service has the
// port of https.
const podPort = "8443"

// scheduler is a container that runs kube-scheduler.
type scheduler struct {
	pod       *corev1.Pod
	container *corev1.Container
}

func (s scheduler) name() string { return "pod " + s.pod.Namespace + "/" + s.pod.Name }

// flag returns the value of a flag, and whether it is set.
func (s scheduler) flag(name string) (string, bool) {
	args := append(slices.Clone(s.container.Command), s.container.Args...)
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value, true
		}
		if arg == "--"+name && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// minor returns the minor version in the tag of the image; 0 if it has none.
func (s scheduler) minor() int {
	image, _, _ := strings.Cut(s.container.Image, "@")
	minor, err := minorOf(image[strings.LastIndexByte(image, ':')+1:])
	if err != nil {
		return 0
	}
	return minor
}

// runs reports whether the container runs kube-scheduler.
func (s scheduler) runs() bool {
	image, _, _ := strings.Cut(path.Base(s.container.Image), ":")
	return image == "kube-scheduler" || slices.ContainsFunc(append(slices.Clone(s.container.Command), s.container.Args...), func(word string) bool {
		return path.Base(word) == "kube-scheduler"
	})
}

// reads reports whether the container may read the file: it mounts the object of that name, or a
// file with the same base name.
func (s scheduler) reads(file string) bool {
	name, ok := s.flag("config")
	if !ok {
		return false
	}
	if o, ok := mounted(s.pod.Namespace, &s.pod.Spec, s.container, name); ok && o.keyRef() == file {
		return true
	}
	return path.Base(name) == filepath.Base(file)
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

// schedulerVersion is the version of the oldest kube-scheduler that may read the file, or of the
// API server.
func (in *Input) schedulerVersion() string {
	oldest := 0
	for _, s := range in.schedulers() {
		if m := s.minor(); m > 0 && (oldest == 0 || m < oldest) {
			oldest = m
		}
	}
	if oldest == 0 {
		return in.Cluster.Version
	}
	return "1." + strconv.Itoa(oldest)
}

// cluster compares the file with the cluster.
func (c *checker) cluster() {
	schedulers := c.schedulers()
	for _, s := range schedulers {
		c.scheduler(s)
		c.running(s)
	}
	if c.listed("pods") && len(schedulers) == 0 {
		c.omit("the running kube-scheduler", "no pod of the cluster runs it with this file")
	}
	c.missingSecrets()
	c.ledgers()
	c.devices()
	c.unmatched()
	for _, e := range c.extenders() {
		e.service()
		for j, r := range e.extender.ManagedResources {
			e.resource(fmt.Sprintf("managedResources[%d]", j), corev1.ResourceName(r.Name), r.IgnoredByScheduler)
		}
	}
}

// ledgers checks that Outboard can store the allocations of policies that allocate resources.
func (c *checker) ledgers() {
	if c.Config == nil || !c.Cluster.NoLedgers {
		return
	}
	for i := range c.Config.Profiles {
		p := &c.Config.Profiles[i]
		if name := p.Allocator(); name != "" {
			c.elsewhere(Error, "LedgersNotServed", c.ConfigFile, fmt.Sprintf("profiles[%d]", i), "the API server does not serve ledgers, in which "+name+" allocates resources",
				"Outboard binds no pod that gets resources from it", "kubectl apply --server-side --force-conflicts -f deploy/chart/crds/ledgers.yaml")
			return
		}
	}
}

func (c *checker) scheduler(s scheduler) {
	if _, ok := s.flag("config"); !ok {
		c.elsewhere(Warning, "SchedulerWithoutConfig", s.name(), "", "kube-scheduler has no flag --config", "it does not read the file, and calls no extender", "start it with --config; outboard setup scheduler --for kubeadm writes the patches for a static pod")
	}
	for _, old := range []string{"policy-config-file", "policy-configmap"} {
		if _, ok := s.flag(old); ok {
			c.elsewhere(Error, "PolicyFlag", s.name(), "", "kube-scheduler has the flag --"+old, "kube-scheduler 1.23 and later does not know it, and does not start", "convert the Policy with outboard setup scheduler --from, and set --config")
		}
	}
	server, err := minorOf(c.Cluster.Version)
	if m := s.minor(); err == nil && server > 0 && m > 0 && (m > server || m < server-1) {
		c.elsewhere(Warning, "VersionSkew", s.name(), "", fmt.Sprintf("kube-scheduler is 1.%d, and the API server 1.%d", m, server), "kube-scheduler may be one minor version older than the API server, and not newer", "use the image of the cluster's version")
	}
	for _, e := range c.extenders() {
		e.reachable(s)
	}
}

// reachable checks whether the scheduler can call the extender.
func (e *extenderAt) reachable(s scheduler) {
	u := e.url()
	host := u.Hostname()
	if _, named := e.Cluster.serviceOf(u); named && net.ParseIP(host) == nil && s.pod.Spec.HostNetwork && s.pod.Spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
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

// service checks that the Service exists, has the port and has a ready endpoint.
func (e *extenderAt) service() {
	u, err := url.Parse(e.extender.URLPrefix)
	if err != nil || !e.listed("services") || !e.listed("endpointslices") {
		return
	}
	s, named := e.Cluster.serviceOf(u)
	if s == nil {
		if named {
			e.report(Error, "NoEndpoints", "urlPrefix", "there is no Service for "+u.Host, "every call fails", "apply the Service, or correct urlPrefix")
		} else {
			e.omit("whether an extender listens at "+u.Host, "doctor calls no extender")
		}
		return
	}
	e.servicePort(s)
	ready := 0
	for _, slice := range e.Cluster.EndpointSlices {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	if ready == 0 {
		e.report(Error, "NoEndpoints", "urlPrefix", fmt.Sprintf("the Service %s/%s has no ready endpoint", s.Namespace, s.Name), "every call fails", "check its pods: kubectl -n "+s.Namespace+" get pods")
	}
}

// manifestService checks that the Service has the port, if it is in the manifests. A Service that
// is not there probably is Outboard's own, if it has that name.
func (e *extenderAt) manifestService() {
	u := e.url()
	if clusterName(u.Hostname()) && e.doc.config.ClientConnection.Kubeconfig == wiring.KubeadmKubeconfig {
		e.clusterDNS(Warning, "with the kubeconfig of kubeadm, kube-scheduler probably is a static pod on the network of its host")
	}
	if e.manifests != nil {
		if s, _ := e.manifests.serviceOf(u); s != nil {
			e.servicePort(s)
			return
		}
	}
	if host := u.Hostname(); u.Scheme == "https" && u.Port() == podPort && strings.HasPrefix(host, "outboard.") && clusterName(host) {
		e.report(Warning, "WrongPort", "urlPrefix", "the port is "+podPort+", at which the pods of Outboard listen, and the Service "+host+" of the manifests and of the chart has 443",
			"every call fails, unless this Service has another port", "write https://"+host+u.Path)
	}
}

// servicePort checks that the Service has the port of urlPrefix.
func (e *extenderAt) servicePort(s *corev1.Service) {
	port := portOf(e.url())
	if hasPort(s, port) {
		return
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, strconv.Itoa(int(p.Port)))
	}
	e.report(Error, "NoEndpoints", "urlPrefix", fmt.Sprintf("the Service %s/%s has no port %s: it has %s", s.Namespace, s.Name, port, strings.Join(ports, ", ")), "every call fails", "correct urlPrefix")
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

// serviceName returns the name and the namespace of the Service that has the host name, "" if it is
// any; named is false if other hosts can have the name.
func (c *Cluster) serviceName(host string) (name, namespace string, named bool) {
	labels := append(strings.Split(strings.TrimSuffix(host, ".cluster.local"), "."), "")
	name, namespace = labels[0], labels[1]
	switch len(labels) - 1 {
	case 1:
		named = host != "" && net.ParseIP(host) == nil && host != "localhost" && !slices.ContainsFunc(c.Nodes, func(n corev1.Node) bool { return n.Name == host })
	case 2:
		named = slices.ContainsFunc(c.Services, func(s corev1.Service) bool { return s.Namespace == namespace }) ||
			slices.ContainsFunc(c.Pods, func(p corev1.Pod) bool { return p.Namespace == namespace })
	case 3:
		named = labels[2] == "svc"
	}
	return name, namespace, named
}

// serviceOf returns the Service of a URL, if any; named reports whether the URL can only be that of
// a Service.
func (c *Cluster) serviceOf(u *url.URL) (service *corev1.Service, named bool) {
	host, port := u.Hostname(), u.Port()
	name, namespace, named := c.serviceName(host)
	for i := range c.Services {
		s := &c.Services[i]
		switch {
		case named && s.Name == name && (s.Namespace == namespace || namespace == ""),
			slices.Contains(s.Spec.ClusterIPs, host) || s.Spec.ClusterIP == host && host != "":
			return s, true
		case net.ParseIP(host) != nil && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 && strconv.Itoa(int(p.NodePort)) == port }):
			return s, false
		}
	}
	return nil, named
}

// resource checks that nodes report a managed resource or Outboard counts it, and that
// kube-scheduler calls for all pods that request it.
func (e *extenderAt) resource(at string, name corev1.ResourceName, ignored bool) {
	if !ignored && e.listed("nodes") && !e.Cluster.reports(name) {
		message, fix := fmt.Sprintf("no node reports %s, and ignoredByScheduler is false", name), "install a device plugin or another program that reports it; or, if a policy of Outboard counts it, set ignoredByScheduler: true in both files"
		if i := slices.IndexFunc(e.Cluster.Nodes, func(n corev1.Node) bool { return n.Status.Capacity.Name(name, resource.DecimalSI).Sign() > 0 }); i >= 0 {
			message, fix = fmt.Sprintf("%s is in the capacity of node %s, and no node has more than 0 of it in allocatable", name, e.Cluster.Nodes[i].Name), "start the device plugin again: while it does not run, the kubelet sets allocatable to 0"
		}
		e.report(Error, "ResourceNotReported", at, message, "kube-scheduler rejects every node with \"Insufficient "+string(name)+"\"", fix)
	}
	pods, first := 0, ""
	for i := range e.Cluster.Pods {
		if p := &e.Cluster.Pods[i]; podLevelOnly(&p.Spec, name) {
			if pods++; pods == 1 {
				first = p.Namespace + "/" + p.Name
			}
		}
	}
	if pods > 0 {
		who := "pod " + first + " requests"
		if pods > 1 {
			who = fmt.Sprintf("%d pods, such as %s, request", pods, first)
		}
		e.report(Warning, "PodLevelResources", at, fmt.Sprintf("%s %s for the pod or an ephemeral container, and for no other container", who, name), "kube-scheduler does not call extenders for them", "request the resource in a container")
	}
}

// reports reports whether a node has more than 0 of a resource for pods.
func (c *Cluster) reports(name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.Nodes, func(n corev1.Node) bool { return n.Status.Allocatable.Name(name, resource.DecimalSI).Sign() > 0 })
}

// podLevelOnly reports whether a pod names the resource only in fields that kube-scheduler ignores
// when it decides whether to call an extender.
func podLevelOnly(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	names := func(r *corev1.ResourceRequirements) bool {
		if r == nil {
			return false
		}
		_, requested := r.Requests[name]
		_, limited := r.Limits[name]
		return requested || limited
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if names(&containers[i].Resources) {
				return false
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if names(&spec.EphemeralContainers[i].Resources) {
			return true
		}
	}
	return names(spec.Resources)
}
