package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/ui"
)

// statusOf runs the command line as main does.
func statusOf(t *testing.T, line string) (status int, output string) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(strings.Fields(line))
	return Run(cmd), out.String()
}

// Every command ends with 0 if all is good, 1 if it has findings, and 2 if it could not do its
// work. A command without an entry here fails the test.
func TestExitStatusOfEveryCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", plain+"profiles:\n- policies: [{type: ImageLocality}]\n")
	bad := write("bad.yaml", plain+"profiles: []\n")
	wired := write("scheduler.yaml", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: http://127.0.0.1:80, filterVerb: filter, nodeCacheCapable: true, ignorable: true}]\n")
	nodes := write("nodes.yaml", simulatedCluster)

	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		case r.URL.Query().Get("node") == "typo" || r.URL.Path == "/inspect/gpus/typo":
			_, _ = w.Write([]byte(`{"known": true, "error": "node \"typo\" not found"}`))
		case r.URL.Path == "/explain" && r.URL.Query().Get("pod") == "known":
			_, _ = w.Write([]byte(`{"known": true}`))
		case r.URL.Path == "/explain" && r.URL.Query().Get("pod") == "gone":
			_, _ = w.Write([]byte(`{"known": false, "decisions": [{"verb": "filter"}]}`))
		case r.URL.Path == "/decisions":
			_, _ = w.Write([]byte(`[{"verb": "filter"}]`))
		case r.URL.Path == ui.WaitingPodsPath:
			_, _ = w.Write([]byte(`[]`))
		default:
			_, _ = w.Write([]byte(`{}`))
		}
	}))
	defer admin.Close()
	waiting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`[{"owner": "ns/Pod/web-1", "pod": "ns/web-1", "pods": 1}]`))
	}))
	defer waiting.Close()
	noPaths := httptest.NewServer(http.NotFoundHandler())
	defer noPaths.Close()
	const ledgers, pods, noNodes = "/apis/outboard.dev/v1alpha1/ledgers", "/api/v1/pods", "/api/v1/nodes"
	kubeconfig := func(name string, objects map[string][]string) string {
		api := httptest.NewServer(&apiLists{looks: []map[string][]string{objects}})
		t.Cleanup(api.Close)
		return write(name, "{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "+api.URL+"}}]}")
	}
	const leaked = `{"metadata":{"name":"x"},"spec":{"resource":"x","units":[{"name":"pool","capacity":8}],"pods":[{"uid":"gone","namespace":"ns","name":"gone","at":"2026-05-01T12:00:00Z","token":"t"}]}}`
	clean := kubeconfig("clean", map[string][]string{ledgers: nil, pods: nil, noNodes: nil})
	leak := kubeconfig("leak", map[string][]string{ledgers: {leaked}, pods: nil, noNodes: nil})
	const nowhere = "http://127.0.0.1:1"

	type lines struct{ good, findings, failed []string }
	statuses := map[string]lines{
		"outboard": {good: []string{"--help"}, failed: []string{"nonsense", "--version"}},
		"outboard check": {
			good: []string{good, "--scheduler " + wired, "--schema"}, findings: []string{bad, "--scheduler " + bad},
			failed: []string{"", "/nowhere.yaml", dir, good + " -o xml", "--scheduler /nowhere.yaml", bad + " --scheduler " + wired, "--scheduler " + wired + " --kubeconfig /nowhere", "--against " + good, good + " --against " + good + " --scheduler " + wired},
		},
		"outboard explain": {
			good: []string{
				"known --admin " + admin.URL, "--latest --admin " + admin.URL, "--latest -A -o yaml --admin " + admin.URL,
				"-A --admin " + waiting.URL, "-n ns --admin " + waiting.URL, "-A --admin " + admin.URL, "-n other --admin " + waiting.URL,
			},
			findings: []string{"unknown --admin " + admin.URL, "gone --admin " + admin.URL, "known --node typo --admin " + admin.URL, "--file " + good + " --admin " + admin.URL},
			failed: []string{
				"", "known --file " + good, "--file /nowhere --admin " + admin.URL, "known --admin " + nowhere, "known --admin " + noPaths.URL, "--admin " + nowhere, "--admin " + noPaths.URL,
				"--latest --admin " + noPaths.URL, "--latest --kubeconfig /nowhere", "--latest -o xml",
			},
		},
		"outboard gpus": {
			good: []string{"--admin " + admin.URL, "--audit --recheck=0 --kubeconfig " + clean}, findings: []string{"typo --admin " + admin.URL, "typo -o json --admin " + admin.URL, "--audit --recheck=0 --kubeconfig " + leak},
			failed: []string{"--admin " + nowhere, "--admin " + noPaths.URL, "--audit --kubeconfig /nowhere", "--audit --recheck=-1s"},
		},
		"outboard ui":          {failed: []string{"--kubeconfig /nowhere", "more", "--port -1 --admin " + admin.URL}},
		"outboard setup":       {good: []string{"--help"}, failed: []string{"", "nonsense"}},
		"outboard setup certs": {good: []string{"--dir " + filepath.Join(dir, "tls")}, failed: []string{"", "--dir " + good, "--cluster --dir " + dir, "--cluster --kubeconfig /nowhere"}},
		"outboard setup scheduler": {
			good:   []string{good},
			failed: []string{"", bad, "/nowhere.yaml", good + " --for moon"},
		},
		"outboard serve":                 {good: []string{"--print-config --config " + good}, failed: []string{"", "--config " + bad, "--config /nowhere.yaml"}},
		"outboard simulate":              {good: []string{nodes}, failed: []string{"", "/nowhere.yaml", nodes + " --config " + bad}},
		"outboard version":               {good: []string{""}},
		"outboard help":                  {good: []string{"", "check"}, failed: []string{"nonsense"}},
		"outboard completion":            {good: []string{"--help"}, failed: []string{"", "nonsense"}},
		"outboard completion bash":       {good: []string{""}},
		"outboard completion fish":       {good: []string{""}},
		"outboard completion powershell": {good: []string{""}},
		"outboard completion zsh":        {good: []string{""}},
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	every(commandTree(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if strings.HasPrefix(cmd.Name(), "__") {
			return // what shells call to complete a command line
		}
		l, ok := statuses[path]
		if !ok {
			t.Errorf("%s has no command lines here", path)
		}
		delete(statuses, path)
		l.failed = append(l.failed, "--no-such-flag", "a b c d e")
		for want, lines := range [][]string{l.good, l.findings, l.failed} {
			for _, line := range lines {
				line = strings.TrimPrefix(path+" "+line, "outboard ")
				status, output := statusOf(t, line)
				if status != want {
					t.Errorf("outboard %s: exit status %d, want %d\n%s", line, status, want, output)
				} else if want == statusFailed && !strings.HasPrefix(path, "outboard completion") && !strings.Contains(output, "outboard: ") {
					t.Errorf("outboard %s: no error\n%s", line, output)
				}
			}
		}
	})
	for path := range statuses {
		t.Errorf("there is no command %s", path)
	}
}

// A number that a flag cannot have is an error before the command reads anything, and an unknown
// flag shows the usage.
func TestWrongFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for line, want := range map[string]string{
		"explain --latest --limit -1":   `outboard: --limit="-1": must be a number between 1 and 10000`,
		"explain --limit many":          `outboard: --limit="many": must be a number between 1 and 10000`,
		"explain x --limit 9999999":     `outboard: --limit="9999999": must be a number between 1 and 10000`,
		"simulate --seeds many":         `outboard: --seeds="many": must be a number between 1 and 1000`,
		"check --cluster=perhaps":       `outboard: --cluster="perhaps": must be true or false`,
		"ui here":                       `outboard: outboard ui takes no argument "here": usage: outboard ui [flags]`,
		"check - --against -":           "outboard: only one of FILE, --against and --scheduler can be standard input",
		"ui --port -1":                  `outboard: --port="-1": must be a number between 0 and 65535`,
		"check":                         "outboard: FILE is missing: usage: outboard check [FILE] [flags]",
		"check --configs outboard.yaml": "outboard: unknown flag: --configs: usage: outboard check [FILE] [flags]",
		"gpus -A":                       "outboard: unknown shorthand flag: 'A' in -A: usage: outboard gpus [NODE] [flags]",
	} {
		if status, output := statusOf(t, line); status != statusFailed || output != want+"\n" {
			t.Errorf("outboard %s: exit status %d, want 2:\n%swant %q", line, status, output, want)
		}
	}
}

// commandTree returns all commands, also those that cobra adds.
func commandTree() *cobra.Command {
	root := NewCommand()
	root.InitDefaultCompletionCmd()
	return root
}

func every(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		every(sub, visit)
	}
}
