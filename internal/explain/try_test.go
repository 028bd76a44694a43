package explain_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/snapshot"
)

const container = `{name: c, image: i, env: [{name: PASSWORD, value: s3cret}], resources: {limits: {cpu: 1}}}`

// tried is the data of a replica with two nodes.
func tried(t *testing.T) explain.Source {
	view := cluster("", "")
	return explain.Source{
		Log: decision.NewLog(0), Engines: engines(t, "/"), View: func(types.UID) *snapshot.View { return view },
		Pod: func(context.Context, string, string) (*corev1.Pod, error) { return nil, nil },
	}
}

func try(t *testing.T, s explain.Source, target, manifest string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(manifest))
	req.Header.Set("Content-Type", "application/yaml")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	explain.TryHandler(s).ServeHTTP(w, req)
	return w
}

// A pod, and each kind of workload with a template, is evaluated as the pod that the API server would make of it.
func TestTry(t *testing.T) {
	s := tried(t)
	spec := "spec: {containers: [" + container + "]}"
	template := "template: {metadata: {labels: {a: b}}, " + spec + "}"
	for name, tt := range map[string]struct{ manifest, pod string }{
		"Pod":         {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns}\n" + spec, "ns/p"},
		"JSON":        {`{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`, "default/p-"},
		"bound":       {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, uid: u}\nspec: {nodeName: gone, containers: [" + container + "]}\nstatus: {phase: Running}", "default/p"},
		"Deployment":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {selector: {matchLabels: {a: b}}, " + template + "}", "default/d"},
		"ReplicaSet":  {"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: d}\nspec: {" + template + "}", "default/d"},
		"StatefulSet": {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: d}\nspec: {" + template + "}", "default/d"},
		"DaemonSet":   {"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {" + template + "}", "default/d"},
		"Job":         {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: d, namespace: ns}\nspec: {" + template + "}", "ns/d"},
		"any kind":    {"apiVersion: x/v1\nkind: Train\nmetadata: {name: d}\nspec: {roles: [{replicas: 2, " + template + "}]}", "default/d"},
		"a list":      {"apiVersion: v1\nkind: List\nitems:\n- {kind: Service, metadata: {name: s}}\n- {kind: Pod, metadata: {name: p}, " + spec + "}", "default/p, skipped Service/s"},
		"documents":   {"kind: Service\nmetadata: {name: s}\n---\nkind: Job\nmetadata: {name: d}\nspec: {" + template + "}\n---\nkind: Pod\nmetadata: {name: p}\n" + spec, "default/d default/p, skipped Service/s"},
		"CronJob":     {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\nspec: {schedule: x, jobTemplate: {spec: {" + template + "}}}", "default/d"},
	} {
		w := try(t, s, explain.TryPath, tt.manifest)
		var tried explain.Tried
		if err := json.Unmarshal(w.Body.Bytes(), &tried); w.Code != http.StatusOK || err != nil {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		var got []string
		for _, doc := range tried.Pods {
			got = append(got, doc.Pod)
			if !strings.HasPrefix(doc.Verdict, doc.Kind+" "+doc.Pod) || strings.Contains(doc.Verdict, "each of its pods") == (doc.Kind == "Pod") {
				t.Errorf("%s: %s", name, doc.Verdict)
			}
			if !doc.Known || doc.Node != "" || len(doc.Now) == 0 || doc.Now[0].Nodes == 0 {
				t.Errorf("%s: %s", name, w.Body)
			}
		}
		if len(tried.Skipped) > 0 {
			got[len(got)-1] += ", skipped " + strings.Join(tried.Skipped, " ")
		}
		if got := strings.Join(got, " "); got != tt.pod || tried.Fits() {
			t.Errorf("%s: %s, want %s", name, got, tt.pod)
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("%s: the response has the environment: %s", name, w.Body)
		}
	}
	if records := s.Log.Latest(10, func(*decision.Record) bool { return true }); len(records) > 0 {
		t.Errorf("%d decisions are recorded", len(records))
	}
}

// Without nodes, the explanation says so, instead of which changes were tried.
func TestWithoutNodes(t *testing.T) {
	s := tried(t)
	s.View = func(types.UID) *snapshot.View { return new(snapshot.Builder).View() }
	w := try(t, s, explain.TryPath, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: ["+container+"]}")
	var tried explain.Tried
	if err := json.Unmarshal(w.Body.Bytes(), &tried); err != nil {
		t.Fatal(err)
	}
	doc := tried.Pods[0]
	var text strings.Builder
	if err := doc.Text(&text); err != nil {
		t.Fatal(err)
	}
	if want := "0 of 0 nodes fit.\n  error: the cluster has no nodes\n"; !strings.HasSuffix(text.String(), want) || doc.Change != doc.Now[0].Error {
		t.Errorf("%q as the change, and\n%s", doc.Change, text.String())
	}
}

// What cannot be tried is refused with the reason, and where it is in the manifest.
func TestTryRefuses(t *testing.T) {
	s := tried(t)
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - " + container + "\n"
	for name, tt := range map[string]struct {
		target, manifest string
		header           []string
		status           int
		says             string
	}{
		"another page":         {"", pod, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden, "only this page"},
		"a form":               {"", pod, []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType, "application/yaml"},
		"too large":            {"", pod + strings.Repeat("#", 300<<10), nil, http.StatusRequestEntityTooLarge, "larger than 262144 bytes"},
		"no YAML":              {"", "kind: Pod\nmetadata: {", nil, http.StatusBadRequest, "manifest:3"},
		"an unknown field":     {"", pod + "  nodeSelecter: {}\n", nil, http.StatusBadRequest, "manifest:7: spec.nodeSelecter"},
		"an invalid amount":    {"", strings.Replace(pod, "cpu: 1", "cpu: lots", 1), nil, http.StatusBadRequest, "manifest:6"},
		"no pod":               {"", "apiVersion: v1\nkind: Service\nmetadata: {name: s}", nil, http.StatusBadRequest, "there is no pod, and no object with a template of pods (Service/s)"},
		"no containers":        {"", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}", nil, http.StatusBadRequest, "the pod has no containers"},
		"nothing":              {"", "", nil, http.StatusBadRequest, "manifest"},
		"too many nodes":       {"?nodes=-1", pod, nil, http.StatusBadRequest, "nodes:"},
		"a slow amount":        {"", strings.Replace(pod, "cpu: 1", "cpu: 1e-99999999", 1), nil, http.StatusBadRequest, "manifest:6"}, // minutes
		"the second document":  {"", pod + "---\n" + pod + "  nodeSelecter: {}\n", nil, http.StatusOK, `"refused":["manifest:14: spec.nodeSelecter`},
		"two documents":        {"", pod + "  x: 1\n---\n" + pod + "  z: 1\n", nil, http.StatusBadRequest, "manifest:15: spec.z"},
		"no limit":             {"", strings.Replace(pod, "limits: {cpu: 1}", "requests: {a/b: 1}", 1), nil, http.StatusBadRequest, "the API server refuses pod default/p: a/b: 1 of container c must have a limit that is equal to the request"},
		"another limit":        {"", strings.Replace(pod, "limits: {cpu: 1}", "limits: {a/b: 2}, requests: {a/b: 1}", 1), nil, http.StatusBadRequest, "must have a limit that is equal to the request"},
		"a fraction":           {"", strings.Replace(pod, "limits: {cpu: 1}", "limits: {a/b: 0.5}", 1), nil, http.StatusBadRequest, "a/b: 0.5 of container c must be an integer"},
		"the page of a server": {"", pod, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden, "only this page"},
	} {
		w := try(t, s, explain.TryPath+tt.target, tt.manifest, tt.header...)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s: %d %s, want %d %q", name, w.Code, w.Body, tt.status, tt.says)
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("%s: the response has the environment: %s", name, w.Body)
		}
	}
}
