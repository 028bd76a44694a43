package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// object is the part of an object that the tests read.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace     string
		Annotations, Labels map[string]string
	}
	Data  map[string]string
	Rules []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
	Spec  struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
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

// parse returns values as in helm template --set.
func parse(t *testing.T, set string) map[string]any {
	t.Helper()
	values, err := strvals.Parse(set)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// objects renders the chart, and returns its objects by kind and name.
func objects(t *testing.T, set, namespace, version string) map[string]object {
	t.Helper()
	return objectsOf(t, parse(t, set), namespace, version)
}

func objectsOf(t *testing.T, values map[string]any, namespace, version string) map[string]object {
	t.Helper()
	files, err := render("../../deploy/chart", values, namespace, version)
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
			if strings.HasSuffix(o.Kind, "Role") || strings.HasSuffix(o.Kind, "RoleBinding") {
				if o.Metadata.Namespace != "" && o.Metadata.Namespace != namespace {
					key += " in " + o.Metadata.Namespace
				}
			}
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
	files, err := manifests("../../deploy/chart", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if data, err := os.ReadFile(filepath.Join("../../deploy", name)); err != nil || string(data) != text {
			t.Errorf("deploy/%s differs from the output of the chart (%v): make generate", name, err)
		}
	}
	for _, pattern := range []string{"../../deploy/*.yaml", "../../deploy/presets/*/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, generated := files[strings.TrimPrefix(path, "../../deploy/")]; !generated && strings.HasPrefix(string(data), header) {
				t.Errorf("%s claims to be generated, and is not", path)
			}
		}
	}
}

func TestValues(t *testing.T) {
	for _, tt := range []struct {
		name, set    string
		want, absent []string // objects
	}{
		{"defaults", "", []string{"Secret outboard-ca", "CronJob outboard-certificates", "Deployment outboard", "Deployment outboard-scheduler", "NetworkPolicy outboard", "PodDisruptionBudget outboard", "ResourceQuota outboard-critical-pods"},
			[]string{"Service outboard-nodeport", "Certificate outboard-server", "MutatingAdmissionPolicy outboard-scheduler-name", "ValidatingAdmissionPolicy outboard-gpu-devices", "ServiceMonitor outboard", "PrometheusRule outboard", "ConfigMap outboard-dashboard", "ClusterRole outboard-metrics"}},
		{"certificates of the user", "certificates.source=Secrets", nil, []string{"Secret outboard-server", "CronJob outboard-certificates", "Role outboard-certificates", "Certificate outboard-server"}},
		{"everything", everything, []string{"Service outboard-nodeport", "Certificate outboard-server", "Certificate outboard-client", "MutatingAdmissionPolicy outboard-scheduler-name", "ServiceMonitor outboard", "PrometheusRule outboard", "ConfigMap outboard-dashboard"}, []string{"Secret outboard-server", "CronJob outboard-certificates"}},
		{"NVIDIA's agents", "preset=gpu-sharing", []string{"ValidatingAdmissionPolicy outboard-gpu-devices"}, nil},
		{"gpushare", "preset=gpushare", nil, []string{"ValidatingAdmissionPolicy outboard-gpu-devices"}},
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

// Outboard may do what its configuration needs, and nothing else: with a preset, and with a
// configuration of a user.
func TestPermissions(t *testing.T) {
	const (
		reads       = "list nodes, watch nodes, get pods, list pods, watch pods, list poddisruptionbudgets, watch poddisruptionbudgets"
		bind        = ", create pods/binding"
		touch       = ", patch pods/status"
		allocations = ", get ledgers, list ledgers, watch ledgers, create ledgers, update ledgers, delete ledgers"
		certs       = ", get secrets outboard-ca outboard-server outboard-client in outboard-system, update secrets outboard-ca outboard-server outboard-client in outboard-system"
		gpus        = ", list configmaps in kube-system, watch configmaps in kube-system"
		metrics     = ", list nodes of metrics.k8s.io"
		devices     = ", list resourceslices, watch resourceslices, list resourceclaims, watch resourceclaims, list deviceclasses, watch deviceclasses, list devicetaintrules, watch devicetaintrules"
	)
	own := func(config string) map[string]any {
		return map[string]any{"config": config, "scheduler": map[string]any{"enabled": false}, "certificates": map[string]any{"source": "Secrets"}}
	}
	for _, tt := range []struct {
		name   string
		values map[string]any
		want   string
	}{
		{"placement", parse(t, ""), reads + bind + touch + certs},
		{"gpu-sharing", parse(t, "preset=gpu-sharing,certificates.source=CertManager"), reads + bind + touch + allocations + gpus},
		{"gpushare", parse(t, "preset=gpushare,certificates.source=CertManager"), reads + bind + touch + allocations + gpus},
		{"licenses", parse(t, "preset=licenses"), reads + bind + touch + allocations + certs},
		{"utilization", parse(t, "preset=utilization"), reads + touch + metrics + certs},
		{"utilization with the cluster's kube-scheduler", parse(t, "preset=utilization,scheduler.enabled=false,certificates.source=Secrets"), reads + bind + touch + metrics},
		{"no requeuing", own("requeue: {perSecond: 0}\nprofiles: [{policies: [{type: ImageLocality}]}]"), reads + bind},
		{"no requeuing, with allocations", own("requeue: {perSecond: 0}\nprofiles: [{policies: [{type: Licenses, config: {features: [{name: a, seats: 1}]}}]}]"), reads + bind + touch + allocations},
		{"devices", own("profiles: [{policies: [{type: ResourceClaims}]}]"), reads + bind + touch + devices},
	} {
		var got []string
		all := objectsOf(t, tt.values, "outboard-system", "v1.37.0")
		for key, o := range all {
			if (o.Kind != "ClusterRole" && o.Kind != "Role") || strings.HasPrefix(o.Metadata.Name, "outboard-scheduler") {
				continue
			}
			if _, ok := all[strings.Replace(key, "Role ", "RoleBinding ", 1)]; !ok {
				t.Errorf("%s: nothing is bound to the %s", tt.name, key)
			}
			got = append(got, o.permissions()...)
		}
		want := strings.Split(tt.want, ", ")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the permissions are\n%q\nwant\n%q", tt.name, got, want)
		}
	}
}

// permissions are those of a role, such as "list configmaps in kube-system".
func (o *object) permissions() (all []string) {
	for _, rule := range o.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				p := strings.Join(append([]string{verb, resource}, rule.ResourceNames...), " ")
				if o.Metadata.Namespace != "" {
					p += " in " + o.Metadata.Namespace
				}
				if rule.APIGroups[0] == "metrics.k8s.io" {
					p += " of metrics.k8s.io"
				}
				all = append(all, p)
			}
		}
	}
	return all
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
	for _, preset := range []string{"placement", "gpu-sharing", "gpushare", "licenses", "utilization"} {
		files, err := render("../../deploy/chart", parse(t, everything+",preset="+preset), "elsewhere", "v1.37.0")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if strings.Contains(text, "outboard-system") {
				t.Errorf("%s: %s contains outboard-system:\n%s", preset, name, text)
			}
		}
		if !strings.Contains(files["scheduler.yaml"], "https://outboard.elsewhere.svc/"+preset+"\n") {
			t.Errorf("%s: kube-scheduler does not call the Service in the namespace:\n%s", preset, files["scheduler.yaml"])
		}
	}
}

// No pod of the chart depends on Outboard to be scheduled, and each meets the restricted Pod
// Security Standard.
func TestPods(t *testing.T) {
	for key, o := range objects(t, "", "outboard-system", "v1.37.0") {
		if o.Kind != "Deployment" && o.Kind != "Job" {
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

// A configuration that takes effect only at a start starts new pods, and any other does not.
func TestChangesThatStartNewPods(t *testing.T) {
	const own = "scheduler.config=kind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false},config=profiles: [{policies: [{type: ImageLocality}]}]"
	checksums := func(set string) (outboard, scheduler string) {
		all := objects(t, set, "outboard-system", "v1.37.0")
		of := func(name string) string {
			return all["Deployment "+name].Spec.Template.Metadata.Annotations["checksum/config"]
		}
		if outboard, scheduler = of("outboard"), of("outboard-scheduler"); outboard == "" || scheduler == "" {
			t.Errorf("%s: the checksums are %q and %q", set, outboard, scheduler)
		}
		return outboard, scheduler
	}
	type change struct {
		from, to            string
		outboard, scheduler bool
	}
	tests := []change{
		{own, strings.Replace(own, "[{policies: [{type: ImageLocality}]}]", "\n- path: /other\n  policies: [{type: ImageLocality}]", 1), false, false},
		{own, strings.Replace(own, "ImageLocality", "GPUMemory", 1), true, false},
		{own, own + "\nsignals: []", false, false},
		{own, own + "\nrequeue: {perSecond: 5}", true, false},
		{own, strings.Replace(own, "kind:", "parallelism: 4\nkind:", 1), false, true},
		{"", "replicas=3", false, false},
	}
	// What Outboard watches in addition, and would go on watching without the permission if it did
	// not start again.
	needs := map[string]string{"placement": "", "gpu-sharing": "allocations and ConfigMaps", "gpushare": "allocations and ConfigMaps", "licenses": "allocations", "utilization": ""}
	for from := range needs {
		for to := range needs {
			tests = append(tests, change{"preset=" + from, "preset=" + to, needs[from] != needs[to], from != to})
		}
	}
	for _, tt := range tests {
		outboard, scheduler := checksums(tt.from)
		newOutboard, newScheduler := checksums(tt.to)
		if (outboard != newOutboard) != tt.outboard || (scheduler != newScheduler) != tt.scheduler {
			t.Errorf("from %q to %q: new pods of Outboard: %t, of kube-scheduler: %t", tt.from, tt.to, outboard != newOutboard, scheduler != newScheduler)
		}
	}
}

// Only with the second kube-scheduler does a preset bind pods of that one alone: the cluster's own
// has another name.
func TestPresetsNameTheSchedulerThatTheChartInstalls(t *testing.T) {
	for _, preset := range []string{"placement", "gpu-sharing", "gpushare", "licenses", "utilization"} {
		for enabled, want := range map[string][]string{"true": {"outboard-scheduler"}, "false": nil} {
			var c struct {
				Profiles []struct {
					SchedulerNames []string
					Policies       []any
				}
			}
			all := objects(t, "preset="+preset+",scheduler.enabled="+enabled, "outboard-system", "v1.37.0")
			if err := yaml.UnmarshalStrict([]byte(all["ConfigMap outboard"].Data["outboard.yaml"]), &map[string]any{}); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(all["ConfigMap outboard"].Data["outboard.yaml"]), &c); err != nil {
				t.Fatal(err)
			}
			if len(c.Profiles) != 1 || len(c.Profiles[0].Policies) == 0 || !slices.Equal(c.Profiles[0].SchedulerNames, want) {
				t.Errorf("%s, scheduler.enabled=%s: %+v, want schedulerNames %v", preset, enabled, c.Profiles, want)
			}
		}
	}
}

// No preset serves what the kube-scheduler of another preset calls: until both have the new
// configuration, pods stay pending.
func TestPresetsHaveDifferentPaths(t *testing.T) {
	path := map[string]string{}
	for _, preset := range []string{"placement", "gpu-sharing", "gpushare", "licenses", "utilization"} {
		var c struct{ Profiles []struct{ Path string } }
		all := objects(t, "preset="+preset, "outboard-system", "v1.37.0")
		if err := yaml.Unmarshal([]byte(all["ConfigMap outboard"].Data["outboard.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		for _, profile := range c.Profiles {
			if other := path[profile.Path]; other != "" || !strings.Contains(all["ConfigMap outboard-scheduler"].Data["scheduler.yaml"], ".svc"+profile.Path+"\n") {
				t.Errorf("%s has the path %s, which is that of the preset %q, or not of its kube-scheduler", preset, profile.Path, other)
			}
			path[profile.Path] = preset
		}
	}
}

func TestInvalidValues(t *testing.T) {
	for set, want := range map[string]string{
		"preset=gpus":                                           "preset",
		"replica=3":                                             "replica",
		"certificates.source=Generated":                         "certificates",
		"scheduler.image.version=v1.30.0":                       "version",
		"replicas=-1":                                           "replicas",
		"image.pullPolicy=Sometimes":                            "/image/pullPolicy",
		"monitoring.enabled=true":                               "'enabled' not allowed",
		"setSchedulerName.resources[0]=a'b":                     "resources",
		"setSchedulerName.annotations[0]=a'b":                   "annotations",
		"service.nodePort=80":                                   "/service/nodePort",
		"service.nodePort=29999":                                "/service/nodePort",
		"service.nodePort=32768":                                "/service/nodePort",
		"monitoring.documentation=docs":                         "documentation",
		"networkPolicy.metricsFrom=null":                        "metricsFrom",
		"simulatedGPUs.count=1":                                 "simulatedGPUs needs preset=gpu-sharing and scheduler.enabled",
		"preset=gpushare,simulatedGPUs.count=1":                 "simulatedGPUs needs preset=gpu-sharing and scheduler.enabled",
		"preset=gpu-sharing,simulatedGPUs.count=65":             "/simulatedGPUs/count",
		"networkPolicy.metricsFrom={}":                          "metricsFrom",
		"scheduler.enabled=false,setSchedulerName.enabled=true": "setSchedulerName.enabled needs scheduler.enabled",
	} {
		if _, err := render("../../deploy/chart", parse(t, set), "outboard-system", "v1.37.0"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one about %s", set, err, want)
		}
	}
	for _, set := range []string{"service.nodePort=30000", "service.nodePort=32767", "scheduler.enabled=false,config=profiles: [{policies: [{type: ImageLocality}]}]"} {
		if _, err := render("../../deploy/chart", parse(t, set), "outboard-system", "v1.37.0"); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}

func TestSchedulerNameNeedsItsAPI(t *testing.T) {
	const want = "setSchedulerName.enabled needs Kubernetes 1.36 or later"
	if _, err := render("../../deploy/chart", parse(t, "setSchedulerName.enabled=true"), "outboard-system", "v1.35.4"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if _, err := render("../../deploy/chart", parse(t, "setSchedulerName.enabled=true"), "outboard-system", "v1.36.0-gke.100"); err != nil {
		t.Error(err)
	}
}

func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		set    string
		want   []string
		absent string
	}{
		{set: "certificates.source=Secrets", want: []string{"outboard setup certs --dir tls --outboard-namespace elsewhere --secrets | kubectl apply -f -"}},
		{set: "", absent: "setup certs", want: []string{"outboard check --outboard-namespace elsewhere\n", "v1.33.5.", "No registry has the image outboard:dev:"}},
		{set: "scheduler.enabled=false", want: []string{"outboard check --scheduler scheduler.yaml --outboard-namespace elsewhere\n"}},
		{set: "image.repository=registry.example/outboard", absent: "No registry"},
	} {
		files, err := render("../../deploy/chart", parse(t, tt.set), "elsewhere", "v1.33.5-eks-1")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(files["NOTES.txt"], want) {
				t.Errorf("%s: the notes do not have %q:\n%s", tt.set, want, files["NOTES.txt"])
			}
		}
		if tt.absent != "" && strings.Contains(files["NOTES.txt"], tt.absent) {
			t.Errorf("%s: the notes have %q:\n%s", tt.set, tt.absent, files["NOTES.txt"])
		}
	}
}

func TestServiceAccountAnnotations(t *testing.T) {
	all := objects(t, "serviceAccount.annotations.role=a,scheduler.serviceAccount.annotations.role=b", "outboard-system", "v1.37.0")
	for name, want := range map[string]string{"outboard": "a", "outboard-scheduler": "b"} {
		if got := all["ServiceAccount "+name].Metadata.Annotations; !maps.Equal(got, map[string]string{"role": want}) {
			t.Errorf("%s has the annotations %v, want the role %s", name, got, want)
		}
	}
}

// kubectl apply -k creates the objects that the chart creates with the same values, and so deletes
// the same.
func TestKustomization(t *testing.T) {
	var k struct{ Resources []string }
	read := func(file string, into any) []string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("../../deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		docs := strings.Split(string(data), "\n---\n")
		if into != nil {
			if err := yaml.Unmarshal(data, into); err != nil {
				t.Fatal(err)
			}
		}
		return docs
	}
	read("kustomization.yaml", &k)
	got := map[string]bool{}
	for _, file := range k.Resources {
		for _, doc := range read(file, nil) {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			got[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
		}
	}
	want := map[string]bool{}
	for _, o := range objects(t, "service.nodePort=32766", "outboard-system", "v1.37.0") {
		want[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("the kustomization has %v, and the chart %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
