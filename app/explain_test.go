package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Where nothing is found, explain says in which namespace it looked.
func TestNothingToExplain(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[]`))
	}))
	defer admin.Close()
	for args, want := range map[string]string{
		"--latest -n team": "No decisions found in the namespace team: --all-namespaces lists those of all namespaces.\n",
		"--latest -A":      "No decisions found.\n",
		"-n team":          "No pod waits in the namespace team: --all-namespaces lists those of all namespaces.\n",
		"-A":               "No pod waits.\n",
	} {
		if status, output := statusOf(t, "explain "+args+" --admin "+admin.URL); status != 0 || !strings.Contains(output, want) {
			t.Errorf("explain %s: status %d, %q, want %q", args, status, output, want)
		}
	}
}

// The commands that read from Outboard show its warnings once.
func TestWarningsOfOutboard(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 outboard "cannot reload \"outboard.yaml\": wrong.yaml:6"`)
		body := "[]"
		if r.URL.Path == "/explain" || strings.HasPrefix(r.URL.Path, "/inspect") {
			body = "{}"
		}
		_, _ = w.Write([]byte(body))
	}))
	defer admin.Close()
	const want = "Warning: cannot reload \"outboard.yaml\": wrong.yaml:6\n"
	for _, args := range []string{"explain web-1", "explain -A", "explain --latest -A", "explain -A -o json", "gpus"} {
		if _, output := statusOf(t, args+" --admin "+admin.URL); strings.Count(output, want) != 1 {
			t.Errorf("%s:\n%s", args, output)
		}
	}
}

// The list says why a pod waits: with the numbers of the nearest node, or with the reason's text if
// it has none.
func TestWhyPodsWait(t *testing.T) {
	for row, want := range map[string]string{
		`"text": "too little memory", "nearest": {"node": "large", "have": 8, "want": 24}, "unit": "GiB"`: "large has 8, needs 24 GiB\n",
		`"text": "no GPU of these models", "nearest": {"node": "large"}`:                                  "no GPU of these models\n",
	} {
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`[{"owner": "ns/Pod/a", "pod": "ns/a", "pods": 1, "reason": "R", ` + row + `}]`))
		}))
		if _, output := statusOf(t, "explain -A --admin "+admin.URL); !strings.HasSuffix(output, "  R       ns/a  "+want) {
			t.Errorf("%s:\n%swant %q", row, output, want)
		}
		admin.Close()
	}
}

// While Outboard does not respond, explain shows the cause that kube-scheduler knows, if it can read
// the cluster.
func TestExplainWithoutOutboard(t *testing.T) {
	const none = "outboard: no response of Outboard (docs/troubleshooting.md, Calls fail): "
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/team/events" || r.URL.Query().Get("fieldSelector") != "involvedObject.kind=Pod,involvedObject.name=web-1,reason=FailedScheduling" {
			_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "List"}`))
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "EventList", "items": [
			{"eventTime": "2026-05-01T12:00:00.000000Z", "series": {"lastObservedTime": "2026-05-01T12:30:00.000000Z"}, "message": "connection refused"},
			{"eventTime": "2026-05-01T12:10:00.000000Z", "message": "an earlier cause"}]}`))
	}))
	defer api.Close()
	cluster := file(t, "{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "+api.URL+"}}]}")
	const event = "\nthe latest event of kube-scheduler about pod team/web-1, 2026-05-01T12:30:00Z: connection refused\n"
	for args, want := range map[string]string{
		"team/web-1 --admin 127.0.0.1:1 --kubeconfig " + cluster:    "kubectl port-forward" + event,
		"team/web-1 --kubeconfig " + cluster:                        "--admin one service" + event,
		"other/web-1 --admin 127.0.0.1:1 --kubeconfig " + cluster:   "kubectl port-forward\n",
		"team/web-1 --admin 127.0.0.1:1 --kubeconfig /nowhere.conf": "kubectl port-forward\n",
	} {
		if status, output := statusOf(t, "explain "+args); status != statusFailed || !strings.HasPrefix(output, none) || !strings.HasSuffix(output, want) {
			t.Errorf("explain %s: status %d\n%swant %q", args, status, output, want)
		}
	}
}
