package deploy

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/config"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// find decodes the object of that kind and name from the manifests, which are the output of the
// chart.
func find[T any](t *testing.T, file, kind, name string) *T {
	t.Helper()
	for doc := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
		var is metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &is); err != nil {
			t.Fatal(err)
		}
		if is.Kind == kind && is.Name == name {
			object := new(T)
			if err := yaml.UnmarshalStrict(doc, object); err != nil {
				t.Fatal(err)
			}
			return object
		}
	}
	t.Fatalf("%s has no %s %s", file, kind, name)
	return nil
}

// Manifests that define the same object define it in the same way, so that they can be applied in any order.
func TestManifestsAgree(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defined, objects := map[string]string{}, map[string]any{} // by kind, namespace and name
	for _, file := range append(files, "chart/crds/ledgers.yaml") {
		for doc := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
			var is metav1.PartialObjectMetadata
			var object any
			if err := errors.Join(yaml.Unmarshal(doc, &is), yaml.Unmarshal(doc, &object)); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if is.Kind == "Kustomization" {
				continue
			}
			key := is.Kind + " " + is.Namespace + "/" + is.Name
			if other, ok := objects[key]; ok && !reflect.DeepEqual(other, object) {
				t.Errorf("%s and %s define %s differently", defined[key], file, key)
			}
			defined[key], objects[key] = file, object
		}
	}
	if len(objects) < 40 {
		t.Errorf("there are %d objects only", len(objects))
	}
}

// Outboard accepts the certificate that cert-manager issues for kube-scheduler, and no other of this CA.
func TestAllowedClients(t *testing.T) {
	certificate := find[struct {
		metav1.PartialObjectMetadata
		Spec map[string]any
	}](t, "certmanager.yaml", "Certificate", "outboard-client")
	if got := configuration(t).Serving.TLS.AllowedClients; len(got) != 1 || got[0] != certificate.Spec["commonName"] {
		t.Errorf("Outboard allows %v, and the certificate is for %v", got, certificate.Spec["commonName"])
	}
}

// deployments are the Deployments of the manifests by name, with their files.
var deployments = map[string]string{"outboard": "outboard.yaml", "outboard-scheduler": "scheduler.yaml"}

// configuration is that of Outboard in its ConfigMap.
func configuration(t *testing.T) *config.Config {
	t.Helper()
	text := find[corev1.ConfigMap](t, "outboard.yaml", "ConfigMap", "outboard").Data["outboard.yaml"]
	c, err := config.Parse("outboard.yaml", []byte(text), config.Types{Policies: policies.Types(), Signals: signals.Types()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A replica that stops serves until the kubelet's probes have failed, and the kubelet does not kill
// it before it has finished. A rolling update begins with a new replica.
func TestStoppedReplicasServe(t *testing.T) {
	d := find[appsv1.Deployment](t, "outboard.yaml", "Deployment", "outboard")
	serving, pod := configuration(t).Serving, d.Spec.Template.Spec
	if grace, needed := *pod.TerminationGracePeriodSeconds, (serving.ShutdownDelay + 20*time.Second).Seconds(); float64(grace) <= needed {
		t.Errorf("the kubelet waits %d s, and Outboard needs up to %v s to stop", grace, needed)
	}
	probe := pod.Containers[0].ReadinessProbe
	failures := probe.FailureThreshold
	if failures == 0 {
		failures = 3 // the API server's default
	}
	if noticed := float64(failures * probe.PeriodSeconds); noticed >= serving.ShutdownDelay.Seconds() {
		t.Errorf("the kubelet notices within %v s that a replica is not ready, and it serves for %v", noticed, serving.ShutdownDelay)
	}
	if rolling := d.Spec.Strategy.RollingUpdate; *rolling.MaxUnavailable != intstr.FromInt32(0) || *rolling.MaxSurge != intstr.FromInt32(1) {
		t.Errorf("a rolling update stops %v replicas and starts %v first", rolling.MaxUnavailable, rolling.MaxSurge)
	}
}

// A drain of nodes evicts one replica at a time, and never has to wait, not even for the only replica. Replicas are on different nodes if
// possible.
func TestReplicasAreIndependent(t *testing.T) {
	for name, file := range deployments {
		d := find[appsv1.Deployment](t, file, "Deployment", name)
		budget := find[policyv1.PodDisruptionBudget](t, file, "PodDisruptionBudget", name)
		own := labels.Set(d.Spec.Template.Labels)
		if most := budget.Spec.MaxUnavailable; *d.Spec.Replicas < 2 || budget.Spec.MinAvailable != nil || most == nil || *most != intstr.FromInt32(1) {
			t.Errorf("%s: %d replicas, and the budget %+v", name, *d.Spec.Replicas, budget.Spec)
		}
		selectors := []*metav1.LabelSelector{d.Spec.Selector, budget.Spec.Selector}
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selectors = append(selectors, c.LabelSelector)
			if c.WhenUnsatisfiable != corev1.ScheduleAnyway {
				t.Errorf("%s: on a cluster with one node, the second replica is %s", name, c.WhenUnsatisfiable)
			}
		}
		if len(selectors) < 3 {
			t.Errorf("%s: the replicas are not spread", name)
		}
		for i, s := range selectors {
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil || !selector.Matches(own) || selector.Empty() {
				t.Errorf("%s: selector %d is %v, and the labels %v (%v)", name, i, s, own, err)
			}
			for other, otherFile := range deployments {
				if other != name && selector.Matches(labels.Set(find[appsv1.Deployment](t, otherFile, "Deployment", other).Spec.Template.Labels)) {
					t.Errorf("selector %d of %s also selects %s", i, name, other)
				}
			}
		}
	}
}

// Each container meets the restricted Pod Security Standard, has no capabilities, and cannot write
// to its image. What it logs before it fails is the message of its status. A node that has the image need not pull it.
func TestContainersAreRestricted(t *testing.T) {
	specs := map[string]corev1.PodSpec{
		"outboard-gpushare": find[appsv1.DaemonSet](t, "gpushare-extender.yaml", "DaemonSet", "outboard-gpushare").Spec.Template.Spec,
	}
	for name, file := range deployments {
		specs[name] = find[appsv1.Deployment](t, file, "Deployment", name).Spec.Template.Spec
		if specs[name].HostNetwork {
			t.Errorf("%s: the pod is in the network of the host", name)
		}
	}
	for name, spec := range specs {
		s := spec.SecurityContext
		if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.RunAsGroup == nil || *s.RunAsGroup == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod has the security context %+v", name, s)
		}
		if spec.PriorityClassName != "system-cluster-critical" || spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("%s: priority class %q, scheduler %q", name, spec.PriorityClassName, spec.SchedulerName)
		}
		for _, c := range spec.Containers {
			s := c.SecurityContext
			if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s: container %s has the security context %+v", name, c.Name, s)
			}
			if c.ImagePullPolicy == corev1.PullAlways || c.ImagePullPolicy == "" && strings.HasSuffix(c.Image, ":latest") {
				t.Errorf("%s: image %s of container %s is pulled %s", name, c.Image, c.Name, c.ImagePullPolicy)
			}
			if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
				t.Errorf("%s: kubectl describe pod does not show why container %s ended", name, c.Name)
			}
			if c.ReadinessProbe == nil || c.LivenessProbe == nil || c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: container %s has no probes or requests", name, c.Name)
			}
		}
	}
}

// Services, the NetworkPolicy and the ServiceMonitor name ports that exist. Other pods reach metrics
// and health on the admin address, and not explain and pprof.
func TestPortsAndSelectors(t *testing.T) {
	pod := find[appsv1.Deployment](t, "outboard.yaml", "Deployment", "outboard").Spec.Template
	ports := map[string]bool{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	service := find[corev1.Service](t, "outboard.yaml", "Service", "outboard")
	serves := map[string]bool{}
	for _, s := range []*corev1.Service{service, find[corev1.Service](t, "nodeport.yaml", "Service", "outboard-nodeport")} {
		if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("the Service %s selects %v", s.Name, s.Spec.Selector)
		}
		for _, p := range s.Spec.Ports {
			serves[p.Name] = true
			if !ports[p.TargetPort.String()] {
				t.Errorf("the Service %s names the port %s", s.Name, p.TargetPort.String())
			}
		}
	}
	monitor := find[struct {
		metav1.TypeMeta
		Metadata struct{ Name, Namespace string }
		Spec     struct {
			Selector  metav1.LabelSelector
			Endpoints []struct{ Port string }
		}
	}](t, "monitoring.yaml", "ServiceMonitor", "outboard")
	if s := monitor.Spec; len(s.Endpoints) != 1 || !serves[s.Endpoints[0].Port] || !maps.Equal(s.Selector.MatchLabels, service.Labels) {
		t.Errorf("the ServiceMonitor is for %+v", s)
	}
	network := find[networkingv1.NetworkPolicy](t, "networkpolicy.yaml", "NetworkPolicy", "outboard")
	open := map[string]int{} // ports, with the number of restrictions
	for _, rule := range network.Spec.Ingress {
		for _, p := range rule.Ports {
			open[p.Port.String()] = len(rule.From)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&network.Spec.PodSelector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) || len(open) != 2 || open["https"] != 0 || open["metrics"] == 0 {
		t.Errorf("the NetworkPolicy opens %v of %v (%v)", open, network.Spec.PodSelector, err)
	}
	if admin := configuration(t).Admin; admin.Expose != config.ExposeMetrics {
		t.Errorf("the admin address is %+v", admin)
	}
}
