package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// own renders the chart with a configuration of the user, for the cluster's own kube-scheduler, and
// returns the file in the ConfigMap.
func own(t *testing.T, config string) (map[string]any, error) {
	t.Helper()
	values := map[string]any{"config": config, "scheduler": map[string]any{"enabled": false}}
	files, err := render("../../deploy/chart", values, "outboard-system", "v1.37.0")
	if err != nil {
		return nil, err
	}
	var file map[string]any
	for doc := range strings.SplitSeq(files["outboard.yaml"], "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "ConfigMap" {
			if err := yaml.UnmarshalStrict([]byte(o.Data["outboard.yaml"]), &file); err != nil {
				t.Fatal(err)
			}
		}
	}
	return file, nil
}

// examples are complete configurations, which outboard serve accepts in the tests of the examples.
func examples(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../examples/*/outboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(filepath.Dir(path)); name != "own-policy" { // which has another program
			found[name] = string(text)
		}
	}
	if len(found) < 9 {
		t.Fatalf("there are %d examples: %v", len(found), paths)
	}
	return found
}

// chartSets are the fields that the chart sets itself.
var chartSets = map[string]any{
	"address": "0.0.0.0:8443",
	"tls":     map[string]any{"certFile": "/etc/outboard/tls/tls.crt", "keyFile": "/etc/outboard/tls/tls.key", "clientCAFile": "/etc/outboard/tls/ca.crt"},
}

// The file that outboard check accepts is the value config, without changes: the chart replaces
// what depends on its objects, and keeps everything else.
func TestConfigIsACompleteFile(t *testing.T) {
	for name, text := range examples(t) {
		got, err := own(t, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want map[string]any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		serving, tls := maps.Clone(chartSets), maps.Clone(chartSets["tls"].(map[string]any))
		if written, ok := want["serving"].(map[string]any)["tls"].(map[string]any); ok {
			if clients, ok := written["allowedClients"]; ok {
				tls["allowedClients"] = clients
			}
			serving["tls"] = tls
		}
		want["serving"], want["admin"] = serving, map[string]any{"address": "0.0.0.0:8081", "expose": "Metrics"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the file is\n%v\nwant\n%v", name, got, want)
		}
	}
	got, err := own(t, `
admin: {address: 127.0.0.1:9090, pprof: true}
serving:
  address: 127.0.0.1:12345
  insecure: true
  shutdownDelay: 15s
  tls: {certFile: tls/server.crt, keyFile: tls/server.key, clientCAFile: tls/ca.crt, allowedClients: [my-scheduler]}
ledgers: {reclaimAfter: 10m}
requeue: {perSecond: 1000}
profiles: [{policies: [{type: GPUMemory}]}]
`)
	if err != nil {
		t.Fatal(err)
	}
	tls := maps.Clone(chartSets["tls"].(map[string]any))
	tls["allowedClients"] = []any{"my-scheduler"}
	want := map[string]any{
		"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration",
		"serving":  map[string]any{"address": "0.0.0.0:8443", "shutdownDelay": "15s", "tls": tls},
		"admin":    map[string]any{"address": "0.0.0.0:8081", "expose": "Metrics"},
		"ledgers":  map[string]any{"reclaimAfter": "10m"},
		"requeue":  map[string]any{"perSecond": 1000.0},
		"profiles": []any{map[string]any{"policies": []any{map[string]any{"type": "GPUMemory"}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the file is\n%v\nwant\n%v", got, want)
	}
}

// A mistake in config fails when the chart is rendered, with the field.
func TestInvalidConfig(t *testing.T) {
	for config, want := range map[string]string{
		"profiles: [{policies: [{type: GPUMemoryy}]}]":                                                                     `profiles[0].policies[0].type: "GPUMemoryy" is not one of Cost, Devices, GPUMemory`,
		"profiles: [{policies: [{type: PodLimit, wieght: 2, config: {max: 1}}]}]":                                          "profiles[0].policies[0].wieght: unknown field",
		"profiles: [{policies: [{type: PodLimit, config: {maximum: 1}}]}]":                                                 "profiles[0].policies[0].config.maximum: unknown field; there are each, max",
		"profiles: [{policies: [{type: PodLimit, config: {max: many}}]}]":                                                  "profiles[0].policies[0].config.max: must be integer",
		"profiles: [{policies: [{type: ImageLocality, weight: 101}]}]":                                                     "profiles[0].policies[0].weight: 101 is out of range",
		"signals: [{name: a, file: {path: a}, metrics: {resource: cpu}}]\nprofiles: [{policies: [{type: ImageLocality}]}]": "signals[0]: must have exactly one of",
		"profiles: []":            "profiles: must have at least 1",
		"requeue: {perSecond: 5}": "profiles: required",
		"apiVersion: v1\nprofiles: [{policies: [{type: ImageLocality}]}]":           `apiVersion: "v1" is not one of outboard.dev/v1alpha1`,
		"kind: ConfigMap\nprofiles: [{policies: [{type: ImageLocality}]}]":          `kind: "ConfigMap" is not one of OutboardConfiguration`,
		"profiles: [{policies: [{type: ImageLocality}]}]\n---\nlog: {level: debug}": "config has 2 YAML documents",
		"[profiles]":  "config is not a YAML mapping",
		"profiles: {": "config is not a YAML mapping",
		"# profiles":  "config has 0 YAML documents",
	} {
		if _, err := own(t, config); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(outboard/templates/validate-config.yaml:") {
			t.Errorf("%s: the error is %v, want one with %s in validate-config.yaml", config, err, want)
		}
	}
	values := map[string]any{"config": "profiles: [{policies: [{type: Seats}]}]", "validateConfig": false, "scheduler": map[string]any{"enabled": false}}
	if _, err := render("../../deploy/chart", values, "outboard-system", "v1.37.0"); err != nil {
		t.Errorf("a policy of another program: %v", err)
	}
}

// What kube-scheduler calls is checked, too, with the files of a user.
func TestSchedulerConfig(t *testing.T) {
	const config = "profiles: [{path: /gpu, policies: [{type: GPUMemory}]}, {path: /rank, verb: Prioritize, policies: [{type: ImageLocality}]}]"
	const scheduler = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceNamespace: elsewhere, resourceName: my-scheduler}
profiles: [{schedulerName: my-scheduler}]
extenders:
- {urlPrefix: "https://outboard.elsewhere.svc/gpu/", filterVerb: filter, bindVerb: bind, enableHTTPS: true}
- {urlPrefix: "https://outboard.elsewhere.svc:443", prioritizeVerb: rank, enableHTTPS: true}
- {urlPrefix: "http://somebody.else.svc", filterVerb: predicates}
`
	values := func(from, to string) map[string]any {
		changed := strings.Replace(scheduler, from, to, 1)
		if changed == scheduler && from != to {
			t.Fatalf("the file has no %q", from)
		}
		return map[string]any{"config": config, "scheduler": map[string]any{"config": changed}}
	}
	all := objectsOf(t, values("", ""), "elsewhere", "v1.37.0")
	if got := all["ConfigMap outboard-scheduler"].Data["scheduler.yaml"]; strings.TrimSpace(got) != strings.TrimSpace(scheduler) {
		t.Errorf("the file of kube-scheduler is\n%s", got)
	}
	if got := all["Role outboard-scheduler-lease"].Rules[1].ResourceNames; !slices.Equal(got, []string{"my-scheduler"}) {
		t.Errorf("the Role for the Lease is for %s", got)
	}
	if _, err := render("../../deploy/chart", map[string]any{"config": config}, "elsewhere", "v1.37.0"); err == nil || !strings.Contains(err.Error(), "outboard setup scheduler --for service") {
		t.Errorf("without scheduler.config: %v", err)
	}
	for from, to := range map[string]string{
		"/gpu/":                                 "/gpus/",
		"filterVerb: filter":                    "filterVerb: predicates",
		"prioritizeVerb: rank":                  "prioritizeVerb: prioritize",
		"https://outboard.elsewhere.svc/":       "http://outboard.elsewhere.svc/",
		"outboard.elsewhere.svc:443":            "outboard.outboard-system.svc:443",
		"enableHTTPS: true":                     "enableHTTPS: false",
		"kind: KubeSchedulerConfiguration":      "kind: Policy",
		"resourceNamespace: elsewhere, ":        "",
		"elsewhere, resourceName: my-scheduler": "elsewhere",
		"resourceNamespace: elsewhere":          "resourceNamespace: kube-system",
	} {
		if _, err := render("../../deploy/chart", values(from, to), "elsewhere", "v1.37.0"); err == nil || !strings.Contains(err.Error(), "print it with outboard setup scheduler --for service --outboard-namespace elsewhere") {
			t.Errorf("with %q instead of %q: %v", to, from, err)
		}
	}
}
