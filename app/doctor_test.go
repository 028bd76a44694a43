package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ignorableBinder = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100
extenders:
- urlPrefix: http://127.0.0.1:8888 # Outboard
  filterVerb: filter
  bindVerb: bind
  ignorable: true
  nodeCacheCapable: true
  httpTimeout: 1s
  managedResources: [{name: example.com/gpu}]
`

func schedulerFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDoctor(t *testing.T) {
	wrong := schedulerFile(t, ignorableBinder)
	right := schedulerFile(t, strings.Replace(ignorableBinder, "ignorable: true", "ignorable: false", 1))
	outboard := file(t, plain+"profiles:\n- policies: [{type: ImageLocality}]\n")
	plugin := schedulerFile(t, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins: {multiPoint: {enabled: [{name: Outboard}]}}\n  pluginConfig: [{name: Outboard, args: {configFile: /etc/none.yaml}}]\n")
	for _, tt := range []struct {
		name  string
		args  []string
		fails bool
		want  []string
		not   string
	}{
		{name: "errors", args: []string{"--scheduler", wrong}, fails: true, want: []string{wrong + ":8: [ERROR IgnorableBinder] extenders[0].ignorable: ", "    Why: ", "    Fix: ", "errors: 1, warnings: 0, notes: 0\nnot checked: Outboard's configuration (FILE names it)\nnot checked: the cluster (--cluster reads it)\n"}},
		{name: "no errors", args: []string{"--scheduler", right}, want: []string{"errors: 0, warnings: 0, notes: 0\n"}, not: right},
		{name: "a version", args: []string{"--scheduler", right, "--kubernetes-version", "1.34"}, want: []string{"errors: 0, warnings: 0, notes: 0\n"}},
		{name: "with Outboard's configuration", args: []string{"--scheduler", right, outboard}, want: []string{"errors: 0"}},
		{name: "the configuration of a plugin", args: []string{"--scheduler", plugin}, want: []string{"not checked: /etc/none.yaml (not on this machine)\nnot checked: what the policies of Outboard's plugin need in profiles[0].plugins (its configuration is not known: FILE names it)\n"}, not: "PluginNotEnabled"},
		{name: "a configuration without serving for a plugin", args: []string{"--scheduler", plugin, file(t, header+"profiles: [{policies: [{type: GPUMemory}]}]\n")}, fails: true,
			want: []string{"[ERROR PluginNotEnabled] profiles[0].plugins.bind: Outboard is not the first in plugins.bind, and GPUMemory allocates resources\n"}, not: "none.yaml"},
		{name: "a configuration for a plugin that allocates nothing", args: []string{"--scheduler", plugin, outboard}, not: "PluginNotEnabled"},
		{name: "manifests", args: []string{"--scheduler", "../deploy/scheduler.yaml", "../deploy/outboard.yaml"}, want: []string{"errors: 0", "not checked: the cluster"}, not: "not checked: Outboard's configuration"},
		{name: "neither file nor code", fails: true, want: []string{"FILE is missing: usage: outboard check [FILE]"}},
		{name: "a namespace without a cluster", args: []string{"--outboard-namespace", "ns", "--context", "none"}, fails: true, want: []string{"set --kubeconfig"}},
		{name: "no file", args: []string{"--scheduler", filepath.Join(t.TempDir(), "none")}, fails: true, want: []string{"no such file"}},
		{name: "no version", args: []string{"--scheduler", right, "--kubernetes-version", "x"}, fails: true, want: []string{`version "x": must be such as 1.37`}},
		{name: "output", args: []string{"--scheduler", right, "-o", "xml"}, fails: true, want: []string{"--output"}},
		{name: "an invalid configuration", args: []string{"--scheduler", right, file(t, header)}, fails: true, want: []string{"the configuration is not valid"}},
		{name: "no cluster", args: []string{"--scheduler", right, "--context", "none"}, fails: true, want: []string{"set --kubeconfig"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := execute(t, append([]string{"check"}, tt.args...)...)
			if (err != nil) != tt.fails {
				t.Errorf("the error is %v", err)
			}
			if err != nil {
				out += err.Error()
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
			if tt.not != "" && strings.Contains(out, tt.not) {
				t.Errorf("%q is in:\n%s", tt.not, out)
			}
		})
	}
}

// A cluster without the namespace.
func TestDoctorReadsCluster(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/gone":
			http.NotFound(w, r)
		case "/version":
			_, _ = io.WriteString(w, `{"major": "1", "minor": "34", "gitVersion": "v1.34.0"}`)
		default: // all lists are empty
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}
	}))
	defer api.Close()
	kubeconfig := file(t, `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}],`+
		`"clusters": [{"name": "a", "cluster": {"server": "`+api.URL+`"}}]}`)
	scheduler := schedulerFile(t, strings.Replace(ignorableBinder, "ignorable: true", "ignorable: false", 1))
	for _, tt := range []struct {
		args   []string
		status int
		want   string
		not    string
	}{
		{[]string{"--outboard-namespace", "gone"}, 2, "there is no namespace gone: --outboard-namespace names that of Outboard; if it is not installed, outboard check FILE --scheduler FILE --cluster reads", "no Deployment"},
		{[]string{"--outboard-namespace", "empty"}, 2, "no Deployment in empty runs kube-scheduler", "no namespace"},
		{[]string{"--scheduler", scheduler, "--outboard-namespace", "gone"}, 2, "there is no namespace gone", "ERROR"},
	} {
		out, err := execute(t, append([]string{"check", "--kubeconfig", kubeconfig}, tt.args...)...)
		if err != nil {
			out += err.Error()
		}
		if got := exitStatus(err); got != tt.status || !strings.Contains(out, tt.want) || strings.Contains(out, tt.not) {
			t.Errorf("check %v: exit status %d, want %d, %q and not %q:\n%s", tt.args, got, tt.status, tt.want, tt.not, out)
		}
	}
}
