package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// object is the part of an object that the tests read.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Rules    []any
	Spec     struct {
		Template struct {
			Spec struct {
				SchedulerName, PriorityClassName string
				SecurityContext                  map[string]any
				Containers                       []struct {
					Image           string
					SecurityContext map[string]any
				}
			}
		}
		Groups []any
	}
}

// objects renders the chart, and returns its objects by kind and name.
func objects(t *testing.T, set, namespace, version string) map[string]object {
	t.Helper()
	files, err := render("../chart", set, namespace, version)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			key := o.Kind + " " + o.Metadata.Name
			if _, twice := all[key]; twice || o.Kind == "" || o.Metadata.Name == "" {
				t.Errorf("%s: %q is a duplicate, or is not an object:\n%s", name, key, doc)
			}
			all[key] = o
		}
	}
	return all
}

// The files in deploy/ are the output of the chart.
func TestManifestsAreCurrent(t *testing.T) {
	files, err := manifests("../chart", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if data, err := os.ReadFile(filepath.Join("..", name)); err != nil || string(data) != text {
			t.Errorf("deploy/%s differs from the output of the chart (%v): make manifests", name, err)
		}
	}
	paths, err := filepath.Glob("../*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, generated := files[filepath.Base(path)]; !generated && strings.HasPrefix(string(data), header) {
			t.Errorf("%s claims to be generated, and is not", path)
		}
	}
}

func TestValues(t *testing.T) {
	for _, tt := range []struct {
		name, set    string
		want, absent []string // objects
	}{
		{"defaults", "", []string{"Deployment outboard", "Deployment outboard-scheduler", "NetworkPolicy outboard", "PodDisruptionBudget outboard", "ResourceQuota outboard-critical-pods"},
			[]string{"Service outboard-nodeport", "Certificate outboard-server", "MutatingAdmissionPolicy outboard-scheduler-name", "ServiceMonitor outboard", "PrometheusRule outboard", "ConfigMap outboard-dashboard", "ClusterRole outboard-metrics"}},
		{"everything", everything, []string{"Service outboard-nodeport", "Certificate outboard-server", "Certificate outboard-client", "MutatingAdmissionPolicy outboard-scheduler-name", "ServiceMonitor outboard", "PrometheusRule outboard", "ConfigMap outboard-dashboard"}, nil},
		{"utilization", "preset=utilization", []string{"ClusterRole outboard-metrics", "ClusterRoleBinding outboard-metrics"}, nil},
		{"the cluster's own scheduler", "scheduler.enabled=false", []string{"Deployment outboard"}, []string{"Deployment outboard-scheduler", "ServiceAccount outboard-scheduler"}},
		{"no network policy", "networkPolicy.enabled=false", nil, []string{"NetworkPolicy outboard"}},
		{"another priority class", "priorityClassName=important", nil, []string{"ResourceQuota outboard-critical-pods"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := objects(t, tt.set, "outboard-system", "v1.37.0")
			for _, key := range tt.want {
				if _, ok := all[key]; !ok {
					t.Errorf("there is no %s", key)
				}
			}
			for _, key := range tt.absent {
				if _, ok := all[key]; ok {
					t.Errorf("there is a %s", key)
				}
			}
		})
	}
}

// With the preset utilization, the chart grants what metrics.yaml grants, and no preset grants anything else that the tests of
// permissions do not know.
func TestRoles(t *testing.T) {
	var metrics object
	data, err := os.ReadFile("../metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(strings.Split(string(data), "\n---\n")[0]), &metrics); err != nil {
		t.Fatal(err)
	}
	want := objects(t, everything, "outboard-system", "v1.37.0") // the manifests, which the tests read
	want["ClusterRole outboard-metrics"] = metrics
	for _, preset := range []string{"placement", "gpu-sharing", "licenses", "utilization"} {
		for key, o := range objects(t, "preset="+preset, "outboard-system", "v1.37.0") {
			if strings.Contains(key, "Role ") && !reflect.DeepEqual(o.Rules, want[key].Rules) {
				t.Errorf("%s: %s grants %v, want %v", preset, key, o.Rules, want[key].Rules)
			}
		}
	}
	if len(metrics.Rules) == 0 {
		t.Error("metrics.yaml grants nothing")
	}
}

// The tag of kube-scheduler's image is the cluster's version, without the suffix of a provider.
func TestSchedulerHasTheVersionOfTheCluster(t *testing.T) {
	for version, want := range map[string]string{
		"v1.37.0":             "registry.k8s.io/kube-scheduler:v1.37.0",
		"v1.33.5-eks-3cfe0ce": "registry.k8s.io/kube-scheduler:v1.33.5",
		"v1.34.1-gke.1829001": "registry.k8s.io/kube-scheduler:v1.34.1",
		"v1.32.4+k3s1":        "registry.k8s.io/kube-scheduler:v1.32.4",
	} {
		all := objects(t, "", "outboard-system", version)
		if got := all["Deployment outboard-scheduler"].Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("on %s, the image is %s, want %s", version, got, want)
		}
	}
}

// In another namespace, no file has the name of the default one.
func TestNamespace(t *testing.T) {
	files, err := render("../chart", everything, "elsewhere", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.Contains(text, "outboard-system") {
			t.Errorf("%s contains outboard-system:\n%s", name, text)
		}
	}
}

// No pod of the chart depends on Outboard to be scheduled, and each meets the restricted Pod
// Security Standard.
func TestPods(t *testing.T) {
	for key, o := range objects(t, "", "outboard-system", "v1.37.0") {
		if o.Kind != "Deployment" {
			continue
		}
		spec := o.Spec.Template.Spec
		if spec.SchedulerName != "default-scheduler" || spec.PriorityClassName != "system-cluster-critical" {
			t.Errorf("%s has the scheduler %q and the priority class %q", key, spec.SchedulerName, spec.PriorityClassName)
		}
		container := spec.Containers[0].SecurityContext
		if spec.SecurityContext["runAsNonRoot"] != true || container["readOnlyRootFilesystem"] != true || container["allowPrivilegeEscalation"] != false {
			t.Errorf("%s has the security contexts %v and %v", key, spec.SecurityContext, container)
		}
	}
}

func TestOwnPolicies(t *testing.T) {
	const policies = "config=profiles: [{policies: [{type: ImageLocality}]}]"
	if _, err := render("../chart", policies, "outboard-system", "v1.37.0"); err == nil || !strings.Contains(err.Error(), "outboard scheduler-config --for service") {
		t.Errorf("without scheduler.config: %v", err)
	}
	all := objects(t, policies+",scheduler.config=kind: KubeSchedulerConfiguration", "outboard-system", "v1.37.0")
	if got := strings.TrimSpace(all["ConfigMap outboard"].Data["outboard.yaml"]); !strings.HasSuffix(got, "ImageLocality}]}]") || !strings.HasPrefix(got, "apiVersion: outboard.dev/v1alpha1\n") {
		t.Errorf("the configuration is\n%s", got)
	}
	if got := strings.TrimSpace(all["ConfigMap outboard-scheduler"].Data["scheduler.yaml"]); got != "kind: KubeSchedulerConfiguration" {
		t.Errorf("the configuration of kube-scheduler is\n%s", got)
	}
}

func TestInvalidValues(t *testing.T) {
	for set, want := range map[string]string{
		"preset=gpus":                       "preset",
		"replica=3":                         "replica",
		"certificates.source=Generated":     "certificates",
		"scheduler.image.version=v1.30.0":   "version",
		"replicas=0":                        "replicas",
		"setSchedulerName.resources[0]=a'b": "resources",
	} {
		if _, err := render("../chart", set, "outboard-system", "v1.37.0"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one about %s", set, err, want)
		}
	}
}

func TestSchedulerNameNeedsItsAPI(t *testing.T) {
	const want = "setSchedulerName.enabled needs Kubernetes 1.36 or later"
	if _, err := render("../chart", "setSchedulerName.enabled=true", "outboard-system", "v1.35.4"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if _, err := render("../chart", "setSchedulerName.enabled=true", "outboard-system", "v1.36.0-gke.100"); err != nil {
		t.Error(err)
	}
}

func TestNotes(t *testing.T) {
	files, err := render("../chart", "", "elsewhere", "v1.33.5-eks-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outboard certs --dir tls --namespace elsewhere --secrets | kubectl apply -f -", "outboard doctor", "v1.33.5."} {
		if !strings.Contains(files["NOTES.txt"], want) {
			t.Errorf("the notes do not have %q:\n%s", want, files["NOTES.txt"])
		}
	}
}

// The kustomization lists every manifest that the tutorial needs, and every file exists.
func TestKustomization(t *testing.T) {
	data, err := os.ReadFile("../kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(data, &k); err != nil {
		t.Fatal(err)
	}
	for _, file := range k.Resources {
		if _, err := os.Stat(filepath.Join("..", file)); err != nil {
			t.Error(err)
		}
	}
	for _, file := range []string{"namespace.yaml", "chart/crds/ledgers.yaml", "outboard.yaml", "scheduler.yaml"} {
		if !slices.Contains(k.Resources, file) {
			t.Errorf("it does not have %s", file)
		}
	}
}
