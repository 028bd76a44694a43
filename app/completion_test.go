package app

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shells complete the names of pods, nodes and namespaces from the cluster, and the values of
// flags.
func TestCompletion(t *testing.T) {
	lists := map[string]struct {
		kind  string
		names []string
	}{
		"/api/v1/namespaces":              {"NamespaceList", []string{"team", "test", "web"}},
		"/api/v1/namespaces/default/pods": {"PodList", []string{"web-1", "web-2", "job-1"}},
		"/api/v1/namespaces/team/pods":    {"PodList", []string{"train-1"}},
		"/api/v1/nodes":                   {"NodeList", []string{"gpu-1", "cpu-1"}},
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, ok := lists[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		items := []any{}
		for _, name := range list.names {
			items = append(items, map[string]any{"metadata": map[string]string{"name": name}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": list.kind, "items": items})
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "+api.URL+"}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"explain web":            "web-1 web-2",
		"explain -n team t":      "train-1",
		"explain team/t":         "team/train-1",
		"explain -n none t":      "",
		"explain web-1 w":        "",
		"explain web-1 --node g": "gpu-1",
		"explain --namespace te": "team test",
		"gpus ":                  "gpu-1 cpu-1",
		"gpus gpu-1 c":           "",
		"explain -o ":            "text json yaml",
		"simulate -o ":           "text json yaml",
		"setup scheduler --for ": "kubeadm sidecar service nodeport",
	} {
		command, typed := line[:strings.LastIndex(line, " ")], line[strings.LastIndex(line, " ")+1:]
		args := strings.Fields(command)
		if cluster := args[0] == "explain" || args[0] == "gpus"; cluster {
			args = append(args[:1:1], append([]string{"--kubeconfig", kubeconfig}, args[1:]...)...)
		}
		out, err := execute(t, append([]string{"__complete"}, append(args, typed)...)...)
		got, _, _ := strings.Cut(out, ":4\n") // no names of files
		if strings.Join(strings.Fields(got), " ") != want || err != nil {
			t.Errorf("%s: %v\n%swant %q", line, err, out, want)
		}
	}
}

// Under the name of a plugin of kubectl, usage texts have the command that the user runs.
func TestPluginOfKubectl(t *testing.T) {
	own := os.Args
	defer func() { os.Args = own }()
	for program, want := range map[string]string{"/bin/outboard": "usage: outboard gpus", "/bin/kubectl-outboard": "usage: kubectl outboard gpus"} {
		os.Args = []string{program}
		if _, out := statusOf(t, "gpus a b"); !strings.Contains(out, want) {
			t.Errorf("%s: %q is not in %s", program, want, out)
		}
	}
}

// A shell that reads the output gets no help text in place of a script.
func TestCompletionOfAnUnknownShell(t *testing.T) {
	const shells = "must be bash, fish, powershell or zsh\n"
	if status, out := statusOf(t, "completion foo"); status != statusFailed || out != `outboard: "foo": `+shells {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, out := statusOf(t, "completion"); status != statusFailed || !strings.HasSuffix(out, "\noutboard: SHELL is missing: "+shells) {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// kubectl runs kubectl_complete-outboard with the arguments of a command line, the last of which is
// incomplete.
func TestCompletionByKubectl(t *testing.T) {
	own := os.Args
	defer func() { os.Args = own }()
	os.Args = []string{"/bin/kubectl_complete-outboard", "explain", "--output", ""}
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if status := Run(cmd); status != statusGood || out.String() != "text\njson\nyaml\n:4\n" {
		t.Errorf("status %d:\n%s", status, &out)
	}
}
