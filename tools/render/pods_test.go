package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// podValues are values of pods, and where they are in a Deployment.
const podValues = `
podAnnotations: {example.com/team: gpu, checksum/config: mine}
podLabels: {example.com/cost: shared, app.kubernetes.io/name: mine}
nodeSelector: {example.com/pool: system}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: example.com/arm, operator: DoesNotExist}]}]
tolerations: [{key: example.com/system, operator: Exists}]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
extraEnvFrom: [{secretRef: {name: credentials}}]
extraVolumes: [{name: west, secret: {secretName: west}}]
extraVolumeMounts: [{name: west, mountPath: /etc/west, readOnly: true}]
extraContainers: [{name: west, image: "west:1", volumeMounts: [{name: west, mountPath: /west}]}]
`

// What a user sets for the pods of one Deployment is in its template, beside what the chart needs, and not in that of the other.
func TestPodValues(t *testing.T) {
	for name, values := range map[string]string{
		"outboard":           "imagePullSecrets: [{name: registry}]" + podValues,
		"outboard-scheduler": "imagePullSecrets: [{name: registry}]\nscheduler:" + strings.ReplaceAll(podValues, "\n", "\n  "),
	} {
		var set, want map[string]any
		if err := yaml.Unmarshal([]byte(values), &set); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(podValues), &want); err != nil {
			t.Fatal(err)
		}
		plain, with := templates(t, nil), templates(t, set)
		for deployment, got := range with {
			secrets := got["spec"].(map[string]any)["imagePullSecrets"]
			if fmt.Sprint(secrets) != "[map[name:registry]]" {
				t.Errorf("%s: imagePullSecrets are %v", deployment, secrets)
			}
			delete(got["spec"].(map[string]any), "imagePullSecrets")
			if deployment != name {
				if !reflect.DeepEqual(got, plain[deployment]) {
					t.Errorf("the values of %s change %s:\n%v", name, deployment, got)
				}
				continue
			}
			container := func(template map[string]any) map[string]any {
				return template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
			}
			before := plain[deployment]
			check := func(field string, got, want any) {
				t.Helper()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s is\n%v\nwant\n%v", name, field, got, want)
				}
			}
			list := func(from any) []any { all, _ := from.([]any); return all }
			spec, specBefore := got["spec"].(map[string]any), before["spec"].(map[string]any)
			check("nodeSelector", spec["nodeSelector"], want["nodeSelector"])
			check("affinity", spec["affinity"], want["affinity"])
			check("tolerations", spec["tolerations"], want["tolerations"])
			check("volumes", spec["volumes"], append(list(specBefore["volumes"]), list(want["extraVolumes"])...))
			check("volumeMounts", container(got)["volumeMounts"], append(list(container(before)["volumeMounts"]), list(want["extraVolumeMounts"])...))
			check("containers", list(spec["containers"])[1:], want["extraContainers"])
			check("env", container(got)["env"], append(list(container(before)["env"]), list(want["extraEnv"])...))
			check("envFrom", container(got)["envFrom"], want["extraEnvFrom"])
			metadata, metadataBefore := got["metadata"].(map[string]any), before["metadata"].(map[string]any)
			check("labels", metadata["labels"], map[string]any{"example.com/cost": "shared", "app.kubernetes.io/name": name})
			annotations := metadataBefore["annotations"].(map[string]any)
			annotations["example.com/team"] = "gpu"
			check("annotations", metadata["annotations"], annotations)
		}
	}
}

// The container of the example writes the file that the example of the policy Licenses reads, and is restricted as those of the chart.
func TestContainerThatWritesASignal(t *testing.T) {
	text, err := os.ReadFile("../../examples/licenses/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	type mount struct{ Name, MountPath string }
	var spec struct {
		Volumes    []struct{ Name string }
		Containers []struct {
			Name, WorkingDir string
			Command          []string
			SecurityContext  map[string]any
			VolumeMounts     []mount
		}
	}
	rendered, err := yaml.Marshal(templates(t, values)["outboard"]["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(rendered, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Containers) != 2 || len(spec.Volumes) != 3 {
		t.Fatalf("the containers and volumes are %+v", spec)
	}
	outboard, writer := spec.Containers[0], spec.Containers[1]
	if !reflect.DeepEqual(writer.SecurityContext, outboard.SecurityContext) {
		t.Errorf("the security context is %v", writer.SecurityContext)
	}
	read, written := outboard.VolumeMounts[2], writer.VolumeMounts[0]
	if volume := spec.Volumes[2].Name; read.Name != volume || written.Name != volume || writer.WorkingDir != written.MountPath {
		t.Errorf("Outboard mounts %v and the container %v", read, written)
	}
	page, err := os.ReadFile("../../policies/licenses/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(writer.Command[2], "mv new ")
	file, _, _ = strings.Cut(file, ";")
	if path := "path: " + read.MountPath + "/" + file; !strings.Contains(string(page), path) {
		t.Errorf("the example of the policy does not have %s", path)
	}
}

// templates returns the templates of the pods of both Deployments.
func templates(t *testing.T, values map[string]any) map[string]map[string]any {
	t.Helper()
	files, err := render("../../deploy/chart", values, "outboard-system", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, text := range files {
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var d struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template map[string]any }
			}
			if yaml.UnmarshalStrict([]byte(doc), &map[string]any{}) == nil && yaml.Unmarshal([]byte(doc), &d) == nil && d.Kind == "Deployment" {
				found[d.Metadata.Name] = d.Spec.Template
			}
		}
	}
	if len(found) != 2 {
		t.Fatalf("the Deployments are %v", found)
	}
	return found
}

func TestServiceValues(t *testing.T) {
	values := parse(t, `service.annotations.example\.com/a=b,service.labels.team=gpu,service.labels.app\.kubernetes\.io/name=mine,monitoring.serviceMonitor=true`)
	metadata := objectsOf(t, values, "outboard-system", "v1.37.0")["Service outboard"].Metadata
	if got := fmt.Sprint(metadata.Annotations, metadata.Labels); got != "map[example.com/a:b] map[app.kubernetes.io/name:outboard team:gpu]" {
		t.Errorf("the annotations and labels are %s", got)
	}
}

// A Prometheus selects rules and monitors by labels.
func TestMonitoringLabels(t *testing.T) {
	const set = "monitoring.rules=true,monitoring.serviceMonitor=true,monitoring.labels.release=metrics"
	found := objects(t, set, "outboard-system", "v1.37.0")
	for _, name := range []string{"ServiceMonitor outboard", "PrometheusRule outboard"} {
		if got := fmt.Sprint(found[name].Metadata.Labels); got != "map[release:metrics]" {
			t.Errorf("%s has the labels %s", name, got)
		}
	}
}

// Each alert links to its section of the pages that monitoring.documentation names.
func TestAlertsLinkToTheDocumentation(t *testing.T) {
	const set = "monitoring.rules=true,monitoring.documentation=https://git.example/outboard/docs/"
	rules := fmt.Sprint(objects(t, set, "outboard-system", "v1.37.0")["PrometheusRule outboard"].Spec.Groups)
	links := strings.Count(rules, "runbook_url:https://git.example/outboard/docs/alerts.md#outboard")
	if alerts := strings.Count(rules, "alert:Outboard"); alerts == 0 || links != alerts {
		t.Errorf("%d of %d alerts link there:\n%s", links, alerts, rules)
	}
}
